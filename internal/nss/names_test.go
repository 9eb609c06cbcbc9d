package nss

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/internal/nsstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	users  = "carol:x:50003:50010:of a directory:/:/bin/sh\n"
	groups = "lab:x:50011:carol\ngenomics:x:50012:\n"
)

// Users and groups of a source other than files have their numbers and members.
func TestOtherSource(t *testing.T) {
	nsstest.Run(t, func(t *testing.T, s *nsstest.Source) {
		s.Users(users)
		s.Groups(groups)
		var n Names
		ctx := t.Context()
		for _, c := range []struct {
			look func(context.Context, string) (uint32, error)
			name string
			want uint32
			kind bb.Kind // 0: it is known
		}{
			{n.User, "root", 0, 0},
			{n.User, "carol", 50003, 0},
			{n.User, "50003", 50003, 0},
			{n.User, "4294967294", 4294967294, 0},
			{n.User, "lab", 0, bb.NotFound},
			{n.User, "", 0, bb.NotFound},
			{n.User, "-s", 0, bb.NotFound},
			{n.User, "--service=files", 0, bb.NotFound},
			{n.User, "carol:x", 0, bb.NotFound},
			{n.User, "nobody-has-this", 0, bb.NotFound},
			{n.Group, "root", 0, 0},
			{n.Group, "lab", 50011, 0},
			{n.Group, "genomics", 50012, 0},
			{n.Group, "carol", 0, bb.NotFound},
		} {
			id, err := c.look(ctx, c.name)
			if id != c.want || (err == nil) != (c.kind == 0) || err != nil && bb.KindOf(err) != c.kind {
				t.Errorf("%q: %d, %v; want %d, kind %v", c.name, id, err, c.want, c.kind)
			}
		}
		if got, err := Groups(ctx, 50003, 50010); err != nil || !slices.Equal(got, []uint32{50011}) {
			t.Errorf("carol's groups: %v, %v", got, err)
		}
	})
}

// A source that does not answer is waited for as long as configured, and its last answer counts.
func TestSilentSource(t *testing.T) {
	nsstest.Run(t, func(t *testing.T, s *nsstest.Source) {
		s.Users(users)
		var log bytes.Buffer
		n := Names{Log: slog.New(slog.NewTextHandler(&log, nil)), within: 200 * time.Millisecond}
		if id, err := n.User(t.Context(), "carol"); id != 50003 || err != nil {
			t.Fatal(id, err)
		}
		s.Hang()
		_, err := n.User(t.Context(), "dave")
		if !errors.Is(err, bb.Unavailable) || !strings.Contains(err.Error(), "getent does not answer") {
			t.Errorf("a user that was never known: %v", err)
		}
		n.age(foundFor)
		if id, err := n.User(t.Context(), "carol"); id != 50003 || err != nil {
			t.Errorf("a user that was known: %d, %v", id, err)
		}
		n.age(silentFor)
		if id, err := n.User(t.Context(), "carol"); !errors.Is(err, bb.Unavailable) {
			t.Errorf("a user that was known long ago: %d, %v", id, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := n.User(ended, "erin"); !errors.Is(err, bb.Unavailable) {
			t.Errorf("after the time for all names: %v", err)
		}
		s.Users("carol:x:50009:50010::/:/bin/sh\n")
		n.age(foundFor)
		if id, err := n.User(t.Context(), "carol"); id != 50009 || err != nil {
			t.Errorf("a user that has another number now: %d, %v", id, err)
		}
		s.Users("")
		n.age(foundFor)
		if id, err := n.User(t.Context(), "carol"); !errors.Is(err, bb.NotFound) {
			t.Errorf("a user that was removed: %d, %v", id, err)
		}
		for name, times := range map[string]int{"user=carol": 2, "user=dave": 1, "user=erin": 0} {
			if got := strings.Count(log.String(), name); got != times {
				t.Errorf("%s is in the log %d times, want %d:\n%s", name, got, times, &log)
			}
		}
	})
}

// age makes all answers older.
func (n *Names) age(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for q, a := range n.known {
		a.asked = a.asked.Add(-by)
		if !a.found.IsZero() {
			a.found = a.found.Add(-by)
		}
		n.known[q] = a
	}
}

// The new answer follows from the known one, and from the system's.
func TestAnswer(t *testing.T) {
	now := time.Unix(1e9, 0)
	unknown, silent := bb.E(bb.NotFound, "look up", "x", "none"), bb.E(bb.Unavailable, "look up", "x", "silent")
	known := answer{}.then(7, nil, now)
	for _, c := range []struct {
		about  string
		before answer
		id     uint32
		err    error
		after  time.Duration
		want   uint32
		kind   bb.Kind
		fresh  time.Duration // how long it is
	}{
		{"first", answer{}, 7, nil, 0, 7, 0, foundFor},
		{"another number", known, 8, nil, time.Minute, 8, 0, foundFor},
		{"nobody's", answer{}, 0, unknown, 0, 0, bb.NotFound, unknownFor},
		{"nobody's any more", known, 0, unknown, time.Minute, 0, bb.NotFound, unknownFor},
		{"never said", answer{}, 0, silent, 0, 0, bb.Unavailable, unknownFor},
		{"not said again", known, 0, silent, silentFor - 1, 7, 0, unknownFor},
		{"not said for long", known, 0, silent, silentFor, 0, bb.Unavailable, unknownFor},
		{"not said once more", known.then(0, silent, now.Add(time.Minute)), 0, silent, silentFor, 0, bb.Unavailable, unknownFor},
		{"said again", answer{}.then(0, silent, now), 7, nil, time.Minute, 7, 0, foundFor},
	} {
		at := now.Add(c.after)
		got := c.before.then(c.id, c.err, at)
		if got.id != c.want || (got.err == nil) != (c.kind == 0) || got.err != nil && bb.KindOf(got.err) != c.kind {
			t.Errorf("%s: %+v, want %d, kind %v", c.about, got, c.want, c.kind)
		}
		if !got.fresh(at.Add(c.fresh-1)) || got.fresh(at.Add(c.fresh)) {
			t.Errorf("%s: not fresh for %v", c.about, c.fresh)
		}
	}
}

func FuzzNumber(f *testing.F) {
	f.Add("root:x:0:0:root:/root:/bin/sh\ncarol:x:1:\n", "carol")
	f.Add("a:x:99999999999:0:\n", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		if _, ok := numberIn(text, name); ok && !strings.Contains(text, name+":") {
			t.Errorf("%q is found in %q", name, text)
		}
	})
}
