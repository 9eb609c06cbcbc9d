package txntest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
	"forebay/meta/namespace"
	"forebay/meta/namespace/namespacetest"
)

func testFind(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	d := namespacetest.Mkdir(t, a, bb.RootDir, "d")
	if _, found, err := b.Find(ctx, d.Dir, "f"); found || err != nil {
		t.Errorf("what is not there: %v %v", found, err)
	}
	if page, err := b.Sample(ctx, d.Dir); len(page) != 0 || err != nil {
		t.Errorf("a sample of an empty directory: %v %v", page, err)
	}
	f := namespacetest.Create(t, a, d.Dir, "f")
	b.Refresh(d.Dir, "f")
	if e, found, err := b.Find(ctx, d.Dir, "f"); !found || err != nil || e.File != f.File || e.Revision != f.Revision {
		t.Errorf("what is there: %+v %v %v", e, found, err)
	}
	_, _, err := b.Find(ctx, d.Dir, "a/b")
	metatest.WantKind(t, "a bad name", err, bb.Invalid)
	if page, err := b.Sample(ctx, d.Dir); len(page) != 1 || err != nil || page[0].File != f.File {
		t.Errorf("a sample: %v %v", page, err)
	}
	wantGone := func(want bool) {
		t.Helper()
		for _, dir := range []bb.DirID{bb.RootDir, d.Dir} {
			if gone, err := b.DirGone(ctx, dir); gone != (want && dir == d.Dir) || err != nil {
				t.Errorf("directory %v is gone: %v %v", dir, gone, err)
			}
		}
	}
	wantGone(false)
	if err := a.RemoveAll(ctx, bb.RootDir, "d", namespace.RemoveOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	wantGone(true)
	if page, err := b.Sample(ctx, d.Dir); len(page) != 0 || err != nil {
		t.Errorf("a sample of a directory that is gone: %v %v", page, err)
	}
}

// listed returns the names that layers show, in pages of a size.
func (e Engine) listed(t testing.TB, dirs []bb.DirID, hidden func(int, string) bool, size int) (names []string, entries map[string]bb.Entry) {
	t.Helper()
	entries = map[string]bb.Entry{}
	for after, more := "", true; more; {
		page, next, err := e.ListLayers(metatest.Context(t), dirs, hidden, after, size)
		if err != nil || len(page) > size || next && len(page) != size {
			t.Fatalf("%d of %d, more %v: %v", len(page), size, next, err)
		}
		for i := range page {
			names, entries[page[i].Name] = append(names, page[i].Name), page[i]
			after = page[i].Name
		}
		more = next
	}
	return names, entries
}

func testListLayers(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	for round := range 6 {
		var dirs []bb.DirID
		want := map[string]bb.Entry{}
		hidden := func(layer int, name string) bool { return layer > 0 && strings.HasSuffix(name, fmt.Sprint(3*layer)) }
		for layer := range 1 + round%3 {
			d := namespacetest.Mkdir(t, a, bb.RootDir, fmt.Sprintf("%d-%d", round, layer))
			dirs = append(dirs, d.Dir)
			for i := range 12 {
				var e bb.Entry
				switch name := fmt.Sprint("n", i); rnd.IntN(3) {
				case 0:
					e = namespacetest.Create(t, a, d.Dir, name)
				case 1:
					e = namespacetest.Mkdir(t, a, d.Dir, name)
				default:
					continue
				}
				above, there := want[e.Name]
				if !hidden(layer, e.Name) && (!there || above.IsDir() && e.IsDir()) {
					want[e.Name] = e
				}
			}
		}
		if round%2 == 0 && len(dirs) > 1 { // a layer that has been folded
			gone := namespacetest.Mkdir(t, a, bb.RootDir, "gone")
			if _, err := a.Remove(ctx, bb.RootDir, "gone", namespace.RemoveOptions{}); err != nil {
				t.Fatal(err)
			}
			dirs = append([]bb.DirID{gone.Dir}, dirs...)
			inner := hidden
			hidden = func(layer int, name string) bool { return layer > 0 && inner(layer-1, name) }
		}
		for _, size := range []int{1, 2, 7, 1000} {
			names, entries := b.listed(t, dirs, hidden, size)
			if !slices.IsSorted(names) || len(names) != len(want) || len(entries) != len(want) {
				t.Errorf("round %d, pages of %d: %v, want %d", round, size, names, len(want))
			}
			for name, e := range entries {
				if e.File != want[name].File || e.Dir != want[name].Dir || e.Parent != want[name].Parent {
					t.Errorf("round %d: %s is %+v, want %+v", round, name, e, want[name])
				}
			}
		}
		_, _, err := b.ListLayers(ctx, append(dirs, 1<<50), hidden, "", 10)
		metatest.WantKind(t, "with a last directory that is not there", err, bb.NotFound)
		_, _, err = b.ListLayers(ctx, dirs, hidden, "", 0)
		metatest.WantKind(t, "of no size", err, bb.Invalid)
	}
}

// An entry that is renamed from a layer to the one below it meanwhile is in each listing.
func testListWhileRenamed(t *testing.T, a, b Engine) {
	ctx := metatest.Context(t)
	const files = 40
	var dirs []bb.DirID
	for _, name := range []string{"output", "destination"} {
		dirs = append(dirs, namespacetest.Mkdir(t, a, bb.RootDir, name).Dir)
	}
	for i := range files {
		namespacetest.Create(t, a, dirs[0], fmt.Sprint("f", i))
	}
	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		defer close(done)
		for i := range files {
			if _, err := b.Rename(ctx, dirs[0], fmt.Sprint("f", i), dirs[1], fmt.Sprint("f", i), namespace.RenameOptions{}); err != nil {
				t.Error(err)
			}
		}
	})
	for listing := true; listing; {
		select {
		case <-done:
			listing = false
		default:
		}
		if names, _ := a.listed(t, dirs, func(int, string) bool { return false }, 1000); len(names) != files {
			t.Errorf("%d names, want %d", len(names), files)
		}
	}
	all.Wait()
}
