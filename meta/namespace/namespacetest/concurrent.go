package namespacetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
)

func testConcurrentCreate(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		for round := range 20 {
			var won atomic.Int32
			var wg sync.WaitGroup
			for i := range 16 {
				ns := []namespace.Tree{a, b}[i%2]
				wg.Go(func() {
					var err error
					if i%4 == 3 {
						_, err = ns.Mkdir(metatest.Context(t), bb.RootDir, fmt.Sprint("same", round), namespace.Owner{})
					} else {
						_, err = ns.Create(metatest.Context(t), File(bb.RootDir, fmt.Sprint("same", round)))
					}
					if err == nil {
						won.Add(1)
					} else if !errors.Is(err, bb.Exists) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Errorf("%d creators won", won.Load())
			}
		}
	})
}

func testConcurrentUpdate(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		Create(t, a, bb.RootDir, "f")
		var wg sync.WaitGroup
		for i := range 8 {
			ns := []namespace.Tree{a, b}[i%2]
			wg.Go(func() {
				for range 20 {
					_, err := ns.Update(metatest.Context(t), bb.RootDir, "f", func(e *bb.Entry) error { e.Size++; return nil })
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if e, err := b.Lookup(metatest.Context(t), bb.RootDir, "f"); err != nil || e.Size != 10+160 {
			t.Errorf("%d %v", e.Size, err)
		}
	})
}

// Two directories are moved into each other at the same time, over and over. One of the two must be
// refused, and nothing may be cut off from the root.
func testConcurrentRenameIntoEachOther(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		ctx := metatest.Context(t)
		for round := range 15 {
			x, err := a.MkdirAll(ctx, fmt.Sprintf("%d/x/sub", round), namespace.Owner{})
			if err != nil {
				t.Fatal(err)
			}
			y, err := a.MkdirAll(ctx, fmt.Sprintf("%d/y/sub", round), namespace.Owner{})
			if err != nil {
				t.Fatal(err)
			}
			top, err := a.Resolve(ctx, fmt.Sprint(round))
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			var errs [2]error
			wg.Go(func() { _, errs[0] = a.Rename(ctx, top.Dir, "x", y.Dir, "x", namespace.RenameOptions{}) })
			wg.Go(func() { _, errs[1] = b.Rename(ctx, top.Dir, "y", x.Dir, "y", namespace.RenameOptions{}) })
			wg.Wait()
			refused := errors.Is(errs[0], bb.Invalid) != errors.Is(errs[1], bb.Invalid)
			if !refused || errs[0] != nil && errs[1] != nil {
				t.Errorf("round %d: %v and %v", round, errs[0], errs[1])
			}
		}
		directories := 0
		for _, what := range Paths(t, b) {
			if what == "/" {
				directories++
			}
		}
		if directories != 15*5 {
			t.Errorf("%d directories can be reached, want %d", directories, 15*5)
		}
		CheckPaths(t, a)
		CheckPaths(t, b)
	})
}

