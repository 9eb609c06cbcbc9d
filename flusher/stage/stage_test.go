package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/flusher/backing"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/mem"
	"forebay/flusher/backing/posix"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// buffer is a Sink and a Tree in memory.
type buffer struct {
	mu    sync.Mutex
	files map[string][]byte
	open  atomic.Int32 // files created and neither published nor aborted, and pins
	fills atomic.Int32 // going on
	most  atomic.Int32
	bad   error // the finding of Verify

	opened func(*Entry) // changes the entry that Open finds; nil: as Walk found it
}

func newBuffer() *buffer { return &buffer{files: map[string][]byte{}} }

func (b *buffer) Same(_ context.Context, path string, o *backing.Object, codecName string) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.files[path]
	return ok && codecName == codec.None && int64(len(content)) == o.Size && (!o.HasChecksum || checksum.Sum(content) == o.Checksum), nil
}

func (b *buffer) Keep(context.Context, string, backing.Object) error { return nil }

func (b *buffer) Create(_ context.Context, path string, o backing.Object) (File, error) {
	b.open.Add(1)
	return &memFile{b: b, path: path}, nil
}

func (b *buffer) Link(_ context.Context, path string, _ backing.Object, target string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.files[path] = []byte("link to " + target)
	return nil
}

type memFile struct {
	b       *buffer
	path    string
	mu      sync.Mutex
	content []byte
	ended   bool
}

