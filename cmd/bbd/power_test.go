package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
	"forebay/internal/powertest"
)

// seeds is the number of seeds that a test tries, unless FOREBAY_SEEDS is set.
func seeds(few int) uint64 {
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_SEEDS")); err == nil {
		return uint64(n)
	}
	return uint64(few)
}

// spiller writes files that belong on the disk tier.
type spiller struct {
	past *durabletest.History
	b    *client.Buffer
	ids  uint64
	all  map[string]bool
}

// piece writes and commits a range of a file, and returns the content then.
func (s *spiller) piece(f *client.File, op durabletest.Op, name string, was durabletest.Content, off, size int) (durabletest.Content, error) {
	s.ids++
	s.all[name] = true
	now := was.With(s.ids, off, size)
	ended := s.past.Begin(durabletest.Event{Op: op, Changes: []durabletest.Change{{Path: name, Version: durabletest.Of(now.Bytes())}}})
	p := make([]byte, size)
	durabletest.Fill(p, s.ids, off)
	if _, err := f.WriteAt(p, int64(off)); err != nil {
		return was, err
	}
	commit := f.Sync
	if op == durabletest.Close {
		commit = f.Close
	}
	if err := commit(); err != nil {
		return was, err
	}
	ended(durabletest.Done)
	return now, nil
}

func (s *spiller) put(ctx context.Context, name string, size int) error {
	f, err := s.b.Create(ctx, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	_, err = s.piece(f, durabletest.Close, name, durabletest.Content{}, 0, size)
	return err
}

// run writes files and closes them, some of them twice, and one that stays open, with later pieces
// over earlier ones.
func (s *spiller) run(ctx context.Context, spilled func()) error {
	const mib = 1 << 20
	open, err := s.b.Create(ctx, "open")
	if err != nil {
		return err
	}
	defer open.Abort()
	var c durabletest.Content
	for i := range 6 {
		if err := s.put(ctx, fmt.Sprintf("f%d", i), 3*mib+i); err != nil {
			return err
		}
		if c, err = s.piece(open, durabletest.Sync, "open", c, i*mib, mib); err != nil {
			return err
		}
	}
	spilled()
	if _, err = s.piece(open, durabletest.Sync, "open", c, 2*mib+100, mib); err != nil {
		return err
	}
	for i := range 3 {
		if err := s.put(ctx, fmt.Sprintf("f%d", i), 2*mib+i); err != nil {
			return err
		}
	}
	return nil
}

const spillConfig = `
listen: {admin: "127.0.0.1:0"}
memory: {size: 128MiB, region_size: 64MiB}
disk: {dir: "{{.Dir}}/disk", size: 256MiB}
`

// TestPowerCutOfDiskTier: the node loses power while files go to its disk tier, which then holds
// some of the unsynced writes. Each file read afterwards has its last acknowledged bytes, or is
// named lost. Nothing is lost that had been spilled for long.
func TestPowerCutOfDiskTier(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	steps := 0
	for seed := range seeds(8) {
		cut := -1
		if seed > 0 { // the first life is whole, and gives the number of steps
			cut = rand.New(rand.NewPCG(seed, 0)).IntN(max(1, steps))
		}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			n := powerCutOfDiskTier(t, seed, cut)
			steps = max(steps, n)
		})
	}
	if steps < 20 {
		t.Errorf("%d steps: nothing was spilled", steps)
	}
}

func powerCutOfDiskTier(t *testing.T, seed uint64, cut int) (steps int) {
	t.Helper()
	d := bbdtest.New(t)
	d.Config = spillConfig
	remote := byMessages(t, d)
	disk := filepath.Join(d.Dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	f := powertest.Mount(t, disk)
	d.Start()
	ctx := t.Context()
	c := dial(t, d)
	spec := admin.BufferSpec{Name: "spill", Mode: 0o755, Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}}}
	if _, err := admin.CreateBuffer(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	if cut >= 0 {
		f.CutAfter(cut)
	}
	s := &spiller{past: durabletest.NewHistory(), b: c.Buffer("spill"), all: map[string]bool{}}
	err := s.run(ctx, func() { awaitSpilled(t, d, c, f, cut) })
	if err != nil && !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrCancelled) {
		t.Errorf("writing: %v", err)
	}
	if cut < 0 {
		awaitSpilled(t, d, c, f, cut)
	}
	story := f.Steps()
	f.Cut()
	d.Crash()
	c.Close()
	s.past.Over()
	s.past.Fault(durabletest.Event{Takes: durabletest.InMemory})
	f.Restart(seed)
	d.Start()
	c = dial(t, d)
	o := durabletest.Observation{Begin: s.past.Now(), Files: map[string]durabletest.Found{}, Lost: lostFiles(t, c, "spill")}
	there, b := 0, remote().Buffer("spill")
	for name := range s.all {
		o.Files[name], _ = seen(ctx, b, name)
		if o.Files[name].Version.There {
			there++
		}
	}
	broken(t, s.past.Observe(o), fmt.Sprintf("after %d of the steps", len(story)))
	t.Logf("cut after %d steps: %d files there, %d lost", len(story), there, len(o.Lost))
	if cut < 0 && there < 3 {
		t.Errorf("of %d files only %d are there, and all had been spilled", len(s.all), there)
	}
	return len(story)
}

