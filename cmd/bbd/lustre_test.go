package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// lustreDir is a site's directory on Lustre, where TestStoreOfASite runs. Without one, it runs on the file
// system of temporary files.
const lustreDir = "FOREBAY_LUSTRE_DIR"

// siteDir makes a directory there, until the test ends.
func siteDir(t *testing.T) string {
	t.Helper()
	site := os.Getenv(lustreDir)
	if site == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(site, "forebay-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// site is a buffer whose store lies in a site's directory, and the expected content.
type site struct {
	t    *testing.T
	c    *client.Client
	b    *client.Buffer
	dir  string
	want map[string][]byte
}

// TestStoreOfASite goes all the way to a store and back: files of many sizes, one that several clients write together, renames
// and removals, the receipt, a stage-out and a stage-in.
func TestStoreOfASite(t *testing.T) {
	dir := siteDir(t)
	d := bbdtest.New(t)
	d.Start()
	s := &site{t: t, c: dial(t, d), dir: filepath.Join(dir, "store"), want: map[string][]byte{}}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.b = s.buffer("b", s.dir)
	s.files()
	s.shared(d)
	s.drain()
	s.receipt()
	s.change()
	s.drain()
	s.receipt()
	s.stage(filepath.Join(dir, "copy"))
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) buffer(name, dir string) *client.Buffer {
	s.t.Helper()
	_, err := admin.CreateBuffer(s.t.Context(), s.c, admin.BufferSpec{Name: name, Backing: bb.DirectoryURL(dir)})
	s.must(err)
	return s.c.Buffer(name)
}

// files writes files whose sizes lie on both sides of the bound from which they are written in
// another way, and a hundred small ones.
func (s *site) files() {
	sizes := []int{0, 1, 4095, 64 << 10, 64<<10 + 1, 1 << 20, 1<<20 + 1, 4 << 20, 5<<20 + 17, 16 << 20}
	for range 100 {
		sizes = append(sizes, 4<<10)
	}
	for i, size := range sizes {
		name := fmt.Sprintf("d%d/f%d", i%3, i)
		s.want[name] = clustertest.Content(uint64(i+1), size)
		s.must(s.b.MkdirAll(s.t.Context(), filepath.Dir(name), 0o755))
		s.must(s.b.WriteFile(s.t.Context(), name, s.want[name], 0o640))
	}
}

// shared has four clients write one file, each every fourth record.
func (s *site) shared(d *bbdtest.Daemon) {
	const name, writers, records, size = "shared", 4, 64, 47008
	all := clustertest.Content(1000, records*size)
	s.must(s.b.WriteFile(s.t.Context(), name, nil, 0o640))
	errs := make([]error, writers)
	var ended sync.WaitGroup
	for w := range writers {
		c := dial(s.t, d)
		ended.Go(func() {
			f, err := c.Buffer("b").OpenFile(s.t.Context(), name, client.OpenOptions{Write: true})
			for r := w; r < records && err == nil; r += writers {
				_, err = f.WriteAt(all[r*size:][:size], int64(r*size))
			}
			if err == nil {
				err = f.Close()
			}
			errs[w] = err
		})
	}
	ended.Wait()
	for _, err := range errs {
		s.must(err)
	}
	s.want[name] = all
}

// drain waits until the store has all, and compares.
func (s *site) drain() {
	s.t.Helper()
	report, err := admin.Drain(s.t.Context(), s.c, "b", 0, nil)
	if err != nil || len(report.Failed) > 0 {
		s.t.Fatalf("%v, %v", err, report.Failed)
	}
	s.compare(s.dir)
}

func (s *site) compare(dir string) {
	s.t.Helper()
	got := tree(s.t, dir)
	for name, want := range s.want {
		if !bytes.Equal(got[name], want) {
			s.t.Errorf("%s: %d bytes in %s that are not the %d that were written", name, len(got[name]), dir, len(want))
		}
	}
	if len(got) != len(s.want) {
		s.t.Errorf("%s has %q", dir, slices.Sorted(maps.Keys(got)))
	}
}

// receipt checks the store against the receipt, each byte.
func (s *site) receipt() {
	s.t.Helper()
	var lines strings.Builder
	s.must(admin.Receipt(s.t.Context(), s.c, "b", &lines))
	report, err := admin.Verify(s.t.Context(), s.c, strings.NewReader(lines.String()), admin.VerifyOptions{Deep: true})
	if err != nil || len(report.Failed) > 0 || report.FilesDone != int64(len(s.want)) {
		s.t.Errorf("%d of %d files; %v, %v", report.FilesDone, len(s.want), err, report.Failed)
	}
}

// change renames, replaces and removes files of the store.
func (s *site) change() {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(s.b.Rename(ctx, "d0", "moved"))
	for name, p := range maps.Clone(s.want) {
		if rest, below := strings.CutPrefix(name, "d0/"); below {
			delete(s.want, name)
			s.want["moved/"+rest] = p
		}
	}
	s.want["d1/f1"] = clustertest.Content(2000, 300<<10)
	s.must(s.b.WriteFile(ctx, "d1/f1", s.want["d1/f1"], 0o640))
	s.must(s.b.Remove(ctx, "d2/f2"))
	delete(s.want, "d2/f2")
}

// stage copies the buffer to another directory, and that into another buffer.
func (s *site) stage(to string) {
	s.t.Helper()
	ctx := s.t.Context()
	s.must(os.Mkdir(to, 0o755))
	report, err := admin.StageOut(ctx, s.c, admin.StageRequest{Buffer: "b", URL: bb.DirectoryURL(to)}, nil)
	if err != nil || len(report.Failed) > 0 {
		s.t.Fatalf("%v, %v", err, report.Failed)
	}
	s.compare(to)
	in := s.buffer("in", s.t.TempDir())
	report, err = admin.StageIn(ctx, s.c, admin.StageRequest{Buffer: "in", URL: bb.DirectoryURL(to)}, nil)
	if err != nil || len(report.Failed) > 0 {
		s.t.Fatalf("%v, %v", err, report.Failed)
	}
	for name, want := range s.want {
		if got, err := in.ReadFile(ctx, name); err != nil || !bytes.Equal(got, want) {
			s.t.Errorf("%s: %d bytes came back that are not the %d that were written, %v", name, len(got), len(want), err)
		}
	}
}
