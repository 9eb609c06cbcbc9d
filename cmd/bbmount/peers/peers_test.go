package peers

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

func TestAway(t *testing.T) {
	at := func(node admin.NodeID, unknown bool) error {
		inner := &client.Error{Kind: client.ErrUnavailable, Op: "reach", Node: node, Err: errors.New("starting")}
		return &client.Error{Kind: client.ErrUnavailable, Op: "open", Path: "bb://b/f", Err: inner, Unknown: unknown}
	}
	for _, x := range []struct {
		what string
		err  error
		want admin.NodeID
	}{
		{"no error", nil, ""},
		{"another error", io.EOF, ""},
		{"the own daemon", at("", false), ""},
		{"another node", at("n2", false), "n2"},
		{"another node, after a change", at("n2", true), ""},
		{"lost bytes of another node", &client.Error{Kind: client.ErrLost, Node: "n2", Err: io.EOF}, ""},
	} {
		if node, away := Away(x.err); node != x.want || away != (x.want != "") {
			t.Errorf("%s: %q, %v", x.what, node, away)
		}
	}
}

func TestUntil(t *testing.T) {
	away := &client.Error{Kind: client.ErrUnavailable, Node: "n2", Err: errors.New("starting")}
	for _, x := range []struct {
		what      string
		away      int // requests that fail so
		dead      int // requests until the node is dead; 0: it is not
		want      error
		from, end time.Duration
	}{
		{"no failure", 0, 0, nil, 0, 0},
		{"a short restart", 5, 0, nil, 20 * time.Millisecond, 2 * time.Second},
		{"a death", 100, 3, away, 20 * time.Millisecond, 2 * time.Second},
		{"a long restart", 100, 0, away, 10 * time.Second, 12 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, tries, began := New(nil, 10*time.Second), 0, time.Now()
			err := p.until(t.Context(), func(_ context.Context, node admin.NodeID) bool { return node != "n2" || x.dead > 0 && tries >= x.dead }, func() error {
				if tries++; tries <= x.away {
					return away
				}
				return nil
			})
			if took := time.Since(began); err != x.want && !(err == nil && x.want == nil) || took < x.from || took > x.end {
				t.Errorf("%s: %v after %v and %d tries", x.what, err, took, tries)
			}
		})
	}
}

// TestGone: a daemon that has left is waited for as long as a restart takes, and not for as long as gossip knows it.
func TestGone(t *testing.T) {
	now := time.Now()
	nodes := []admin.Node{
		{Name: "ready", State: "ready", Since: now.Add(-time.Hour)},
		{Name: "suspect", State: "suspect", Since: now},
		{Name: "dead", State: "dead", Since: now},
		{Name: "restarting", State: "left", Since: now.Add(-time.Second)},
		{Name: "away", State: "left", Since: now.Add(-restarts)},
	}
	for node, want := range map[admin.NodeID]bool{"ready": false, "suspect": false, "dead": true, "restarting": false, "away": true, "unknown": true} {
		if gone(nodes, node, now) != want {
			t.Errorf("%s: %v", node, !want)
		}
	}
}

// TestApart: what keeps others waiting takes a moment, however long the wait is.
func TestApart(t *testing.T) {
	away := &client.Error{Kind: client.ErrUnavailable, Node: "n2", Err: errors.New("starting")}
	gone := &client.Error{Kind: client.ErrNotFound, Err: errors.New("no such file")}
	for _, x := range []struct {
		what       string
		takes      time.Duration // of an answer
		wait, want error
		calls      string
	}{
		{"at once", time.Millisecond, nil, nil, "do"},
		{"an error at once", time.Millisecond, nil, io.EOF, "do"},
		{"the peer answers later", 20 * time.Second, nil, nil, "do wait do"},
		{"it has another name by then", 20 * time.Second, gone, nil, "do wait do"},
		{"the peer does not answer", 20 * time.Second, away, away, "do wait"},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls, began := []string{}, time.Now()
			answer := func(ctx context.Context) error {
				select {
				case <-time.After(x.takes - time.Since(began)):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			err := Apart(t.Context(), func(ctx context.Context) error {
				from := time.Now()
				calls = append(calls, "do")
				err := answer(ctx)
				if held := time.Since(from); held > moment {
					t.Errorf("%s: others waited for %v", x.what, held)
				}
				if err == nil {
					return x.want
				}
				return err
			}, func(ctx context.Context) error {
				calls = append(calls, "wait")
				return cmp.Or(answer(ctx), x.wait)
			})
			if err != x.want || strings.Join(calls, " ") != x.calls {
				t.Errorf("%s: %v after %v", x.what, err, calls)
			}
		})
	}
}

// TestSettle has a daemon away after an attempt of unknown outcome. The next one must still know of it.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := &client.Error{Kind: client.ErrUnavailable, Node: "n2", Err: errors.New("starting")}
		lost := &client.Error{Kind: client.ErrUnavailable, Err: errors.New("no answer"), Unknown: true}
		answers, repeats := []error{lost, away, nil}, []bool{}
		err := New(nil, time.Minute).settle(t.Context(), func(context.Context, admin.NodeID) bool { return false }, func(repeated bool) error {
			repeats = append(repeats, repeated)
			return answers[len(repeats)-1]
		})
		if err != nil || !slices.Equal(repeats, []bool{false, true, true}) {
			t.Errorf("%v, %v", repeats, err)
		}
	})
}
