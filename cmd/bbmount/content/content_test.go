package content

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/cmd/bbmount/kernel"
	"forebay/internal/bb"
)

// daemon is the owner of one file, and its opened files.
type daemon struct {
	content    []byte
	generation bb.Generation
	mtime      time.Time

	calls  []string
	moved  bool
	fails  int // of the next reads
	syncs  int
	refuse int             // that sync; 0: none
	seen   func() *Unsaved // by Closed
	last   *Unsaved
}

func (d *daemon) Open(_ context.Context, o client.OpenOptions) (File, client.Entry, error) {
	f := &opened{d: d}
	if !o.Truncate {
		f.bytes = slices.Clone(d.content)
	}
	d.calls = append(d.calls, map[bool]string{false: "open", true: "open to write"}[o.Write])
	return f, client.Entry{Size: int64(len(d.content)), ModTime: d.mtime, Generation: d.generation}, nil
}

func (d *daemon) Stat(context.Context) (client.Entry, error) {
	return client.Entry{Size: int64(len(d.content))}, nil
}

func (d *daemon) Until(_ context.Context, do func() error) error { return do() }

func (d *daemon) Moved() bool {
	moved := d.moved
	d.moved = false
	return moved
}

func (d *daemon) Closing() func(*Unsaved, error) {
	return func(u *Unsaved, err error) {
		d.calls, d.last = append(d.calls, map[bool]string{false: "kept", true: "dropped"}[err != nil]), u
	}
}

func (d *daemon) Closed() {
	if d.seen() == nil {
		d.calls = append(d.calls, "closed too late")
	}
	d.calls = append(d.calls, "closed")
}

type opened struct {
	d     *daemon
	bytes []byte
	mtime time.Time
}

var errAway = errors.New("connection lost")

func (f *opened) ReadAtContext(_ context.Context, p []byte, off int64) (int, error) {
	if f.d.fails > 0 {
		f.d.fails--
		return 0, errAway
	}
	return bytes.NewReader(f.bytes).ReadAt(p, off)
}

func (f *opened) WriteAtContext(_ context.Context, p []byte, off int64) (int, error) {
	if err := f.Extend(off + int64(len(p))); err != nil {
		return 0, err
	}
	return copy(f.bytes[off:], p), nil
}

func (f *opened) Extend(size int64) error {
	f.bytes = append(f.bytes, make([]byte, max(0, size-int64(len(f.bytes))))...)
	return nil
}

func (f *opened) SyncContext(context.Context) error {
	if f.d.syncs++; f.d.syncs == f.d.refuse {
		return errAway
	}
	f.d.content, f.d.mtime = slices.Clone(f.bytes), f.mtime
	f.d.generation++
	return nil
}

func (f *opened) SetModTime(t time.Time) error {
	f.mtime = t
	return nil
}

func (f *opened) Close() error         { return f.SyncContext(context.Background()) }
func (f *opened) Abort()               { f.d.calls = append(f.d.calls, "abort") }
func (f *opened) Alone() bb.Generation { return f.d.generation }

func newCopied(d *daemon, s kernel.Sharing) *Copied {
	c := Copy(d, new(kernel.View), s)
	d.seen = c.Unsaved
	return c
}

func read(t *testing.T, c Content) string {
	t.Helper()
	p := make([]byte, 100)
	n, err := c.ReadAt(t.Context(), p, 0)
	if !errors.Is(err, io.EOF) {
		t.Fatalf("read: %d, %v", n, err)
	}
	return string(p[:n])
}

func write(t *testing.T, c Content, p string, off int64) {
	t.Helper()
	if n, err := c.WriteAt(t.Context(), []byte(p), off); n != len(p) || err != nil {
		t.Fatalf("write: %d, %v", n, err)
	}
}

func check(t *testing.T, what string, is, want any) {
	t.Helper()
	if is != want {
		t.Errorf("%s: %v, should be %v", what, is, want)
	}
}

func (d *daemon) called(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(d.calls, want) {
		t.Errorf("calls: %q, should be %q", d.calls, want)
	}
	d.calls = nil
}

// TestReadersOpenAgain loses the connections of readers, which are opened anew, but not for ever.
func TestReadersOpenAgain(t *testing.T) {
	d := &daemon{content: []byte("old"), fails: readTries - 1}
	c := newCopied(d, kernel.CloseToOpen)
	check(t, "content", read(t, c), "old")
	d.called(t, "open", "open", "abort", "open", "abort")
	d.content = []byte("newer")
	check(t, "content of an open file", read(t, c), "old")
	c.DropReader()
	check(t, "content of a file that is opened again", read(t, c), "newer")
	d.fails = readTries
	if _, err := c.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, errAway) {
		t.Errorf("a read without any connection: %v", err)
	}

	d = &daemon{content: []byte("old")}
	c = newCopied(d, kernel.Coherent)
	check(t, "content", read(t, c), "old")
	d.content = []byte("newer")
	check(t, "content on a coherent mount", read(t, c), "newer")
}