// byMessages lets a daemon that is not started yet serve TCP, and returns a function that connects
// to it so that bytes come in messages. This process serves the disk. A mapped region on it would
// be read by a fault that only this process answers, and a garbage collection that begins meanwhile
// waits for the fault, with everything else.
func byMessages(t *testing.T, d *bbdtest.Daemon) func() *client.Client {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := bbdtest.FreePort(t, "127.0.0.1")
	d.Config += fmt.Sprintf("key_file: %q\n", key)
	d.Config = strings.Replace(d.Config, "listen: {", fmt.Sprintf("listen: {tcp: %q, fabric: off, ", address), 1)
	return func() *client.Client {
		t.Helper()
		c, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + address, KeyFile: key, RetryFor: -1})
		if err != nil {
			t.Fatalf("%v\n%s", err, d.Log())
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func lostFiles(t *testing.T, c *client.Client, buffer string) (paths []string) {
	t.Helper()
	lost, err := c.Buffer(buffer).Lost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range lost {
		paths = append(paths, e.Path)
	}
	return paths
}

// awaitSpilled waits until the disk tier has something that stays as it is, or until the
// cut.
func awaitSpilled(t *testing.T, d *bbdtest.Daemon, c *client.Client, f *powertest.FS, cut int) {
	t.Helper()
	before := -1
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		steps := len(f.Steps())
		if cut >= 0 && steps >= cut {
			return
		}
		select {
		case <-d.Ended():
			return
		default:
		}
		if used := statusOf(t, c).Disk.Live; used > 0 && steps == before {
			return
		}
		before = steps
		if time.Now().After(deadline) {
			t.Errorf("after 20 s the disk tier has %d bytes, after %d steps", statusOf(t, c).Disk.Live, steps)
			return
		}
	}
}

// TestPowerCutAfterRemoval: a file of the disk tier that was removed, or replaced, before the node lost
// power is not there afterwards, although the disk may have lost unsynced writes.
func TestPowerCutAfterRemoval(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	t.Parallel()
	d := bbdtest.New(t)
	d.Config = spillConfig
	disk := filepath.Join(d.Dir, "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	f := powertest.Mount(t, disk)
	d.Start()
	ctx := t.Context()
	c := dial(t, d)
	spec := admin.BufferSpec{Name: "spill", Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}}}
	if _, err := admin.CreateBuffer(ctx, c, spec); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("spill")
	s := &spiller{past: durabletest.NewHistory(), b: b, all: map[string]bool{}}
	if err := b.Mkdir(ctx, "d", 0o755); err != nil {
		t.Fatal(err)
	}
	names := []string{"removed", "d/removed", "again", "moved", "kept", "replaced", "filler"}
	for i, name := range names {
		if err := s.put(ctx, name, 3<<20+i); err != nil {
			t.Fatal(err)
		}
	}
	// The last file may stay in memory, since its segment is not full.
	for deadline := time.Now().Add(2 * time.Minute); statusOf(t, c).Disk.Live < 5*3<<20; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the disk tier has %d bytes", statusOf(t, c).Disk.Live)
		}
	}
	if err := errors.Join(b.Remove(ctx, "removed"), b.RemoveAll(ctx, "d"), b.Rename(ctx, "moved", "replaced")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Remove(ctx, "again"), b.WriteFile(ctx, "again", []byte("new"), 0o644), b.Mkdir(ctx, "d", 0o755)); err != nil {
		t.Fatal(err)
	}
	f.Cut()
	d.Crash()
	c.Close()
	f.Restart(1)
	d.Start()
	c = dial(t, d)
	b = c.Buffer("spill")
	found := map[string]int64{}
	for e, err := range b.Walk(ctx, "") {
		if err != nil {
			t.Fatal(err)
		}
		found[e.Path] = e.Size
		if strings.HasPrefix(e.Path, ".lost+found/") {
			t.Errorf("%s, %d bytes, has come back", e.Path, e.Size)
		}
	}
	for name, want := range map[string]int64{"removed": -1, "d/removed": -1, "moved": -1, "again": 3, "replaced": 3<<20 + 3, "kept": 3<<20 + 4} {
		if size, there := found[name]; there && size != want || !there && want >= 0 {
			t.Errorf("%s: %d bytes, there: %v; want %d", name, size, there, want)
		}
	}
}
