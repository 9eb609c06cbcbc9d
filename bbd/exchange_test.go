package bbd_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/meta"
)

// exchanged is a pair of names, "a" and "b", as it is made before an exchange: files, and what directories hold.
type exchanged struct {
	flushed, dirty map[string]string // contents by path; "/": an empty directory
}

var exchangedPairs = map[string]exchanged{
	"files":                    {flushed: map[string]string{"a": "A", "b": "B"}},
	"a rewritten file":         {flushed: map[string]string{"a": "old", "b": "B"}, dirty: map[string]string{"a": "A"}},
	"a flushed and a new file": {flushed: map[string]string{"b": "B"}, dirty: map[string]string{"a": "A"}},
	"a file and a directory":   {flushed: map[string]string{"a": "A", "b/f": "B", "b/d/g": "C"}},
	"a new file and directory": {flushed: map[string]string{"b/f": "B", "b/d/g": "C"}, dirty: map[string]string{"a": "A", "b/new": "D"}},
	"directories":              {flushed: map[string]string{"a/f": "A", "a/x/f": "X", "b/f": "B", "b/d/g": "C", "b/h": "A"}},
}

func (p *exchanged) write(t *testing.T, b *client.Buffer, contents map[string]string) {
	t.Helper()
	for path, content := range contents {
		if err := b.MkdirAll(t.Context(), filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, b, path, []byte(content))
	}
}

// after returns the contents by path once the names were exchanged.
func (p *exchanged) after() map[string]string {
	want := map[string]string{}
	for _, contents := range []map[string]string{p.flushed, p.dirty} {
		for path, content := range contents {
			want[map[byte]string{'a': "b", 'b': "a"}[path[0]]+path[1:]] = content
		}
	}
	return want
}