// TestWriterCloses writes a file. The entry of the close is kept before the content stops answering.
func TestWriterCloses(t *testing.T) {
	d := &daemon{content: []byte("12345"), generation: 7}
	c := newCopied(d, kernel.CloseToOpen)
	write(t, c, "xy", 4)
	check(t, "unsaved size", c.Unsaved().Size, int64(6))
	check(t, "content", read(t, c), "1234xy")
	check(t, "content of the daemon", string(d.content), "12345")
	mtime := c.Unsaved().ModTime
	d.calls = nil
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.called(t, "kept", "closed")
	check(t, "content of the daemon", string(d.content), "1234xy")
	check(t, "time of modification", d.mtime, mtime)
	check(t, "last unsaved size", d.last.Size, int64(6))
	check(t, "unsaved state after the close", c.Unsaved(), (*Unsaved)(nil))

	write(t, c, "z", 6)
	d.called(t, "open to write")
	d.moved = true
	write(t, c, "!", 7)
	d.called(t, "kept", "closed", "open to write")
	d.refuse = d.syncs + 1
	if err := c.Release(t.Context()); !errors.Is(err, errAway) {
		t.Errorf("a close that fails: %v", err)
	}
	d.called(t, "dropped", "closed")
	check(t, "content of the daemon", string(d.content), "1234xyz")
}

// TestTruncate makes a file longer, shorter and empty.
func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		size int64
		want string
	}{{0, ""}, {2, "12"}, {5, "12345"}, {7, "12345\x00\x00"}} {
		d := &daemon{content: []byte("12345"), generation: 7}
		f := newCopied(d, kernel.CloseToOpen)
		if err := f.Truncate(t.Context(), c.size); err != nil {
			t.Fatal(err)
		}
		check(t, "unsaved size", f.Unsaved().Size, c.size)
		if err := errors.Join(f.Truncate(t.Context(), c.size), f.Release(t.Context())); err != nil {
			t.Fatal(err)
		}
		check(t, "content", string(d.content), c.want)
	}
	d := &daemon{content: []byte("12345"), refuse: 2} // the first one closes the writer
	f := newCopied(d, kernel.CloseToOpen)
	if err := f.Truncate(t.Context(), 2); !errors.Is(err, errAway) {
		t.Errorf("a truncation that fails: %v", err)
	}
	check(t, "content after a truncation that fails", read(t, f), "12345")
}

// TestDiscard drops what was written.
func TestDiscard(t *testing.T) {
	d := &daemon{content: []byte("old")}
	c := newCopied(d, kernel.CloseToOpen)
	read(t, c)
	write(t, c, "new", 0)
	d.calls = nil
	c.Discard()
	d.called(t, "abort", "closed")
	check(t, "content of the daemon", string(d.content), "old")
	check(t, "unsaved state", c.Unsaved(), (*Unsaved)(nil))
}

// TestOrphan writes a file whose name is gone, and goes on with it in another process.
func TestOrphan(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d := &daemon{content: []byte("12345")}
	c := newCopied(d, kernel.CloseToOpen)
	write(t, c, "x", 0)
	mtime := c.Unsaved().ModTime
	o, err := c.Detach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.Discard()
	check(t, "content without a name", read(t, o), "x2345")
	check(t, "its time of modification", o.Unsaved().ModTime, mtime)
	write(t, o, "yz", 4)
	check(t, "content without a name", read(t, o), "x234yz")
	check(t, "size", o.Unsaved().Size, int64(6))
	check(t, "content of the daemon", string(d.content), "x2345")

	fd, err := o.(*Orphan).Scratch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own, err := syscall.Dup(fd) // as another process has it
	if err != nil {
		t.Fatal(err)
	}
	mtime = o.Unsaved().ModTime
	o.Discard()
	again, err := Restored(os.NewFile(uintptr(own), "scratch"), mtime)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Discard()
	check(t, "content in another process", read(t, again), "x234yz")
	check(t, "its state", *again.Unsaved(), Unsaved{6, mtime})
	if err := again.Truncate(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	check(t, "content of a shorter file", read(t, again), "x2")
	check(t, "its size", again.Unsaved().Size, int64(2))
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 || err != nil {
		t.Errorf("temporary files are left: %v, %v", left, err)
	}
}
