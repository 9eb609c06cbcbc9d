package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/internal/bbdtest"
	"forebay/internal/checksum"
	"forebay/internal/clustertest"
)

// The daemon is killed at random moments while clients write, sync, rename, remove
// and the flusher works. After each restart every acknowledged byte is there, what
// was not acknowledged is there whole or not at all, and the store holds only whole
// versions. At the end everything is drained, and the store equals the model.

const (
	crashClients = 8
	crashKills   = 200      // or FOREBAY_KILLS
	crashFiles   = 12       // names of each client
	crashMemory  = "128MiB" // so that files are evicted, too, and come back
)

// fileVersion is one content: what was written, piece by piece, each from a seed.
type fileVersion struct {
	pieces []piece
	size   int
}

type piece struct {
	seed      uint64
	off, size int
}

func (v fileVersion) with(seed uint64, off, size int) fileVersion {
	return fileVersion{append(v.pieces[:len(v.pieces):len(v.pieces)], piece{seed, off, size}), max(v.size, off+size)}
}

func (v fileVersion) bytes() []byte {
	all := make([]byte, v.size)
	for _, p := range v.pieces {
		copy(all[p.off:], clustertest.Content(p.seed, p.size))
	}
	return all
}

// crasher is one client and what it knows. A nil version is a file that is not there.
type crasher struct {
	dir  string
	rng  *rand.Rand
	seed uint64

	files    map[string]*fileVersion   // acknowledged
	maybe    map[string][]*fileVersion // names whose last operation failed: what else they may be
	versions map[uint64]bool           // checksums of all whole contents that ever could have been committed
	failure  error                     // what must not happen
	ops      map[string]int
}

