// Package backingtest holds the suite that every backing.Store passes: the adaptors, the real
// servers, and the wrappers around them. It must never test a property of only one of them.
package backingtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Harness makes stores for the suite.
type Harness struct {
	// Open returns a store of an empty root, closed when the test ends.
	Open func(t *testing.T) backing.Store
	// Large is a size that the store handles in several parts.
	Large int64
	// Damage changes a byte of a stored object behind the store's back.
	Damage func(t *testing.T, s backing.Store, name string)
	// Crash kills a process in the middle of a Put of name of Large bytes, and
	// returns the store as a new life of its owner finds it. See Kill.
	Crash func(t *testing.T, name string) backing.Store
}

// Suite runs all tests.
func Suite(t *testing.T, h Harness) {
	tests := []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"sizes", sizes},
		{"overwrite with shorter", overwrite},
		{"holes and unaligned slices", holes},
		{"ranges", ranges},
		{"names", names},
		{"bad names", badNames},
		{"not found", notFound},
		{"list", list},
		{"rename", rename},
		{"rename tree", renameTree},
		{"remove", remove},
		{"remove a version", removeIf},
		{"rename a version", renameIf},
		{"symbolic links", links},
		{"extended attributes", xattrs},
		{"remove tree", removeTree},
		{"remove directory", removeDir},
		{"concurrent puts to one name", concurrentPuts},
		{"cancelled put", cancelledPut},
		{"source that lies", lyingSource},
		{"source that fails", failingSource},
		{"source is cut short", shortenedSource},
		{"damaged object", damaged},
		{"check leaves nothing", check},
		{"sweep spares the living", sweepSpares},
		{"last step", lastStep},
		{"closed", closed},
		{"crash", crash},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, h) })
	}
}

// Data returns bytes that are the same for the same arguments.
func Data(size int64, seed uint64) []byte {
	b := make([]byte, size)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rand.NewChaCha8(key).Read(b)
	return b
}

func isForeign(err error) bool { return errors.Is(err, backing.ErrForeign) }

func put(t *testing.T, s backing.Store, name string, content ...[]byte) backing.Object {
	t.Helper()
	src := backing.NewBytes(content...)
	o, err := s.Put(t.Context(), name, src, backing.PutOptions{})
	if err != nil {
		t.Fatalf("put %q: %v", name, err)
	}
	if o.Name != name || o.Size != src.Size() || !o.HasChecksum || o.Checksum != src.Checksum() || o.ETag == "" {
		t.Fatalf("put %q of %d bytes, checksum %x: %+v", name, src.Size(), src.Checksum(), o)
	}
	return o
}

func read(t *testing.T, s backing.Store, name string, off, n int64) []byte {
	t.Helper()
	r, err := s.Get(t.Context(), name, off, n)
	if err != nil {
		t.Fatalf("get %q: %v", name, err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Fatalf("read %q: %v", name, err)
	}
	return b
}

func expect(t *testing.T, s backing.Store, name string, want []byte) {
	t.Helper()
	if got := read(t, s, name, 0, -1); !bytes.Equal(got, want) {
		t.Fatalf("%q holds %d bytes, checksum %x; want %d, %x", name, len(got), checksum.Sum(got), len(want), checksum.Sum(want))
	}
}

func expectKind(t *testing.T, err error, want bb.Kind) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v (%v), want kind %v", err, bb.KindOf(err), want)
	}
}

func expectNames(t *testing.T, s backing.Store, prefix string, want ...string) {
	t.Helper()
	got := []string{}
	err := s.List(t.Context(), prefix, func(o backing.Object) error {
		got = append(got, o.Name)
		return nil
	})
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("list %q: %q, %v; want %q", prefix, got, err, want)
	}
}

func sizes(t *testing.T, h Harness) {
	s := h.Open(t)
	for _, size := range []int64{0, 1, 4095, 1 << 20, h.Large, h.Large + 1} {
		content := Data(size, 1)
		name := fmt.Sprintf("sizes/%d", size)
		o := put(t, s, name, content)
		expect(t, s, name, content)
		stat, err := s.Stat(t.Context(), name)
		if err != nil || stat.Size != size || stat.ETag != o.ETag || stat.HasChecksum && stat.Checksum != checksum.Sum(content) {
			t.Fatalf("stat: %+v, %v; put said %+v", stat, err, o)
		}
	}
}