// Files are created and renamed into a directory while it is being removed. Successful ones must be
// there.
func testConcurrentRemoveDirectory(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		ctx := metatest.Context(t)
		for round := range 40 {
			d := Mkdir(t, a, bb.RootDir, "d")
			Create(t, a, bb.RootDir, fmt.Sprint("from", round))
			var wg sync.WaitGroup
			var removed, created, moved, made error
			start := make(chan struct{})
			run := func(fn func()) { wg.Go(func() { <-start; fn() }) }
			run(func() { _, removed = a.Remove(ctx, bb.RootDir, "d", namespace.RemoveOptions{StoreOp: round%2 == 0}) })
			run(func() { _, created = b.Create(ctx, File(d.Dir, "created")) })
			run(func() { _, made = b.Mkdir(ctx, d.Dir, "made", namespace.Owner{}) })
			run(func() {
				_, moved = b.Rename(ctx, bb.RootDir, fmt.Sprint("from", round), d.Dir, "moved", namespace.RenameOptions{})
			})
			close(start)
			wg.Wait()
			for what, err := range map[string]error{"created": created, "made": made, "moved": moved} {
				if removed == nil && !errors.Is(err, bb.NotFound) {
					t.Errorf("the directory was removed, but %s: %v", what, err)
				}
				if removed != nil && err != nil {
					t.Errorf("the directory was not removed (%v), but %s: %v", removed, what, err)
				}
			}
			if removed != nil {
				metatest.WantKind(t, "remove", removed, bb.NotEmpty)
				if got := Names(t, b, d.Dir); !slices.Equal(got, []string{"created", "made", "moved"}) {
					t.Errorf("it holds %q", got)
				}
				if err := a.RemoveAll(ctx, bb.RootDir, "d", namespace.RemoveOptions{}, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// A directory of some files that stay, some that are updated and some that come and
// go is listed over and over.
func testListDuringChanges(t *testing.T, factory Factory) {
	for _, stay := range []int{50, 1500} {
		factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
			ctx, stop := context.WithCancel(metatest.Context(t))
			defer stop()
			for i := range stay {
				Create(t, a, bb.RootDir, fmt.Sprintf("stay%04d", i))
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					name := fmt.Sprintf("stay%04d", rand.IntN(stay))
					_, err := b.Update(metatest.Context(t), bb.RootDir, name, func(e *bb.Entry) error { e.Size++; return nil })
					if err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					Create(t, b, bb.RootDir, fmt.Sprintf("go%d", i%20))
					if _, err := b.Remove(metatest.Context(t), bb.RootDir, fmt.Sprintf("go%d", i%20), namespace.RemoveOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
			for range 8 {
				checkListing(t, a, stay)
				checkScan(t, a, stay)
			}
			stop()
			wg.Wait()
		})
	}
}

func checkListing(t *testing.T, ns namespace.Tree, stay int) {
	t.Helper()
	var all []string
	after, more := "", true
	for more {
		var page []bb.Entry
		var err error
		page, more, err = ns.List(metatest.Context(t), bb.RootDir, after, 300)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			all = append(all, e.Name)
			after = e.Name
		}
	}
	if !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Error("not sorted, or one comes twice")
	}
	n := 0
	for _, name := range all {
		if strings.HasPrefix(name, "stay") {
			n++
		} else if !strings.HasPrefix(name, "go") {
			t.Errorf("there never was %q", name)
		}
	}
	if n != stay {
		t.Errorf("listed %d of %d that stay", n, stay)
	}
}

func checkScan(t *testing.T, ns namespace.Tree, stay int) {
	t.Helper()
	seen := map[string]bool{}
	if err := ns.Scan(metatest.Context(t), bb.RootDir, func(e bb.Entry) error {
		if strings.HasPrefix(e.Name, "stay") {
			seen[e.Name] = true
		}
		return nil
	}); err != nil || len(seen) != stay {
		t.Errorf("scanned %d of %d that stay: %v", len(seen), stay, err)
	}
}

// Files are renamed from one directory to another and back while all of the buffer is scanned. Each
// file comes in each scan.
func testScanAllDuringRenames(t *testing.T, factory Factory) {
	factory.pair(t, func(t *testing.T, a, b namespace.Tree) {
		const files = 1200
		dirs := []bb.Entry{Mkdir(t, a, bb.RootDir, "one"), Mkdir(t, a, bb.RootDir, "two")}
		for i := range files {
			Create(t, a, dirs[0].Dir, fmt.Sprint(i))
		}
		ctx, stop := context.WithCancel(metatest.Context(t))
		defer stop()
		var wg sync.WaitGroup
		wg.Go(func() {
			at := make([]int, files)
			for ctx.Err() == nil {
				i := rand.IntN(files)
				_, err := b.Rename(metatest.Context(t), dirs[at[i]].Dir, fmt.Sprint(i), dirs[1-at[i]].Dir, fmt.Sprint(i), namespace.RenameOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				at[i] = 1 - at[i]
			}
		})
		for range 5 {
			seen := map[bb.FileID]bool{}
			err := a.ScanAll(metatest.Context(t), func(e bb.Entry) error {
				if !e.IsDir() {
					seen[e.File] = true
				}
				return nil
			})
			if err != nil || len(seen) != files {
				t.Errorf("scanned %d of %d files: %v", len(seen), files, err)
			}
		}
		stop()
		wg.Wait()
	})
}