// wantExchanged checks a buffer, and its store after a drain.
func wantExchanged(t *testing.T, c *client.Client, b *client.Buffer, dir string, want map[string]string) {
	t.Helper()
	for path, content := range want {
		wantFile(t, b, path, []byte(content))
	}
	drain(t, c, b.Name())
	for path, content := range want {
		wantStored(t, dir, path, []byte(content))
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, dir+"/")
		if _, is := want[name]; err == nil && !d.IsDir() && !is {
			t.Errorf("the store has %s besides", name)
		}
		if err == nil && strings.Contains(name, "exchange") {
			t.Errorf("the store has %s left", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestExchangeCutShort: the daemon ends at each step of an exchange on the store, before it and after it, and its next life
// finishes the exchange.
func TestExchangeCutShort(t *testing.T) {
	if testing.Short() {
		t.Skip("72 daemons are restarted")
	}
	eachEngine(t, func(t *testing.T, n *node) {
		for what, pair := range exchangedPairs {
			for step := range 3 {
				for _, kind := range []fault.Kind{fault.Refused, fault.Reset} {
					t.Run(fmt.Sprintf("%s, %s at %d", what, kind, step), func(t *testing.T) {
						c := n.dial()
						name := strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprintf("%.10s-%s-%d", what, kind, step))
						b, dir := n.buffer(c, admin.BufferSpec{Name: name})
						pair.write(t, b, pair.flushed)
						drain(t, c, name)
						pair.write(t, b, pair.dirty)
						hits := n.faults.Hits()
						n.faults.Set(fault.Rule{Op: "rename", Skip: step, Kind: kind})
						if err := b.Exchange(t.Context(), "a", "b"); err != nil {
							t.Fatal(err)
						}
						eventually(t, "the exchange ends or is cut short", func() bool {
							pending := 0
							for _, s := range n.status().Buffers {
								pending += s.StoreOps
							}
							return pending == 0 || n.faults.Hits() > hits
						})
						c.Close()
						n.stop()
						n.faults.Set()
						n.start()
						c = n.dial()
						wantExchanged(t, c, c.Buffer(name), dir, pair.after())
						if err := admin.DiscardBuffer(t.Context(), c, name); err != nil {
							t.Error(err)
						}
					})
				}
			}
		}
	})
}

// TestExchange: each kind of pair changes names, again and again, with a memory that is lost afterwards.
func TestExchange(t *testing.T) {
	eachEngine(t, func(t *testing.T, n *node) {
		c := n.dial()
		stores := map[string]string{}
		for what, pair := range exchangedPairs {
			b, dir := n.buffer(c, admin.BufferSpec{Name: strings.ReplaceAll(what, " ", "-")})
			stores[b.Name()] = dir
			pair.write(t, b, pair.flushed)
			drain(t, c, b.Name())
			pair.write(t, b, pair.dirty)
			for range 3 {
				if err := b.Exchange(t.Context(), "a", "b"); err != nil {
					t.Fatal(err)
				}
			}
			wantExchanged(t, c, b, dir, pair.after())
		}
		n.loseMemory()
		c = n.dial()
		for what, pair := range exchangedPairs {
			name := strings.ReplaceAll(what, " ", "-")
			wantExchanged(t, c, c.Buffer(name), stores[name], pair.after())
		}
	})
}

// TestExchangeRefused: exchanges that cannot be, and one that is repeated.
func TestExchangeRefused(t *testing.T) {
	eachEngine(t, func(t *testing.T, n *node) {
		b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
		ctx := t.Context()
		pair := exchangedPairs["directories"]
		pair.write(t, b, pair.flushed)
		for _, c := range []struct {
			from, to string
			want     error
		}{{"a", "none", client.ErrNotFound}, {"none", "a", client.ErrNotFound}, {"a", "a/x/f", client.ErrInvalid}, {"a/x", "a", client.ErrInvalid}, {"", "a", client.ErrInvalid}, {"a/f", "a/f", nil}} {
			if err := b.Exchange(ctx, c.from, c.to); !errors.Is(err, c.want) {
				t.Errorf("%s with %s: %v, want %v", c.from, c.to, err, c.want)
			}
		}
		a, err := b.Stat(ctx, "a")
		other, otherErr := b.Stat(ctx, "b/f")
		if err := errors.Join(err, otherErr); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := b.ExchangeEntries(ctx, &a, &other); err != nil {
				t.Fatal(err)
			}
			wantFile(t, b, "a", []byte("B"))
			wantFile(t, b, "b/f/x/f", []byte("X"))
		}
		write(t, b, "new", nil)
		if err := b.Rename(ctx, "new", "a"); err != nil {
			t.Fatal(err)
		}
		if err := b.ExchangeEntries(ctx, &a, &other); !errors.Is(err, client.ErrBusy) {
			t.Errorf("with a file that was replaced: %v", err)
		}
	})
}

// TestExchangeOpenFiles: files that are being written and read keep their contents under the other name.
func TestExchangeOpenFiles(t *testing.T) {
	eachEngine(t, func(t *testing.T, n *node) {
		c, ctx := n.dial(), t.Context()
		b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
		write(t, b, "b", []byte("B"))
		drain(t, c, "b")
		reader, err := b.Open(ctx, "b")
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		var writers [2]*client.File
		for i, name := range []string{"a", "b"} {
			if writers[i], err = b.Create(ctx, name); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(writers[i], name)
			if err := writers[i].Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Exchange(ctx, "a", "b"); err != nil {
			t.Fatal(err)
		}
		for _, f := range writers {
			fmt.Fprint(f, " and more")
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		old := make([]byte, 1)
		if _, err := reader.ReadAt(old, 0); err != nil || string(old) != "B" {
			t.Errorf("the reader gets %q (%v)", old, err)
		}
		wantExchanged(t, c, b, dir, map[string]string{"a": "b and more", "b": "a and more"})
	})
}

// TestExchangesMeetFlushes: files that are rewritten, flushed and exchanged all the time end on the store under the names
// that they have.
func TestExchangesMeetFlushes(t *testing.T) {
	t.Parallel()
	for _, engine := range []meta.Engine{meta.EngineBuckets, meta.EngineLog} {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			n := startNode(t, func(c *bbd.Config) { c.Flush.Idle, c.Meta.Engine = -1, engine })
			c := n.dial()
			b, dir := n.buffer(c, admin.BufferSpec{Name: "b"})
			var mu sync.Mutex
			want := map[string]string{}
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() {
					x, y := fmt.Sprint("x", w), fmt.Sprint("y", w)
					at := map[string]string{}
					for i := range 40 {
						for _, name := range []string{x, y} {
							if i == 0 || i%3 == 0 && name == x {
								at[name] = fmt.Sprint(name, " ", i)
								if err := b.WriteFile(t.Context(), name, []byte(at[name]), 0o644); err != nil {
									t.Error(err)
								}
							}
						}
						if err := b.Exchange(t.Context(), x, y); err != nil {
							t.Error(err)
						}
						at[x], at[y] = at[y], at[x]
					}
					mu.Lock()
					defer mu.Unlock()
					want[x], want[y] = at[x], at[y]
				})
			}
			wg.Wait()
			wantExchanged(t, c, b, dir, want)
		})
	}
}