func overwrite(t *testing.T, h Harness) {
	s := h.Open(t)
	first := put(t, s, "a/b", Data(h.Large, 1))
	for i, size := range []int64{100_000, 3, 0, h.Large} {
		content := Data(size, uint64(i+2))
		second := put(t, s, "a/b", content)
		expect(t, s, "a/b", content)
		if first.ETag == second.ETag {
			t.Fatalf("both contents are called %s", first.ETag)
		}
		first = second
	}
	expectNames(t, s, "", "a/b")
}

func holes(t *testing.T, h Harness) {
	s := h.Open(t)
	zeros := make([]byte, 4096)
	var pieces [][]byte
	for i := range 3000 { // more pieces than one vectored write takes
		switch i % 3 {
		case 0:
			pieces = append(pieces, Data(int64(1+i*7%5000), uint64(i)))
		case 1:
			pieces = append(pieces, zeros[:1+i%4096])
		default:
			pieces = append(pieces, nil, Data(3, uint64(i))[1:])
		}
	}
	pieces = append(pieces, Data(h.Large, 9)[1:])
	put(t, s, "holes", pieces...)
	expect(t, s, "holes", slices.Concat(pieces...))
}

func ranges(t *testing.T, h Harness) {
	s := h.Open(t)
	content := Data(10_000, 1)
	put(t, s, "r", content)
	for _, r := range [][2]int64{{0, 1}, {0, 0}, {0, 10_000}, {1, 2}, {9_999, 1}, {5_000, -1}, {10_000, 0}, {10_000, -1}, {20_000, -1}} {
		want := content[min(r[0], 10_000):]
		if r[1] >= 0 {
			want = want[:r[1]]
		}
		if got := read(t, s, "r", r[0], r[1]); !bytes.Equal(got, want) {
			t.Fatalf("range %v: %d bytes, want %d", r, len(got), len(want))
		}
	}
	for _, r := range [][2]int64{{9_999, 2}, {0, 10_001}, {10_000, 1}, {20_000, 5}} {
		body, err := s.Get(t.Context(), "r", r[0], r[1])
		if err == nil {
			_, err = io.ReadAll(body)
			body.Close()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("range %v behind the end: %v", r, err)
		}
	}
	_, err := s.Get(t.Context(), "r", -1, 1)
	expectKind(t, err, bb.Invalid)
}

// Names that are hard for URLs, for shells, or for both.
var hardNames = []string{
	"with space", "tab\tand\nnewline", "percent%20%2f%", "plus+and&amp=?#", "ümläut/日本語/😀", "dots/..x/x..",
	"quote'\"`$(x)", "back\\slash", "-rf", "~", "colon:star*", strings.Repeat("n", 200), ".hidden", "trailing.tmp",
	".forebay-x.tmp",
}

func names(t *testing.T, h Harness) {
	s := h.Open(t)
	for i, name := range hardNames {
		put(t, s, name, Data(50, uint64(i)))
	}
	for i, name := range hardNames {
		expect(t, s, name, Data(50, uint64(i)))
	}
	expectNames(t, s, "", hardNames...)
	for _, name := range hardNames {
		if err := s.Rename(t.Context(), name, "moved/"+name); err != nil {
			t.Fatal(err)
		}
	}
	expectNames(t, s, "moved/with ", "moved/with space")
	for i, name := range hardNames {
		expect(t, s, "moved/"+name, Data(50, uint64(i)))
		if err := s.Remove(t.Context(), "moved/"+name); err != nil {
			t.Fatal(err)
		}
	}
	expectNames(t, s, "")
}

func badNames(t *testing.T, h Harness) {
	s := h.Open(t)
	bad := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a\x00b", "\xff",
		strings.Repeat("n", bb.MaxName+1), strings.Repeat("d/", bb.MaxDepth) + "f", backing.NewOwner(1).TempName(),
	}
	for _, name := range bad {
		_, err := s.Put(t.Context(), name, backing.NewBytes([]byte("x")), backing.PutOptions{})
		expectKind(t, err, bb.Invalid)
		_, err = s.Get(t.Context(), name, 0, -1)
		expectKind(t, err, bb.Invalid)
		_, err = s.Stat(t.Context(), name)
		expectKind(t, err, bb.Invalid)
		expectKind(t, s.Rename(t.Context(), name, "ok"), bb.Invalid)
		expectKind(t, s.Rename(t.Context(), "ok", name), bb.Invalid)
		expectKind(t, s.Remove(t.Context(), name), bb.Invalid)
		if name != "" {
			expectKind(t, s.RemoveTree(t.Context(), name), bb.Invalid)
		}
	}
	expectNames(t, s, "")
}

