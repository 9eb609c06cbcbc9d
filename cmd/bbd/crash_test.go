package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
	"forebay/internal/durabletest"
)

// The daemon is killed at random moments while clients write, sync, rename, remove and the flusher
// works. After each restart every acknowledged byte is there, unacknowledged changes are there
// whole or not at all, and the store holds only whole versions, and some version of each earlier
// object. At the end everything is drained, and the store equals the buffer. internal/durabletest
// judges all of it.

const (
	crashClients = 8
	crashKills   = 80       // or FOREBAY_KILLS
	crashFiles   = 12       // names of each client
	crashMemory  = "128MiB" // so that files are evicted, too, and come back
)

// crasher is one client with its expected state.
type crasher struct {
	buffer string
	dir    string
	rng    *rand.Rand
	id     uint64 // of the last write
	past   *durabletest.History
	keeps  durabletest.Level // faults that closed and renamed files outlive

	files map[string]durabletest.Content                      // acknowledged
	maybe map[durabletest.Version]durabletest.Content         // operations begun since the last check
	found func(name string, begin int64, f durabletest.Found) // result of a read
	ops   map[string]int

	failure error // that a killed daemon does not explain
}

func newCrasher(t *testing.T, i int, past *durabletest.History) *crasher {
	return &crasher{
		dir: fmt.Sprintf("w%d", i), rng: rand.New(rand.NewPCG(uint64(i), 7)), id: uint64(i+1) << 40, past: past,
		files: map[string]durabletest.Content{}, maybe: map[durabletest.Version]durabletest.Content{}, ops: map[string]int{},
		found: func(name string, begin int64, f durabletest.Found) {
			broken(t, past.Observe(durabletest.Observation{Begin: begin, Files: map[string]durabletest.Found{name: f}}), "a read")
		},
	}
}

func (c *crasher) name() string { return fmt.Sprintf("%s/f%d", c.dir, c.rng.IntN(crashFiles)) }

func (c *crasher) size() int {
	switch c.rng.IntN(4) {
	case 0:
		return 1 + c.rng.IntN(100)
	case 1:
		return 1 + c.rng.IntN(8<<10)
	case 2:
		return 1 + c.rng.IntN(100<<10)
	default:
		return 1 + c.rng.IntN(1<<20)
	}
}

func (c *crasher) counts() map[string]int { return c.ops }

func (c *crasher) run(ctx context.Context, d *client.Client) {
	b := d.Buffer(c.buffer)
	for ctx.Err() == nil {
		op, do := "write", c.write
		switch n := c.rng.IntN(10); {
		case n < 2:
			op, do = "append", c.append
		case n < 3:
			op, do = "overwrite", c.overwrite
		case n < 5:
			op, do = "rename", c.rename
		case n < 6:
			op, do = "remove", c.remove
		case n < 8:
			op, do = "read", c.read
		}
		if err := do(ctx, b); err != nil {
			return
		}
		c.ops[op]++
	}
}

// next is a content after one more write.
func (c *crasher) next(v durabletest.Content, off, size int) (durabletest.Content, []byte) {
	c.id++
	p := make([]byte, size)
	durabletest.Fill(p, c.id, off)
	return v.With(c.id, off, size), p
}

// commit commits a content under a name, and records it.
func (c *crasher) commit(op durabletest.Op, name string, v durabletest.Content, do func() error) error {
	version := durabletest.Of(v.Bytes())
	c.maybe[version] = v
	e := durabletest.Event{Op: op, Changes: []durabletest.Change{{Path: name, Version: version}}}
	if op == durabletest.Close {
		e.Keeps = c.keeps
	}
	ended := c.past.Begin(e)
	if err := do(); err != nil {
		return c.unexpected(string(op)+" "+name, err)
	}
	ended(durabletest.Done)
	c.files[name] = v
	return nil
}

// write replaces a file: create, write, close.
func (c *crasher) write(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	v, p := c.next(durabletest.Content{}, 0, c.size())
	return c.commit(durabletest.Close, name, v, func() error {
		f, err := b.Create(ctx, name)
		if err != nil {
			return err
		}
		if _, err := f.Write(p); err != nil {
			f.Abort()
			return err
		}
		return f.Close()
	})
}