// TestClusterExchange: two files of two owners, both of them being written, change names at either daemon's request, and so do
// a file of the other node and a directory.
func TestClusterExchange(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, time.Minute)
	at := map[string]*client.File{}
	for name, of := range map[string]*client.Buffer{"a": b, "b": there, "x": there, "d/f": b} {
		if err := of.MkdirAll(ctx, filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := of.Create(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, name)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		at[name] = f
	}
	for i := range 5 {
		of := []*client.Buffer{b, there}[i%2]
		names := [][]string{{"a", "b"}, {"b", "a"}}[i/2%2]
		if err := of.Exchange(ctx, names[0], names[1]); err != nil {
			t.Fatal(err)
		}
		if err := of.Exchange(ctx, "x", "d"); err != nil {
			t.Fatal(err)
		}
		for _, f := range at {
			fmt.Fprint(f, i)
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range at {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	want := map[string]string{"a": "b01234", "b": "a01234", "d": "x01234", "x/f": "d/f01234"}
	wantExchanged(t, c, there, dir, want)
	wantExchanged(t, c, b, dir, want)
}

// TestClusterExchangesMeet: two daemons exchange the names of files of both again and again, in every order.
func TestClusterExchangesMeet(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, time.Minute)
	names := []string{"a", "b", "c"}
	for i, name := range names {
		write(t, []*client.Buffer{b, there, b}[i], name, []byte(name))
	}
	var wg sync.WaitGroup
	for w := range 4 {
		of := []*client.Buffer{b, there}[w%2]
		wg.Go(func() {
			for i := range 15 {
				if err := of.Exchange(ctx, names[(w+i)%3], names[(w+2*i+1)%3]); err != nil {
					t.Errorf("%d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	want := map[string]string{}
	left := map[string]bool{"a": true, "b": true, "c": true}
	for _, name := range names {
		got, err := b.ReadFile(ctx, name)
		if err != nil || !left[string(got)] {
			t.Errorf("%s has %q (%v)", name, got, err)
		}
		delete(left, string(got))
		want[name] = string(got)
	}
	wantExchanged(t, c, there, dir, want)
}

// TestClusterExchangeAfterItsWait: an exchange is made when the owner of the other file does not wait for it any more, since
// their session has broken. The owner finds its file all the same.
func TestClusterExchangeAfterItsWait(t *testing.T) {
	if testing.Short() {
		t.Skip("an owner waits for seconds")
	}
	t.Parallel()
	var hold messageHold
	nodes := startClusterWith(t, 2, func(c *bbd.Config) {
		c.Meta.Engine, c.Meta.InProcess = meta.EngineLog, heldServer{c.Meta.InProcess, &hold}
		c.Limits.Silence = 2 * time.Second
	})
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	ctx := limited(t, time.Minute)
	for _, n := range nodes { // nothing but the exchange has both names
		defer n.daemon.PauseFlushes("shared")()
	}
	write(t, b, "y-late", []byte("here")) // the owner of the higher one exchanges them
	f := open(t, there, "x-late", []byte("there"))
	held, release := hold.arm("y-late", "x-late")
	defer release()
	answer := make(chan error, 1)
	go func() { answer <- b.Exchange(ctx, "y-late", "x-late") }()
	<-held
	nodes[0].daemon.BreakSessions("n2")
	fmt.Fprint(f, " and")
	if err := f.Sync(); err != nil { // the file rests until the wait is over
		t.Error(err)
	}
	release()
	if err := <-answer; err != nil {
		t.Error(err)
	}
	fmt.Fprint(f, " more")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for _, n := range nodes {
		n.daemon.PauseFlushes("shared")()
	}
	drain(t, c, "shared")
	wantFile(t, b, "y-late", []byte("there and more"))
	wantFile(t, there, "x-late", []byte("here"))
	wantStored(t, dir, "y-late", []byte("there and more"))
	wantStored(t, dir, "x-late", []byte("here"))
}

// TestClusterExchangeOutlivesItsClient: a file of another daemon rests until the namespace has made an exchange, although
// the client is gone, or the session between the daemons. So its writer meets no other file at its name.
func TestClusterExchangeOutlivesItsClient(t *testing.T) {
	t.Parallel()
	var hold messageHold
	nodes := startClusterWith(t, 2, func(c *bbd.Config) {
		c.Meta.Engine, c.Meta.InProcess = meta.EngineLog, heldServer{c.Meta.InProcess, &hold}
	})
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	for what, lose := range map[string]func(cancel func()){
		"client":  func(cancel func()) { cancel() },
		"session": func(func()) { nodes[0].daemon.BreakSessions("n2") },
	} {
		t.Run(what, func(t *testing.T) {
			ctx := limited(t, time.Minute)
			here, other := "y-"+what, "x-"+what // the owner of the higher one exchanges them
			for _, n := range nodes {           // nothing but the exchange has both names
				defer n.daemon.PauseFlushes("shared")()
			}
			write(t, b, here, []byte("here"))
			f, err := there.Create(ctx, other)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(f, "there")
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			held, release := hold.arm(here, other)
			defer release()
			asked, cancel := context.WithCancel(ctx)
			defer cancel()
			answer := make(chan error, 1)
			go func() { answer <- b.Exchange(asked, here, other) }()
			<-held
			lose(cancel)
			time.Sleep(400 * time.Millisecond) // an owner that does not wait has looked by then
			release()
			if err := <-answer; what == "session" && err != nil {
				t.Error(err)
			}
			eventually(t, "the names are exchanged", func() bool {
				got, err := b.ReadFile(ctx, other)
				return err == nil && string(got) == "here"
			})
			fmt.Fprint(f, " and more")
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			wantFile(t, b, here, []byte("there and more"))
			for _, n := range nodes {
				n.daemon.PauseFlushes("shared")()
			}
			drain(t, c, "shared")
			wantStored(t, dir, here, []byte("there and more"))
			wantStored(t, dir, other, []byte("here"))
		})
	}
}
