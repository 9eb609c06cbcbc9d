package attrcache

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// tree notes what the kernel is to drop.
type tree struct{ dropped []string }

func (t *tree) Changed(path string)                  { t.dropped = append(t.dropped, "attributes of "+path) }
func (t *tree) Left(_ context.Context, path string)  { t.dropped = append(t.dropped, "left "+path) }
func (t *tree) Moved(_ context.Context, path string) { t.dropped = append(t.dropped, "name "+path) }
func (t *tree) Below(path string)                    { t.dropped = append(t.dropped, "all of "+path) }

// running is a cache whose stream holds.
func running() (*Cache, *tree) {
	c := New()
	c.announce(true)
	return c, &tree{}
}

func file(path string, g bb.Generation, size int64) *client.Entry {
	return &client.Entry{Path: path, Type: bb.TypeFile, File: 1, Generation: g, Size: size, State: client.StateDirty}
}

func dir(path string) *client.Entry { return &client.Entry{Path: path, Type: bb.TypeDirectory} }

func TestTimes(t *testing.T) {
	c, tr := running()
	open := file("f", 1, 2)
	open.State = client.StateOpen
	for _, x := range []struct {
		what       string
		e          *client.Entry
		meanwhile  *admin.Event // between the request and the answer
		name, attr time.Duration
	}{
		{"a file", file("f", 1, 2), nil, Long, Long},
		{"a directory", dir("f"), nil, Short, Long},
		{"a file that is being written", open, nil, Long, Short},
		{"a change of it", file("f", 1, 2), &admin.Event{Kind: admin.EventChanged, Path: "/f"}, Short, Short},
		{"a commit of it", file("f", 1, 2), &admin.Event{Kind: admin.EventCommitted, Path: "f", Generation: 2}, Short, Short},
		{"its removal", file("f", 1, 2), &admin.Event{Kind: admin.EventRemoved, Path: "f"}, Short, Short},
		{"a change of another", file("f", 1, 2), &admin.Event{Kind: admin.EventChanged, Path: "g"}, Long, Long},
		{"a rename", file("f", 1, 2), &admin.Event{Kind: admin.EventRenamed, Path: "e", Reason: "from d"}, Short, Short},
		{"a transaction", file("f", 1, 2), &admin.Event{Kind: admin.EventTxnDecided, Path: "e"}, Short, Short},
		{"missed events", file("f", 1, 2), &admin.Event{Kind: admin.EventMissed}, Short, Short},
	} {
		at := c.At("f")
		if x.meanwhile != nil {
			c.event(t.Context(), x.meanwhile, tr)
		}
		if name, attr := c.Name(x.e, at), c.Attributes(x.e, at); name != x.name || attr != x.attr {
			t.Errorf("%s: %v and %v, not %v and %v", x.what, name, attr, x.name, x.attr)
		}
	}
	at := c.At("f")
	for range recentChanges + 1 {
		c.Drop("other")
	}
	if attr := c.Attributes(file("f", 1, 2), at); attr != Short {
		t.Errorf("an answer that is older than all remembered changes is kept for %v", attr)
	}
	c.announce(false)
	if name, attr := c.Name(file("f", 1, 2), c.At("f")), c.Attributes(file("f", 1, 2), c.At("f")); name != Short || attr != Short {
		t.Errorf("without announcements: %v and %v", name, attr)
	}
}

func TestDrops(t *testing.T) {
	c, tr := running()
	for _, e := range []admin.Event{
		{Kind: admin.EventCommitted, Path: "a", Generation: 1},
		{Kind: admin.EventRenamed, Path: "d/c", Reason: "from d/b"},
		{Kind: admin.EventRemoved, Path: "e"},
		{Kind: admin.EventTxnDecided, Path: "out"},
		{Kind: admin.EventMissed},
		{Kind: admin.EventFlushed, Path: "a"},
	} {
		c.event(t.Context(), &e, tr)
	}
	want := []string{"attributes of a", "left d/b", "name d/c", "name e", "all of out", "all of "}
	if !slices.Equal(tr.dropped, want) {
		t.Errorf("dropped %q, not %q", tr.dropped, want)
	}
}