func newCrasher(i int) *crasher {
	return &crasher{
		dir: fmt.Sprintf("w%d", i), rng: rand.New(rand.NewPCG(uint64(i), 7)), seed: uint64(i) << 40,
		files: map[string]*fileVersion{}, maybe: map[string][]*fileVersion{}, versions: map[uint64]bool{}, ops: map[string]int{},
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

// run works until an operation fails, as it does when the daemon is killed.
func (c *crasher) run(ctx context.Context, b *client.Buffer) {
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

func (c *crasher) next(v fileVersion, off, size int) fileVersion {
	c.seed++
	v = v.with(c.seed, off, size)
	c.versions[checksum.Sum(v.bytes())] = true
	return v
}

// write replaces a file: create, write, close.
func (c *crasher) write(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	v := c.next(fileVersion{}, 0, c.size())
	c.maybe[name] = []*fileVersion{&v}
	f, err := b.Create(ctx, name)
	if err != nil {
		return c.unexpected("create "+name, err)
	}
	if _, err := f.Write(v.bytes()); err != nil {
		f.Abort()
		return c.unexpected("write "+name, err)
	}
	if err := f.Close(); err != nil {
		return c.unexpected("close "+name, err)
	}
	c.settle(name, &v)
	return nil
}

// append adds to a file in several synced steps.
func (c *crasher) append(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	var v fileVersion
	if old := c.files[name]; old != nil {
		v = *old
	}
	if v.size > 4<<20 {
		return nil
	}
	f, err := b.OpenFile(ctx, name, client.OpenOptions{Write: true, Create: true, Append: true})
	if err != nil {
		return c.unexpected("open "+name, err)
	}
	defer f.Abort()
	for range 1 + c.rng.IntN(4) {
		size := 1 + c.rng.IntN(16<<10)
		v = c.next(v, v.size, size)
		w := v
		c.maybe[name] = []*fileVersion{&w}
		if _, err := f.Write(clustertest.Content(c.seed, size)); err != nil {
			return c.unexpected("append "+name, err)
		}
		if err := f.Sync(); err != nil {
			return c.unexpected("sync "+name, err)
		}
		c.settle(name, &w)
	}
	return f.Close() // it commits nothing new
}

// overwrite changes bytes in the middle of a file, and closes it.
func (c *crasher) overwrite(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	old := c.files[name]
	if old == nil {
		return nil
	}
	f, err := b.OpenFile(ctx, name, client.OpenOptions{Write: true})
	if err != nil {
		return c.unexpected("open "+name, err)
	}
	defer f.Abort()
	off := c.rng.IntN(old.size)
	size := 1 + c.rng.IntN(old.size-off)
	v := c.next(*old, off, size)
	c.maybe[name] = []*fileVersion{&v}
	if _, err := f.WriteAt(clustertest.Content(c.seed, size), int64(off)); err != nil {
		return c.unexpected("overwrite "+name, err)
	}
	if err := f.Close(); err != nil {
		return c.unexpected("close "+name, err)
	}
	c.settle(name, &v)
	return nil
}

func (c *crasher) rename(ctx context.Context, b *client.Buffer) error {
	from, to := c.name(), c.name()
	v := c.files[from]
	if v == nil || from == to {
		return nil
	}
	c.maybe[from], c.maybe[to] = []*fileVersion{nil}, []*fileVersion{v}
	if err := b.Rename(ctx, from, to); err != nil {
		return c.unexpected("rename "+from+" "+to, err)
	}
	c.settle(from, nil)
	c.settle(to, v)
	return nil
}

func (c *crasher) remove(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	if c.files[name] == nil {
		return nil
	}
	c.maybe[name] = []*fileVersion{nil}
	if err := b.Remove(ctx, name); err != nil {
		return c.unexpected("remove "+name, err)
	}
	c.settle(name, nil)
	return nil
}

func (c *crasher) read(ctx context.Context, b *client.Buffer) error {
	name := c.name()
	got, err := b.ReadFile(ctx, name)
	v := c.files[name]
	if v == nil {
		if err == nil {
			c.failure = fmt.Errorf("%s was read and should not be there", name)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return c.unexpected("read "+name, err)
	}
	if err != nil {
		return c.unexpected("read "+name, err)
	}
	if want := v.bytes(); checksum.Sum(got) != checksum.Sum(want) || len(got) != len(want) {
		c.failure = fmt.Errorf("%s holds %d bytes that are not the %d written", name, len(got), len(want))
	}
	return nil
}

// unexpected notes errors that a killed daemon does not explain.
func (c *crasher) unexpected(what string, err error) error {
	if !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrCancelled) {
		c.failure = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

func (c *crasher) settle(name string, v *fileVersion) {
	delete(c.maybe, name)
	if v == nil {
		delete(c.files, name)
	} else {
		c.files[name] = v
	}
}

// check compares everything with the model after a restart, and learns how the
// operations ended that had not been acknowledged.
func (c *crasher) check(ctx context.Context, b *client.Buffer) error {
	if c.failure != nil {
		return c.failure
	}
	for i := range crashFiles {
		name := fmt.Sprintf("%s/f%d", c.dir, i)
		got, err := b.ReadFile(ctx, name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s after a restart: %w", name, err)
		}
		allowed := append([]*fileVersion{c.files[name]}, c.maybe[name]...)
		found := false
		for _, v := range allowed {
			if v == nil && err != nil || v != nil && err == nil && string(v.bytes()) == string(got) {
				c.settle(name, v)
				found = true
				break
			}
		}
		if !found {
			return fmt.Errorf("%s after a restart: %d bytes (%v); %d contents are allowed: %s", name, len(got), err, len(allowed), describe(allowed))
		}
	}
	return nil
}

func describe(versions []*fileVersion) (s string) {
	for _, v := range versions {
		if v == nil {
			s += "[absent]"
		} else {
			s += fmt.Sprintf("[%d bytes]", v.size)
		}
	}
	return s
}

func TestDaemonKilled(t *testing.T) {
	kills := crashKills
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		kills = n
	}
	if testing.Short() {
		kills = 15
	}
	store := t.TempDir()
	d := bbdtest.Start(t, "--memory", crashMemory)
	ctx := t.Context()
	c := dial(t, d)
	if _, err := c.CreateBuffer(ctx, client.BufferSpec{Name: "crash", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	crashers := make([]*crasher, crashClients)
	for i := range crashers {
		crashers[i] = newCrasher(i)
		if err := c.Buffer("crash").Mkdir(ctx, crashers[i].dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	for kill := range kills {
		runUntilKilled(t, d, crashers, time.Duration(5+rng.IntN(120))*time.Millisecond)
		checkStore(t, store, crashers)
		d.Start()
		c := dial(t, d)
		for _, w := range crashers {
			if err := w.check(ctx, c.Buffer("crash")); err != nil {
				t.Fatalf("after kill %d: %v", kill+1, err)
			}
		}
		c.Close()
	}
	drained(t, d, store, crashers)
	total := map[string]int{}
	for _, w := range crashers {
		for op, n := range w.ops {
			total[op] += n
		}
	}
	t.Logf("%d kills, operations acknowledged: %v", kills, total)
	for _, op := range []string{"write", "append", "overwrite", "rename", "remove", "read"} {
		if total[op] < kills/4 { // a loaded machine does fewer between two kills
			t.Errorf("only %d of %s: the test does not test", total[op], op)
		}
	}
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

func runUntilKilled(t *testing.T, d *bbdtest.Daemon, crashers []*crasher, after time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for _, w := range crashers {
		c := dial(t, d)
		wg.Go(func() {
			defer c.Close()
			w.run(ctx, c.Buffer("crash"))
		})
	}
	time.Sleep(after)
	d.Kill()
	wg.Wait()
}

// checkStore looks for files under final names that are not whole versions.
func checkStore(t *testing.T, root string, crashers []*crasher) {
	t.Helper()
	for path, got := range tree(t, root) {
		known := false
		for _, w := range crashers {
			known = known || w.versions[checksum.Sum(got)]
		}
		if !known {
			t.Fatalf("%s in the store, %d bytes, is no version that was ever committed whole", path, len(got))
		}
	}
}

func tree(t *testing.T, root string) map[string][]byte {
	t.Helper()
	files, err := clustertest.StoreFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// drained drains the buffer and compares the store with the model, both ways.
func drained(t *testing.T, d *bbdtest.Daemon, store string, crashers []*crasher) {
	t.Helper()
	c := dial(t, d)
	report, err := c.Drain(t.Context(), "crash", time.Minute, nil)
	if err != nil {
		t.Fatalf("%v: %+v", err, report)
	}
	have := tree(t, store)
	for _, w := range crashers {
		for name, v := range w.files {
			if string(have[name]) != string(v.bytes()) {
				e, err := c.Buffer("crash").Stat(t.Context(), name)
				t.Errorf("%s in the store has %d bytes, not the %d of the buffer: %+v, %v", name, len(have[name]), v.size, e, err)
			}
			delete(have, name)
		}
	}
	for name := range have {
		t.Errorf("%s is in the store and not in the buffer", name)
	}
}