// append adds to a file in several synced steps.
func (c *crasher) append(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	v := c.files[name]
	if v.Size() > 4<<20 {
		return nil
	}
	f, err := b.OpenFile(ctx, name, client.OpenOptions{Write: true, Create: true, Append: true})
	if err != nil {
		return c.unexpected("open "+name, err)
	}
	defer f.Abort()
	for range 1 + c.rng.IntN(4) {
		var p []byte
		v, p = c.next(v, v.Size(), 1+c.rng.IntN(16<<10))
		err := c.commit(durabletest.Sync, name, v, func() error {
			if _, err := f.Write(p); err != nil {
				return err
			}
			return f.Sync()
		})
		if err != nil {
			return err
		}
	}
	return f.Close() // it commits nothing new
}

// overwrite changes bytes in the middle of a file, and closes it.
func (c *crasher) overwrite(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	old, is := c.files[name]
	if !is {
		return nil
	}
	f, err := b.OpenFile(ctx, name, client.OpenOptions{Write: true})
	if err != nil {
		return c.unexpected("open "+name, err)
	}
	defer f.Abort()
	off := c.rng.IntN(old.Size())
	v, p := c.next(old, off, 1+c.rng.IntN(old.Size()-off))
	return c.commit(durabletest.Close, name, v, func() error {
		if _, err := f.WriteAt(p, int64(off)); err != nil {
			return err
		}
		return f.Close()
	})
}

func (c *crasher) rename(ctx context.Context, b *client.Buffer) error {
	from, to := c.name(), c.name()
	v, is := c.files[from]
	if !is || from == to {
		return nil
	}
	version := durabletest.Of(v.Bytes())
	c.maybe[version] = v
	ended := c.past.Begin(durabletest.Event{Op: durabletest.Rename, Keeps: c.keeps, Changes: []durabletest.Change{{Path: from}, {Path: to, Version: version}}})
	if err := b.Rename(ctx, from, to); err != nil {
		return c.unexpected("rename "+from+" "+to, err)
	}
	ended(durabletest.Done)
	delete(c.files, from)
	c.files[to] = v
	return nil
}

func (c *crasher) remove(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	if _, is := c.files[name]; !is {
		return nil
	}
	ended := c.past.Begin(durabletest.Event{Op: durabletest.Remove, Changes: []durabletest.Change{{Path: name}}})
	if err := b.Remove(ctx, name); err != nil {
		return c.unexpected("remove "+name, err)
	}
	ended(durabletest.Done)
	delete(c.files, name)
	return nil
}

func (c *crasher) read(ctx context.Context, b *client.Buffer) error {
	name, begin := c.name(), c.past.Now()
	f, err := seen(ctx, b, name)
	if err == nil {
		c.found(name, begin, f)
	}
	return c.unexpected("read "+name, err)
}