func (f *memFile) Fill(_ context.Context, off, n int64, r io.Reader) (int64, error) {
	now := f.b.fills.Add(1)
	defer f.b.fills.Add(-1)
	for most := f.b.most.Load(); now > most && !f.b.most.CompareAndSwap(most, now); most = f.b.most.Load() {
	}
	content, err := io.ReadAll(r)
	if err == nil && n >= 0 && int64(len(content)) != n {
		err = io.ErrUnexpectedEOF
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content = append(f.content, make([]byte, max(0, int(off)+len(content)-len(f.content)))...)
	copy(f.content[off:], content)
	return int64(len(content)), err
}

func (f *memFile) Publish(_ context.Context, size int64) error {
	f.end()
	if int64(len(f.content)) != size {
		return bb.E(bb.Checksum, "publish", f.path, "has another size")
	}
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	f.b.files[f.path] = f.content
	return nil
}

func (f *memFile) Describe(backing.Object) {}

func (f *memFile) Abort() { f.end() }

func (f *memFile) end() {
	if !f.ended {
		f.ended = true
		f.b.open.Add(-1)
	}
}

func (b *buffer) Walk(_ context.Context, path string, fn func(Entry) error) error {
	for name, content := range b.files {
		if name == path || path == "" || strings.HasPrefix(name, path+"/") {
			if err := fn(Entry{Path: name, Size: int64(len(content)), Checksum: checksum.Sum(content)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *buffer) Open(_ context.Context, e Entry) (Pinned, error) {
	b.open.Add(1)
	if b.opened != nil {
		b.opened(&e)
	}
	return &pinned{backing.NewBytes(b.files[e.Path]), b, e}, nil
}

type pinned struct {
	backing.Source
	b     *buffer
	entry Entry
}

func (p *pinned) Entry() Entry { return p.entry }

func (p *pinned) Verify(context.Context) error { return p.b.bad }
func (p *pinned) Close()                       { p.b.open.Add(-1) }

func storeWith(t *testing.T, files map[string]string) *mem.Store {
	t.Helper()
	s := mem.New(backing.Owner{}, nil)
	for name, content := range files {
		if _, err := s.Put(t.Context(), name, backing.NewBytes([]byte(content)), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (b *buffer) expect(t *testing.T, want map[string]string) {
	t.Helper()
	if len(b.files) != len(want) || b.open.Load() != 0 {
		t.Errorf("%d files, %d open", len(b.files), b.open.Load())
	}
	for name, content := range want {
		if got, ok := b.files[name]; !ok || string(got) != content {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(content))
		}
	}
}

var tree = map[string]string{
	"in/a": "a", "in/d/empty": "", "in/d/large": strings.Repeat("0123456789", 1000), "inner": "not this one", "in/d/e/f": "f",
}

func TestIn(t *testing.T) {
	store := storeWith(t, tree)
	for _, test := range []struct {
		name, target string
		want         map[string]string
	}{
		{"in", "x", map[string]string{"x/a": "a", "x/d/empty": "", "x/d/large": tree["in/d/large"], "x/d/e/f": "f"}},
		{"in/", "", map[string]string{"a": "a", "d/empty": "", "d/large": tree["in/d/large"], "d/e/f": "f"}},
		{"in/d/large", "y/z", map[string]string{"y/z": tree["in/d/large"]}},
		{"", "all", map[string]string{"all/in/a": "a", "all/in/d/empty": "", "all/in/d/large": tree["in/d/large"], "all/in/d/e/f": "f", "all/inner": "not this one"}},
	} {
		b := newBuffer()
		var told Progress
		opts := InOptions{Options: Options{Range: 777, Parallel: 3, Progress: func(p Progress) { told = p }}}
		for round := range 2 {
			report, err := In(t.Context(), store, test.name, b, test.target, opts)
			if err != nil {
				t.Fatal(err)
			}
			b.expect(t, test.want)
			if n := int64(len(test.want)); report.Files != n || report.FilesDone != n || report.BytesDone != report.Bytes || told != report.Progress {
				t.Fatalf("%+v, last told %+v", report, told)
			}
			// Listings have no checksums, since sizes decide here.
			if want := int64(round) * report.Files; report.Skipped != want {
				t.Fatalf("round %d: %d skipped, want %d", round, report.Skipped, want)
			}
		}
		if most := b.most.Load(); most > 3 {
			t.Errorf("%d pieces at once", most)
		}
	}
	if _, err := In(t.Context(), store, "none", newBuffer(), "", InOptions{}); !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
}

// TestInLinks stages in symbolic links as links, and copies the same bytes of a file.
func TestInLinks(t *testing.T) {
	store := storeWith(t, map[string]string{"d/file": "target"})
	link := &backing.Attrs{Mode: fs.ModePerm | fs.ModeSymlink}
	if _, err := store.Put(t.Context(), "d/link", backing.NewBytes([]byte("target")), backing.PutOptions{Attrs: link}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		want map[string]string
	}{
		{"d", map[string]string{"x/file": "target", "x/link": "link to target"}},
		{"d/link", map[string]string{"x": "link to target"}},
	} {
		b := newBuffer()
		report, err := In(t.Context(), store, c.name, b, "x", InOptions{})
		if err != nil || report.FilesDone != int64(len(c.want)) || report.BytesDone != report.Bytes {
			t.Errorf("%+v, %v", report, err)
		}
		b.expect(t, c.want)
	}
}

// TestOutLinks stages a link out as one, over a file with the same content too, and skips it then.
func TestOutLinks(t *testing.T) {
	b, store := newBuffer(), storeWith(t, map[string]string{"l": "target"})
	b.files["l"] = []byte("target")
	link := attributed{b, backing.Attrs{Mode: fs.ModePerm | fs.ModeSymlink}}
	for round := range 2 {
		report, err := Out(t.Context(), link, "l", store, "l", Options{})
		if err != nil || report.Skipped != int64(round) {
			t.Errorf("round %d: %+v, %v", round, report, err)
		}
		if o, err := store.Stat(t.Context(), "l"); err != nil || !o.IsLink() {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// attributed is a buffer of files with attributes.
type attributed struct {
	*buffer
	attrs backing.Attrs
}

func (a attributed) Walk(ctx context.Context, path string, fn func(Entry) error) error {
	return a.buffer.Walk(ctx, path, func(e Entry) error { e.Attrs = &a.attrs; return fn(e) })
}

func (a attributed) Open(ctx context.Context, e Entry) (Pinned, error) { return a.buffer.Open(ctx, e) }

func TestDryRun(t *testing.T) {
	b, store := newBuffer(), storeWith(t, tree)
	report, err := In(t.Context(), store, "in/d", b, "x", InOptions{Options: Options{DryRun: true}})
	slices.Sort(report.Names)
	if err != nil || !slices.Equal(report.Names, []string{"x/e/f", "x/empty", "x/large"}) || report.FilesDone != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	b.expect(t, nil)
	b.files["a"] = []byte("x")
	if report, err = Out(t.Context(), b, "a", store, "new", Options{DryRun: true}); err != nil || len(report.Names) != 1 || len(store.Contents()) != len(tree) {
		t.Fatalf("%+v, %v", report, err)
	}
}

// TestFailures of some files are reported, leave nothing half there, and stop no others.
func TestFailures(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Refused, fault.Truncated} {
		store := fault.Wrap(storeWith(t, tree), fault.NewPlan(fault.Rule{Op: "get", Name: "in/d/large", Skip: 2, Count: 1, Kind: kind}))
		b := newBuffer()
		report, err := In(t.Context(), store, "in", b, "x", InOptions{Options: Options{Range: 1000}})
		if err == nil || report.Failed != 1 || len(report.Failures) != 1 || report.Failures[0].Name != "x/d/large" || report.FilesDone != 4 {
			t.Fatalf("%s: %+v, %v", kind, report, err)
		}
		b.expect(t, map[string]string{"x/a": "a", "x/d/empty": "", "x/d/e/f": "f"})
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	many := map[string]string{}
	for i := range 200 {
		many[fmt.Sprint("f", i)] = strings.Repeat("x", 6000)
	}
	b := newBuffer()
	_, err := In(ctx, cancelling{storeWith(t, many), cancel}, "", b, "", InOptions{Options: Options{Range: 1000}})
	if !errors.Is(err, bb.Cancelled) || b.open.Load() != 0 || len(b.files) > 100 {
		t.Fatalf("%v, %d files, %d open", err, len(b.files), b.open.Load())
	}
	for name, content := range b.files {
		if len(content) != 6000 {
			t.Errorf("%s is half there", name)
		}
	}
}

// cancelling cancels when one of the objects is read.
type cancelling struct {
	backing.Store
	cancel func()
}

func (c cancelling) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if off > 0 {
		c.cancel()
	}
	return c.Store.Get(ctx, name, off, n)
}

func TestCompressed(t *testing.T) {
	text := strings.Repeat("a burst ", 10_000)
	var packed bytes.Buffer
	w, err := codec.NewWriter(codec.Zstd, &packed)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	store := storeWith(t, map[string]string{"a.zst": packed.String(), "b.s2": "as it is", "bad.zst": "no frame"})
	b := newBuffer()
	report, err := In(t.Context(), store, "", b, "", InOptions{Codec: codec.Zstd})
	if !errors.Is(err, bb.Checksum) || report.Failed != 1 || report.BytesDone != report.Bytes {
		t.Fatalf("%+v, %v", report, err)
	}
	b.expect(t, map[string]string{"a": text, "b.s2": "as it is"})
}

func TestOut(t *testing.T) {
	b := newBuffer()
	for name, content := range tree {
		b.files[name] = []byte(content)
	}
	store := storeWith(t, map[string]string{"to/stays": "untouched"})
	for round := range 2 {
		report, err := Out(t.Context(), b, "in", store, "to", Options{})
		if err != nil || report.Files != 4 || report.Skipped != int64(round*4) || report.BytesDone != report.Bytes {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	got := store.Contents()
	if len(got) != 5 || string(got["to/d/large"]) != tree["in/d/large"] || string(got["to/stays"]) != "untouched" || store.Puts("to/a") != 1 {
		t.Fatalf("%d objects", len(got))
	}
	b.bad = bb.E(bb.Checksum, "verify", "inner", "damaged")
	if _, err := Out(t.Context(), b, "inner", store, "one", Options{}); !errors.Is(err, bb.Checksum) || store.Puts("one") != 0 {
		t.Fatal(err)
	}
	if _, err := Out(t.Context(), b, "none", store, "", Options{}); !errors.Is(err, bb.NotFound) {
		t.Fatal(err)
	}
	if b.open.Load() != 0 {
		t.Fatal("something stays pinned")
	}
}

// A file changes between the moments at which a stage-out finds it and opens it, as it does while a
// cluster plans. The copy gets the time of its own bytes, so that the next stage-out copies the
// file's content of then.
func TestOutWhileFileChanges(t *testing.T) {
	store, err := posix.Open(t.TempDir(), posix.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	older, newer := time.Unix(1_000_000_000, 1), time.Unix(1_000_000_000, 2)
	b := newBuffer()
	b.files["f"] = []byte("older")
	b.opened = func(e *Entry) { e.Attrs = attrs(older) }
	listed := dated{b, newer}
	for _, content := range []string{"older", "newer"} {
		b.files["f"] = []byte(content)
		if _, err := Out(t.Context(), listed, "f", store, "f", Options{}); err != nil {
			t.Fatal(err)
		}
		b.opened = nil
	}
	r, err := store.Get(t.Context(), "f", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "newer" {
		t.Errorf("the copy holds %q, of the same size as what the file holds (%v)", got, err)
	}
}

// dated is a Tree of files with one modification time.
type dated struct {
	*buffer
	mtime time.Time
}

func (d dated) Walk(ctx context.Context, path string, fn func(Entry) error) error {
	return d.buffer.Walk(ctx, path, func(e Entry) error {
		e.Attrs = attrs(d.mtime)
		return fn(e)
	})
}

func attrs(mtime time.Time) *backing.Attrs {
	return &backing.Attrs{Mode: 0o600, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), MTime: mtime}
}