func notFound(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "dir/file", []byte("x"))
	for _, name := range []string{"none", "dir", "dir/none", "none/none"} {
		_, err := s.Get(t.Context(), name, 0, -1)
		expectKind(t, err, bb.NotFound)
		_, err = s.Get(t.Context(), name, 0, 0)
		expectKind(t, err, bb.NotFound)
		_, err = s.Stat(t.Context(), name)
		expectKind(t, err, bb.NotFound)
	}
	for _, name := range []string{"none", "dir/none", "none/none"} {
		expectKind(t, s.Rename(t.Context(), name, "other"), bb.NotFound)
		if err := errors.Join(s.Remove(t.Context(), name), s.RemoveTree(t.Context(), name)); err != nil {
			t.Fatal(err)
		}
	}
	expectNames(t, s, "none/")
	expectNames(t, s, "", "dir/file")
}

func list(t *testing.T, h Harness) {
	s := h.Open(t)
	all := []string{"a", "b/1", "b/10", "b/2/x", "b.x", "bb/1", "c/d/e/f"}
	for _, name := range all {
		put(t, s, name, []byte(name))
	}
	expectNames(t, s, "", all...)
	expectNames(t, s, "b/", "b/1", "b/10", "b/2/x")
	expectNames(t, s, "b/1", "b/1", "b/10")
	expectNames(t, s, "b", "b/1", "b/10", "b/2/x", "b.x", "bb/1")
	expectNames(t, s, "c/d/e", "c/d/e/f")
	stop := errors.New("enough")
	calls := 0
	err := s.List(t.Context(), "", func(o backing.Object) error {
		if o.Size != int64(len(o.Name)) || o.MTime.IsZero() {
			t.Errorf("listed %+v", o)
		}
		calls++
		return stop
	})
	if err != stop || calls != 1 {
		t.Fatalf("fn's error: got %v after %d calls", err, calls)
	}
}

// lastStep: PutOptions.Last is called once, when nothing is visible yet, and decides.
func lastStep(t *testing.T, h Harness) {
	s := h.Open(t)
	for _, size := range []int64{0, 10, h.Large} {
		name := fmt.Sprint("last", size)
		old, data := []byte("what was there before"), Data(size, 9)
		put(t, s, name, old)
		refused, asked := bb.E(bb.Invalid, "last step", name, "not any more"), 0
		for _, answer := range []error{refused, nil} { // of a kind that is not tried again
			before := asked
			_, err := s.Put(t.Context(), name, backing.NewBytes(data), backing.PutOptions{Last: func(context.Context) error {
				asked++
				expect(t, s, name, old)
				return answer
			}})
			if !errors.Is(err, answer) || asked != before+1 {
				t.Errorf("%d bytes: error %v, asked %d times; want %v, once", size, err, asked-before, answer)
			}
			if answer == nil {
				old = data
			}
			expect(t, s, name, old)
			expectNames(t, s, name, name)
		}
	}
}

func rename(t *testing.T, h Harness) {
	s := h.Open(t)
	content := Data(h.Large, 1)
	put(t, s, "a", content)
	if err := s.Rename(t.Context(), "a", "a"); err != nil {
		t.Fatal(err)
	}
	put(t, s, "x/y", []byte("replaced"))
	for _, step := range [][2]string{{"a", "x/y"}, {"x/y", "new/dir/z"}} {
		if err := s.Rename(t.Context(), step[0], step[1]); err != nil {
			t.Fatalf("%v: %v", step, err)
		}
		expect(t, s, step[1], content)
		expectNames(t, s, "", step[1])
	}
	expectKind(t, s.Rename(t.Context(), "new/dir", "new/dir/z/deeper"), bb.Invalid)
}

func renameTree(t *testing.T, h Harness) {
	s := h.Open(t)
	for _, name := range []string{"t/1", "t/2/3", "t/2/4", "tt/1"} {
		put(t, s, name, []byte(name))
	}
	if err := s.Rename(t.Context(), "t", "u/v"); err != nil {
		t.Fatal(err)
	}
	expectNames(t, s, "", "u/v/1", "u/v/2/3", "u/v/2/4", "tt/1")
	put(t, s, "w/2/3", []byte("old"))
	put(t, s, "w/5", []byte("stays"))
	if err := s.Rename(t.Context(), "u/v", "w"); err != nil { // as a repeated rename that failed half way
		t.Fatal(err)
	}
	expectNames(t, s, "", "w/1", "w/2/3", "w/2/4", "w/5", "tt/1")
	expect(t, s, "w/2/3", []byte("t/2/3"))
	put(t, s, "t/back", []byte("x")) // into a directory that went away
	expectNames(t, s, "t/", "t/back")
}