// unexpected notes errors that a killed daemon does not explain.
func (c *crasher) unexpected(what string, err error) error {
	if err != nil && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrCancelled) {
		c.failure = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// look also finds the outcomes of unacknowledged operations.
func (c *crasher) look(ctx context.Context, b *client.Buffer, all map[string]durabletest.Found) error {
	if c.failure != nil {
		return c.failure
	}
	for i := range crashFiles {
		name := fmt.Sprintf("%s/f%d", c.dir, i)
		f, _ := seen(ctx, b, name) // an error is among the findings
		all[name] = f
		old, is := c.files[name]
		switch now, known := c.maybe[f.Version]; {
		case !f.Version.There:
			delete(c.files, name)
		case is && durabletest.Of(old.Bytes()) == f.Version:
		case known:
			c.files[name] = now
		default:
			return fmt.Errorf("%s after a restart holds %v, which nobody has begun to write: %s", name, f.Version, f.Text)
		}
	}
	clear(c.maybe)
	return nil
}

func TestDaemonKilled(t *testing.T) { daemonKilled(t, crashKillsAsked()/2, withBuckets...) }

// TestDaemonKilledWithLog is TestDaemonKilled of a namespace that is a log.
func TestDaemonKilledWithLog(t *testing.T) { daemonKilled(t, crashKillsAsked(), withLog...) }

// withLog and withBuckets are the arguments of a daemon whose new buffers have a namespace of that engine.
var (
	withLog     = []string{"--namespace-engine", "log"}
	withBuckets = []string{"--namespace-engine", "buckets"}
)

func daemonKilled(t *testing.T, kills int, args ...string) {
	d := bbdtest.Start(t, append(args, "--memory", crashMemory)...)
	r := crashRounds(t, d, crashClients, func(i int) *rand.Rand { return rand.New(rand.NewPCG(uint64(i), 7)) })
	r.stages(t.TempDir(), 0, rand.New(rand.NewPCG(5, 6)))
	rng := rand.New(rand.NewPCG(1, 2))
	for kill := range kills {
		r.work(t, func() { killAfter(d, time.Duration(5+rng.IntN(120))*time.Millisecond) })
		r.judge(t, durabletest.Event{}, d.Start, fmt.Sprintf("after kill %d", kill+1))
	}
	r.drained(t)
	r.stagedWhole(t)
	// A loaded machine does fewer between two kills.
	done := r.enough(t, kills/4, "write", "append", "overwrite", "rename", "remove", "read")
	if n := done["stage-out"] + done["stage-out without some"]; n < kills/25 {
		t.Errorf("only %d of stage-out: the test does not test", n)
	}
}

// TestFoundOpenIsYounger: the entry of an open file has the time of its first commit. A file that
// is found open after a crash gets another one, since its bytes may be others.
func TestFoundOpenIsYounger(t *testing.T) {
	d := bbdtest.Start(t, "--memory", crashMemory)
	c := dial(t, d)
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	w, err := c.Buffer("b").Create(t.Context(), "f")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	var first time.Time
	for _, content := range []string{"older", "newer"} {
		if _, err := w.WriteAt([]byte(content), 0); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		if first.IsZero() {
			first = stat(t, c, "f").ModTime
		}
	}
	d.Kill()
	d.Start()
	c = dial(t, d)
	if report, err := admin.Drain(t.Context(), c, "b", drainTime, nil); err != nil {
		t.Fatalf("%v: %+v", err, report)
	}
	if now := stat(t, c, "f").ModTime; now.Equal(first) {
		t.Errorf("the file has the time %v, which it had with other bytes", now)
	}
	if p, err := c.Buffer("b").ReadFile(t.Context(), "f"); err != nil || string(p) != "newer" {
		t.Errorf("the file holds %q (%v)", p, err)
	}
}

// TestOpenAndFlushedAtACrash: the daemon is killed when it has put a file that was opened for
// writing again, and has not recorded it. The object goes with the file's name. No attempt is
// recorded here either, so a buffer that keeps unknown objects would leave it.
func TestOpenAndFlushedAtACrash(t *testing.T) {
	for _, then := range []string{"remove", "rename"} {
		t.Run(then, func(t *testing.T) {
			d, store := bbdtest.Start(t, "--memory", crashMemory), t.TempDir()
			c := dial(t, d)
			if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Backing: "file://" + store, Existing: admin.ExistingOverwrite}); err != nil {
				t.Fatal(err)
			}
			w, err := c.Buffer("b").Create(t.Context(), "f")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Abort()
			if _, err := w.Write([]byte("content")); err != nil {
				t.Fatal(err)
			}
			if err := w.Sync(); err != nil {
				t.Fatal(err)
			}
			d.Kill()
			if err := os.WriteFile(filepath.Join(store, "f"), []byte("cont"), 0o600); err != nil { // as its flusher would have
				t.Fatal(err)
			}
			d.Start()
			c = dial(t, d)
			want := map[string][]byte{}
			if then == "remove" {
				err = c.Buffer("b").Remove(t.Context(), "f")
			} else {
				err = c.Buffer("b").Rename(t.Context(), "f", "g")
				want["g"] = []byte("content")
			}
			if err != nil {
				t.Fatal(err)
			}
			if report, err := admin.Drain(t.Context(), c, "b", drainTime, nil); err != nil {
				t.Fatalf("%v: %+v", err, report)
			}
			if got := tree(t, store); !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("the store holds %q, want %q", got, want)
			}
		})
	}
}

func stat(t *testing.T, c *client.Client, path string) client.Entry {
	t.Helper()
	e, err := c.Buffer("b").Stat(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// crashRounds returns rounds of crashers in a new buffer of a daemon, with a store of its own.
func crashRounds(t *testing.T, d *bbdtest.Daemon, clients int, rng func(i int) *rand.Rand) *rounds {
	t.Helper()
	r := newRounds(t, d)
	crashers := make([]*crasher, clients)
	for i := range crashers {
		crashers[i] = newCrasher(t, i, r.past)
		crashers[i].rng = rng(i)
		r.workers = append(r.workers, crashers[i])
	}
	r.make(t, admin.BufferSpec{Backing: "file://" + r.root}, crashers)
	return r
}

func killAfter(d *bbdtest.Daemon, after time.Duration) {
	time.Sleep(after)
	d.Kill()
}

func crashKillsAsked() int {
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		return n
	}
	if testing.Short() {
		return 15
	}
	return crashKills
}

func dial(t *testing.T, d *bbdtest.Daemon) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket, RetryFor: -1})
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func tree(t *testing.T, root string) map[string][]byte {
	t.Helper()
	files, err := clustertest.StoreFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	return files
}