func TestAgree(t *testing.T) {
	c, _ := running()
	c.Committed(file("f", 1, 2), c.At("f"))
	c.Agree(file("f", 1, 2), "f")
	if _, _, ok := c.Get("f"); !ok {
		t.Error("an entry is dropped that the daemon has as well")
	}
	c.Agree(file("f", 1, 3), "f")
	if _, _, ok := c.Get("f"); ok {
		t.Error("an entry is kept beside an answer with more bytes")
	}
}

func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, tr := running()
		c.Keep(dir("d"), c.At("d"))
		if _, left, ok := c.Get("d"); !ok || left != Long {
			t.Fatalf("a directory is kept: %v, for %v", ok, left)
		}
		time.Sleep(Long - time.Second)
		if _, left, ok := c.Get("d"); !ok || left != time.Second {
			t.Errorf("a directory is kept later: %v, for %v more", ok, left)
		}
		c.Keep(dir("d"), c.At("d"))
		if d := c.Attributes(dir("d"), c.At("d")); d != time.Second {
			t.Errorf("the kernel may keep a kept answer for %v more", d)
		}
		time.Sleep(time.Second)
		if _, _, ok := c.Get("d"); ok {
			t.Error("a directory is kept for longer than the kernel may")
		}
		c.Keep(dir("d"), c.At("d"))
		c.event(t.Context(), &admin.Event{Kind: admin.EventChanged, Path: "d"}, tr)
		if _, _, ok := c.Get("d"); ok {
			t.Error("a directory is kept whose attributes have changed")
		}
		for i := range maxEntries + 1 {
			p := string(rune(i))
			c.Keep(dir(p), c.At(p))
		}
		if n := len(c.mu.entries); n > maxEntries {
			t.Errorf("%d entries are kept", n)
		}
	})
}

// TestCommitted closes a file of this mount. The event of the close may come before or after the close's answer.
func TestCommitted(t *testing.T) {
	own := &admin.Event{Kind: admin.EventCommitted, Path: "f", Generation: 3, Bytes: 4}
	for _, x := range []struct {
		what          string
		before, after *admin.Event
		left          time.Duration // 0: not kept
	}{
		{"no event yet", nil, nil, Short},
		{"its event", nil, own, Long},
		{"its event, early", own, nil, Long},
		{"another's close", nil, &admin.Event{Kind: admin.EventCommitted, Path: "f", Generation: 3, Bytes: 5}, 0},
		{"another's close, early", &admin.Event{Kind: admin.EventCommitted, Path: "f", Generation: 2, Bytes: 4}, nil, 0},
		{"its event and a removal", own, &admin.Event{Kind: admin.EventRemoved, Path: "f"}, 0},
		{"missed events", &admin.Event{Kind: admin.EventMissed}, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, tr := running()
			at := c.At("f")
			if x.before != nil {
				c.event(t.Context(), x.before, tr)
			}
			c.Committed(file("f", 3, 4), at)
			if x.after != nil {
				c.event(t.Context(), x.after, tr)
			}
			if _, left, ok := c.Get("f"); ok != (x.left > 0) || left != x.left {
				t.Errorf("%s: kept %v, for %v, not %v", x.what, ok, left, x.left)
			}
			if x.after == own && len(tr.dropped) > 0 {
				t.Errorf("the kernel drops attributes that are right: %q", tr.dropped)
			}
		})
	}
}

// TestRun breaks the stream. Answers are kept long while it holds.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		c, tr, broken := New(), &tree{}, make(chan struct{})
		streams := 0
		watch := func(ctx context.Context, ready func()) iter.Seq2[admin.Event, error] {
			return func(yield func(admin.Event, error) bool) {
				streams++
				ready()
				select {
				case <-broken:
				case <-ctx.Done():
				}
				yield(admin.Event{}, bb.Unavailable)
			}
		}
		go c.Run(ctx, watch, tr)
		attr := func() time.Duration {
			synctest.Wait()
			return c.Attributes(file("f", 1, 1), c.At("f"))
		}
		if d := attr(); d != Long {
			t.Errorf("kept for %v while the stream holds", d)
		}
		broken <- struct{}{}
		if d := attr(); d != Short || !slices.Equal(tr.dropped, []string{"all of "}) {
			t.Errorf("kept for %v when it is broken; dropped: %q", d, tr.dropped)
		}
		time.Sleep(again)
		if d := attr(); d != Long || streams != 2 {
			t.Errorf("kept for %v by the next stream, of %d", d, streams)
		}
		stop()
		synctest.Wait()
	})
}