func remove(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "a/b", []byte("x"))
	for range 2 {
		if err := s.Remove(t.Context(), "a/b"); err != nil {
			t.Fatal(err)
		}
		expectNames(t, s, "")
	}
	put(t, s, "a/b", []byte("y"))
	expect(t, s, "a/b", []byte("y"))
}

// none is a version that no object has.
var none = backing.Version{ETag: "0123456789abcdef0123456789abcdef", Size: 1}

func expectForeign(t *testing.T, err error, name string) {
	t.Helper()
	var e *bb.Error
	if !errors.Is(err, backing.ErrForeign) || !errors.As(err, &e) || e.Path != name {
		t.Fatalf("error %v, want that %s is somebody else's", err, name)
	}
}

func removeIf(t *testing.T, h Harness) {
	s := h.Open(t)
	for i, size := range []int64{0, 10, h.Large} {
		name := fmt.Sprint("d/", strings.Repeat("n", i*110)+"x") // one name is long
		first := put(t, s, name, Data(size, 1))
		second := put(t, s, name, Data(size, 2), []byte("more"))
		for _, other := range []backing.Version{{}, none, first.Version()} {
			expectForeign(t, s.RemoveIf(t.Context(), name, other), name)
		}
		expect(t, s, name, slices.Concat(Data(size, 2), []byte("more")))
		expectNames(t, s, "", name)
		for range 2 { // the second time, nothing is there
			if err := s.RemoveIf(t.Context(), name, second.Version()); err != nil {
				t.Fatal(err)
			}
			expectNames(t, s, "")
		}
	}
	expectKind(t, s.RemoveIf(t.Context(), "../d", none), bb.Invalid)
	if err := s.RemoveIf(t.Context(), "none/none", none); err != nil {
		t.Fatal(err)
	}
	listed := put(t, s, "listed", []byte("x")).Version()
	if err := s.List(t.Context(), "", func(o backing.Object) error {
		if o.Version() != listed {
			return fmt.Errorf("listed as %v, put as %v", o.Version(), listed)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func renameIf(t *testing.T, h Harness) {
	s := h.Open(t)
	for _, size := range []int64{0, 10, h.Large} {
		content, older := Data(size, 1), []byte("older")
		is := put(t, s, "a", content).Version()
		for _, other := range []backing.Version{{}, none} {
			expectForeign(t, s.RenameIf(t.Context(), "a", "new", other, backing.Version{}), "a")
		}
		if err := s.RenameIf(t.Context(), "a", "a", is, backing.Version{}); err != nil {
			t.Fatal(err)
		}
		replaced := put(t, s, "x/y", older).Version()
		for _, other := range []backing.Version{{}, none, is} {
			expectForeign(t, s.RenameIf(t.Context(), "a", "x/y", is, other), "x/y")
		}
		expect(t, s, "a", content)
		expect(t, s, "x/y", older)
		if err := s.RenameIf(t.Context(), "a", "x/y", is, replaced); err != nil {
			t.Fatal(err)
		}
		expect(t, s, "x/y", content)
		expectNames(t, s, "", "x/y")
		moved, err := s.Stat(t.Context(), "x/y")
		if err != nil {
			t.Fatal(err)
		}
		// An object that may be replaced need not be there.
		for i, may := range []backing.Version{{}, none} {
			from, to := "x/y", "new/dir/z"
			if i > 0 {
				from, to = to, "w"
			}
			if err := s.RenameIf(t.Context(), from, to, moved.Version(), may); err != nil {
				t.Fatal(err)
			}
			expect(t, s, to, content)
			expectNames(t, s, "", to)
			if moved, err = s.Stat(t.Context(), to); err != nil {
				t.Fatal(err)
			}
		}
		expectKind(t, s.RenameIf(t.Context(), "w", "w/below", moved.Version(), backing.Version{}), bb.Invalid)
		expectKind(t, s.RenameIf(t.Context(), "none", "other", none, backing.Version{}), bb.NotFound)
		if err := s.RemoveIf(t.Context(), "w", moved.Version()); err != nil {
			t.Fatal(err)
		}
		expectNames(t, s, "")
	}
}

func removeDir(t *testing.T, h Harness) {
	s := h.Open(t)
	for _, name := range []string{"d/full/x", "d/empty/y", "f"} {
		put(t, s, name, []byte("x"))
	}
	if err := s.Remove(t.Context(), "d/empty/y"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, name := range []string{"d/empty", "d/full", "d", "f", "nothing", "f/below", "nothing/below"} {
			if err := s.RemoveDir(t.Context(), name); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		expectNames(t, s, "", "d/full/x", "f")
	}
	expectKind(t, s.RemoveDir(t.Context(), "../d"), bb.Invalid)
	expectKind(t, s.MakeDir(t.Context(), "../d", backing.DirOptions{}), bb.Invalid)
	opts := backing.DirOptions{Attrs: backing.Attrs{Mode: 0o700, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}}
	for range 2 {
		for _, name := range []string{"made", "d/full", "far/below"} {
			if err := s.MakeDir(t.Context(), name, opts); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		expectNames(t, s, "", "d/full/x", "f") // a directory is no object
	}
	put(t, s, "made/x", []byte("x"))
	for range 2 {
		if err := errors.Join(s.RemoveDir(t.Context(), "made"), s.Remove(t.Context(), "made/x"), s.RemoveDir(t.Context(), "made"), s.RemoveDir(t.Context(), "far/below")); err != nil {
			t.Fatal(err)
		}
		if err := s.Others(t.Context(), "", func(o backing.Other) error {
			if o.Name == "made" || o.Name == "far/below" {
				return fmt.Errorf("%s is still there", o.Name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "d/empty/again", []byte("x"))
}

func removeTree(t *testing.T, h Harness) {
	s := h.Open(t)
	for i := range 30 {
		put(t, s, fmt.Sprintf("t/%d/%d", i%3, i), []byte("x"))
	}
	put(t, s, "tt", []byte("x"))
	put(t, s, "u", []byte("x"))
	for range 2 {
		if err := errors.Join(s.RemoveTree(t.Context(), "t"), s.RemoveTree(t.Context(), "u")); err != nil {
			t.Fatal(err)
		}
		expectNames(t, s, "", "tt")
	}
	put(t, s, "t/0/again", []byte("x"))
	if err := s.RemoveTree(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	expectNames(t, s, "")
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func concurrentPuts(t *testing.T, h Harness) {
	s := h.Open(t)
	const writers = 4
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range 3 {
				if _, err := s.Put(t.Context(), "one/name", backing.NewBytes(Data(h.Large+int64(i), uint64(i))), backing.PutOptions{}); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	got := read(t, s, "one/name", 0, -1)
	i := int64(len(got)) - h.Large
	if i < 0 || i >= writers || !bytes.Equal(got, Data(h.Large+i, uint64(i))) {
		t.Fatalf("%d bytes are no writer's", len(got))
	}
	expectNames(t, s, "", "one/name")
}

// hookSource calls hook before it gives bytes from offset at on.
type hookSource struct {
	backing.Source
	at   int64
	hook func() error
}

func (s *hookSource) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	if off+n > s.at {
		if err := s.hook(); err != nil {
			return nil, err
		}
	}
	return s.Source.Slices(dst, off, n)
}

func cancelledPut(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "c", []byte("before"))
	ctx, cancel := context.WithCancel(t.Context())
	src := &hookSource{backing.NewBytes(Data(h.Large, 1)), h.Large / 2, func() error { cancel(); return nil }}
	_, err := s.Put(ctx, "c", src, backing.PutOptions{})
	expectKind(t, err, bb.Cancelled)
	_, err = s.Put(ctx, "new", src, backing.PutOptions{})
	expectKind(t, err, bb.Cancelled)
	expect(t, s, "c", []byte("before"))
	expectNames(t, s, "", "c")
}

// liar reports another checksum than that of its bytes.
type liar struct{ backing.Source }

func (liar) Checksum() uint64 { return 1 }

func lyingSource(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "l", []byte("before"))
	for _, size := range []int64{10, h.Large} {
		_, err := s.Put(t.Context(), "l", liar{backing.NewBytes(Data(size, 1))}, backing.PutOptions{})
		expectKind(t, err, bb.Checksum)
		if backing.Passing(err) {
			t.Fatalf("%v would be tried again, though the bytes are what is wrong", err)
		}
	}
	expect(t, s, "l", []byte("before"))
	expectNames(t, s, "", "l")
}

// short returns one byte less than its size.
type short struct{ backing.Source }

func (s short) Size() int64 { return s.Source.Size() + 1 }

func (s short) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	return s.Source.Slices(dst, off, min(n, s.Source.Size()-off))
}

func failingSource(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "f", []byte("before"))
	for _, size := range []int64{10, h.Large} {
		lost := bb.E(bb.Lost, "read", "", "memory is gone")
		src := &hookSource{backing.NewBytes(Data(size, 1)), size / 2, func() error { return lost }}
		_, err := s.Put(t.Context(), "f", src, backing.PutOptions{})
		expectKind(t, err, bb.Lost)
		if _, err := s.Put(t.Context(), "f", short{backing.NewBytes(Data(size, 1))}, backing.PutOptions{}); err == nil {
			t.Fatal("a source that ends early was put")
		}
	}
	expect(t, s, "f", []byte("before"))
	expectNames(t, s, "", "f")
}

func damaged(t *testing.T, h Harness) {
	s := h.Open(t)
	o := put(t, s, "d", Data(h.Large, 1))
	verify := func() error {
		r, err := s.Get(t.Context(), "d", 0, -1)
		if err != nil {
			return err
		}
		r = backing.Verify(r, "d", o.Size, o.Checksum)
		_, err = io.Copy(io.Discard, r)
		return errors.Join(err, r.Close())
	}
	if err := verify(); err != nil {
		t.Fatal(err)
	}
	h.Damage(t, s, "d")
	expectKind(t, verify(), bb.Checksum)
}

func check(t *testing.T, h Harness) {
	s := h.Open(t)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectNames(t, s, "")
}

// sweepSpares sweeps in the middle of a Put.
func sweepSpares(t *testing.T, h Harness) {
	s := h.Open(t)
	content := Data(h.Large, 1)
	var once sync.Once
	src := &hookSource{backing.NewBytes(content), h.Large / 2, func() (err error) {
		once.Do(func() {
			var n int
			if n, err = s.Sweep(t.Context()); n != 0 {
				err = fmt.Errorf("swept %d", n)
			}
		})
		return err
	}}
	put(t, s, ".forebay-but-not-ours.tmp", []byte("x"))
	if _, err := s.Put(t.Context(), "dir/living", src, backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "dir/living", content)
	expectNames(t, s, "", "dir/living", ".forebay-but-not-ours.tmp")
}

func closed(t *testing.T, h Harness) {
	s := h.Open(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func crash(t *testing.T, h Harness) {
	const name = "dir/crashed"
	s := h.Crash(t, name)
	_, err := s.Stat(t.Context(), name)
	expectKind(t, err, bb.NotFound)
	expectNames(t, s, "")
	n, err := s.Sweep(t.Context())
	if err != nil || n != 1 {
		t.Fatalf("swept %d, %v; want 1", n, err)
	}
	if n, err = s.Sweep(t.Context()); err != nil || n != 0 {
		t.Fatalf("swept %d more, %v", n, err)
	}
	content := Data(h.Large, 1)
	put(t, s, name, content)
	expect(t, s, name, content)
}

// WaitTime bounds the waits of a crash test.
const WaitTime = 30 * time.Second

// shortenedSource: the bytes lie in a mapped file, which its user cuts short while they are written.
func shortenedSource(t *testing.T, h Harness) {
	s := h.Open(t)
	put(t, s, "f", []byte("before"))
	for _, size := range []int64{10, h.Large} {
		for _, at := range []int64{0, size - 1} {
			mem, cut := mappedFile(t, Data(size, 1))
			src := &hookSource{backing.NewBytes(mem), at, cut}
			if _, err := s.Put(t.Context(), "f", src, backing.PutOptions{}); err == nil {
				t.Errorf("%d bytes of which not all were there are stored", size)
			}
		}
	}
	expect(t, s, "f", []byte("before"))
	expectNames(t, s, "", "f")
}

// mappedFile maps a file with the content p. Cut takes all of it away.
func mappedFile(t *testing.T, p []byte) (mem []byte, cut func() error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mapped")
	if err := os.WriteFile(path, p, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if mem, err = unix.Mmap(int(f.Fd()), 0, len(p), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	return mem, func() error { return os.Truncate(path, 0) }
}
