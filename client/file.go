package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"forebay/client/internal/reader"
	"forebay/client/internal/session"
	"forebay/client/internal/writer"
	"forebay/internal/bb"
	"forebay/internal/segment"
)

// MaxReserve is the largest reservation, in bytes. Where bytes travel in messages it is the limit
// of one, 4 MiB.
const MaxReserve = 16 << 20

// File is an open file. ReadAt, WriteAt, Map, Sync, Stat and Close may be called concurrently.
// Calls that use the file's position (Read, Write, Seek, Reserve, Publish, …) are carried out one
// after the other.
//
// A file opened for writing reads its own writes, committed or not.
//
// # Durability
//
// A write that returned survives nothing yet. Once Sync or Close returned, the bytes
// survive this process and the daemon's restarts, and are visible to every other process. If the
// connection breaks, the next operation connects again, for up to Options.RetryFor, opens files
// again where they were, and repeats writes that had not been acknowledged.
//
// # Contexts
//
// A File keeps the context of its Open. When that ends, blocked and later operations on
// the file fail, and its uncommitted writes are dropped.
type File struct {
	b    *Buffer
	path string
	o    OpenOptions
	ctx  context.Context // of Open; the documentation of File has the operations that it bounds

	closed atomic.Bool
	r      *reader.Reader // of a file opened for reading
	turn   sync.Mutex     // held by one operation that uses the next fields, while it waits too; all end with ctx
	w      *writer.Writer // of a file opened for writing
	pos    int64
}

// openFile opens a file whose path and options were checked.
func openFile(ctx context.Context, b *Buffer, path string, o OpenOptions) (f *File, err error) {
	f = &File{b: b, path: path, o: o, ctx: ctx}
	if o.Write {
		f.w, err = writer.Open(ctx, writer.Target{Source: b.source(), Pools: b.c.pools}, path, writer.Options{
			Create: o.Create, Exclusive: o.Exclusive, Truncate: o.Truncate, Fence: o.fence, Mode: o.Mode, ModTime: o.ModTime,
		})
	} else {
		source := b.source()
		source.Linear = o.Linear
		f.r, err = reader.Open(ctx, source, path)
	}
	if err != nil {
		return nil, err
	}
	if err := b.c.opened(f); err != nil {
		f.release()
		return nil, err
	}
	return f, nil
}

// Name returns the path with which the file was opened.
func (f *File) Name() string { return f.path }

// use begins an operation.
func (f *File) use(op string) error {
	if f.closed.Load() {
		return closedFile(op, f.b.address(f.path))
	}
	if f.ctx.Err() != nil {
		return bb.Wrap(op, f.b.address(f.path), session.Cancelled(f.ctx))
	}
	return nil
}

// begin is use by an operation that needs the file's turn. The caller returns the turn.
func (f *File) begin(op string) error {
	f.turn.Lock()
	if err := f.use(op); err != nil {
		f.turn.Unlock()
		return err
	}
	return nil
}

// beginWrite is begin of an operation that needs the file to be open for writing.
func (f *File) beginWrite(op string) error {
	if f.w == nil {
		return bb.E(bb.Permission, op, f.b.address(f.path), "the file is open for reading only").
			WithRemedy("open it with OpenOptions.Write")
	}
	return f.begin(op)
}

// Entry describes the file as it was when it was opened.
func (f *File) Entry() (Entry, error) {
	if f.w == nil {
		return asEntry(f.path, f.r.Entry), nil
	}
	if err := f.begin("stat"); err != nil {
		return Entry{}, err
	}
	defer f.turn.Unlock()
	if err := f.w.Settled(f.ctx); err != nil {
		return Entry{}, err
	}
	return asEntry(f.path, f.w.Entry()), nil
}

// Stat describes the file. Its size is that of this File, with its own writes. Sys returns the [*Entry].
func (f *File) Stat() (fs.FileInfo, error) {
	if err := f.use("stat"); err != nil {
		return nil, err
	}
	e, err := f.Entry()
	if err != nil {
		return nil, err
	}
	if e.Size, err = f.Size(); err != nil {
		return nil, err
	}
	return fileInfo{&e}, nil
}

// Size returns the size in bytes, with this File's own writes.
func (f *File) Size() (int64, error) {
	if f.w == nil {
		return f.r.Size, f.use("stat")
	}
	if err := f.begin("stat"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	return f.sizeNow()
}

// sizeNow is the size. The caller has the turn.
func (f *File) sizeNow() (int64, error) {
	if f.w == nil {
		return f.r.Size, nil
	}
	if !f.o.Truncate {
		if err := f.w.Settled(f.ctx); err != nil {
			return 0, err
		}
	}
	return f.w.Size, nil
}

// Read reads the bytes at the file's position.
func (f *File) Read(p []byte) (int, error) {
	if err := f.begin("read"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.readAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// ReadAt reads the bytes at an offset.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	if f.w == nil {
		if err := f.use("read"); err != nil {
			return 0, err
		}
		return f.r.ReadAt(f.ctx, p, off)
	}
	if err := f.begin("read"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	return f.readAt(p, off)
}

// ReadAtContext is ReadAt that waits until ctx ends, in place of the context of Open. The
// File can be used afterwards.
func (f *File) ReadAtContext(ctx context.Context, p []byte, off int64) (int, error) {
	if f.w == nil {
		if err := f.use("read"); err != nil {
			return 0, err
		}
		return f.r.ReadAt(ctx, p, off)
	}
	if err := f.begin("read"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	if off < 0 {
		return 0, bb.E(bb.Invalid, "read", f.b.address(f.path), "the offset is negative")
	}
	return f.w.ReadAt(ctx, p, off)
}

// readAt reads. The caller has the turn.
func (f *File) readAt(p []byte, off int64) (int, error) {
	if f.w == nil {
		return f.r.ReadAt(f.ctx, p, off)
	}
	if off < 0 {
		return 0, bb.E(bb.Invalid, "read", f.b.address(f.path), "the offset is negative")
	}
	return f.w.ReadAt(f.ctx, p, off)
}

// Seek sets the file's position.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	if err := f.begin("seek"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	from := int64(0)
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		from = f.pos
	case io.SeekEnd:
		size, err := f.sizeNow()
		if err != nil {
			return 0, err
		}
		from = size
	default:
		return 0, bb.E(bb.Invalid, "seek", f.b.address(f.path), fmt.Sprintf("whence is %d", whence))
	}
	if offset < -from || offset > bb.MaxFileSize-from {
		return 0, bb.E(bb.Invalid, "seek", f.b.address(f.path), fmt.Sprintf("%d bytes from %d is out of bounds", offset, from))
	}
	f.pos = from + offset
	return f.pos, nil
}

// Write writes p at the file's position, or at the end if the file was opened with
// Append. It waits only for room.
func (f *File) Write(p []byte) (int, error) {
	if err := f.beginWrite("write"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	if err := f.toEnd(); err != nil {
		return 0, err
	}
	n, err := f.w.Write(f.ctx, p, f.pos)
	f.pos += int64(n)
	return n, err
}

// toEnd moves the position of a file opened with Append to its end.
func (f *File) toEnd() error {
	if !f.o.Append {
		return nil
	}
	size, err := f.sizeNow()
	if err == nil {
		f.pos = size
	}
	return err
}

// WriteString is Write of a string, which is copied once, too.
func (f *File) WriteString(s string) (int, error) {
	if err := f.beginWrite("write"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	if err := f.toEnd(); err != nil {
		return 0, err
	}
	n, err := f.w.WriteString(f.ctx, s, f.pos)
	f.pos += int64(n)
	return n, err
}

// WriteAt writes p at an offset.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	if f.o.Append {
		return 0, bb.E(bb.Invalid, "write", f.b.address(f.path), "the file was opened with Append, which WriteAt contradicts")
	}
	if err := f.beginWrite("write"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	return f.w.Write(f.ctx, p, off)
}

// WriteAtContext is WriteAt that waits until ctx ends, in place of the context of Open. When
// ctx ends, the first n bytes are written, the rest is not, and the File can be used afterwards.
func (f *File) WriteAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if f.o.Append {
		return 0, bb.E(bb.Invalid, "write", f.b.address(f.path), "the file was opened with Append, which WriteAt contradicts")
	}
	if err := f.beginWrite("write"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	return f.w.Write(ctx, p, off)
}

// The steps in which ReadFrom reads. They are small at first, since small files need no lease.
const (
	firstStep = 16 << 10
	nextStep  = 1 << 20
)

// ReadFrom writes the bytes of r at the file's position, reading straight into leased memory. While
// r is slow, other operations on the file wait.
func (f *File) ReadFrom(r io.Reader) (int64, error) {
	if err := f.beginWrite("write"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	if err := f.toEnd(); err != nil {
		return 0, err
	}
	total := int64(0)
	for step, idle := int64(firstStep), 0; ; step = nextStep {
		n, err := f.w.ReadFrom(f.ctx, r, f.pos, step)
		f.pos += n
		total += n
		if idle++; n > 0 {
			idle = 0
		}
		switch {
		case errors.Is(err, io.EOF):
			return total, nil
		case err == nil && idle == maxIdleReads:
			return total, io.ErrNoProgress
		case err != nil:
			return total, err
		}
	}
}

// maxIdleReads is how often in a row a reader may return neither bytes nor an error.
const maxIdleReads = 100

// Reserve returns n bytes of memory, at most MaxReserve, that will be the file's next
// ones. The caller fills them and calls Publish. The memory holds anything at first. It belongs to
// the caller until Publish, the next Reserve or Close. Writes in between go elsewhere.
func (f *File) Reserve(n int) ([]byte, error) {
	if n < 0 || n > MaxReserve {
		return nil, bb.E(bb.Invalid, "reserve", f.b.address(f.path), fmt.Sprintf("%d bytes were asked for, at most %d are possible", n, MaxReserve))
	}
	if err := f.beginWrite("reserve"); err != nil {
		return nil, err
	}
	defer f.turn.Unlock()
	return f.w.Reserve(f.ctx, int64(n))
}

// Publish writes the first n bytes of a reservation without copying them. They go to the file's
// position or, if the file was opened with Append, to its end. After an error nothing may be
// reserved any more.
func (f *File) Publish(n int) error {
	if err := f.beginWrite("publish"); err != nil {
		return err
	}
	defer f.turn.Unlock()
	if reserved := f.w.ReservedLen(); int64(n) < 0 || int64(n) > reserved {
		return bb.E(bb.Invalid, "publish", f.b.address(f.path), fmt.Sprintf("%d bytes were named, %d are reserved", n, reserved))
	}
	if err := f.toEnd(); err != nil {
		return err
	}
	if err := f.w.Publish(f.ctx, int64(n), f.pos); err != nil {
		return err
	}
	f.pos += int64(n)
	return nil
}

// Map returns the bytes [off, off+n), clipped to the file's size, where they lie in
// memory. Nothing is copied, and nothing verified unless Options.VerifyAll is set (see
// Mapping.Verify). Over TCP it is a verified copy. The memory is pinned until Release. The file
// must be open for reading.
func (f *File) Map(off, n int64) (*Mapping, error) {
	if f.w != nil {
		return nil, bb.E(bb.Unsupported, "map", f.b.address(f.path), "the file is open for writing").
			WithRemedy("close it and open it for reading")
	}
	if err := f.use("map"); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 {
		return nil, bb.E(bb.Invalid, "map", f.b.address(f.path), fmt.Sprintf("%d bytes at offset %d are out of bounds", n, off))
	}
	m, err := f.r.Map(f.ctx, off, n)
	if err != nil {
		return nil, err
	}
	return &Mapping{m}, nil
}

// WriteTo writes the rest of the file to w, straight from mapped memory where it can.
func (f *File) WriteTo(w io.Writer) (int64, error) {
	if err := f.begin("read"); err != nil {
		return 0, err
	}
	defer f.turn.Unlock()
	if f.w != nil {
		return f.copyTo(w)
	}
	n, err := f.r.WriteTo(f.ctx, w, f.pos)
	f.pos += n
	return n, err
}

// copyTo is WriteTo of a file that is being written. The caller has the turn.
func (f *File) copyTo(w io.Writer) (total int64, err error) {
	p := make([]byte, segment.ExtentSize)
	for {
		n, err := f.readAt(p, f.pos)
		if n > 0 {
			k, werr := w.Write(p[:n])
			f.pos += int64(k)
			total += int64(k)
			if werr != nil {
				return total, werr
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Extend grows the file to size bytes, if it is shorter, as ftruncate(2) does: its last byte is a zero, and the
// others that nobody has written read as zeros. The next commit brings it. Bytes that other writers have committed
// until then stay.
func (f *File) Extend(size int64) error {
	if err := f.beginWrite("extend"); err != nil {
		return err
	}
	defer f.turn.Unlock()
	return f.w.Extend(size)
}

// Sync commits the file's writes. When Sync returns, they are visible to others and survive this
// process and the daemon's death. When it fails it may be called again.
func (f *File) Sync() error {
	if err := f.beginWrite("sync"); err != nil {
		return err
	}
	defer f.turn.Unlock()
	return f.w.Sync(f.ctx)
}

// SyncContext is Sync that waits until ctx ends, in place of the context of Open. When ctx ends
// first, the commit may have been carried out. The next one repeats it.
func (f *File) SyncContext(ctx context.Context) error {
	if err := f.beginWrite("sync"); err != nil {
		return err
	}
	defer f.turn.Unlock()
	return f.w.Sync(ctx)
}

// SetModTime sets the modification time that later commits of the file record, as
// OpenOptions.ModTime does. The zero time stands for the time of the commit.
func (f *File) SetModTime(t time.Time) error {
	if err := f.beginWrite("setattr"); err != nil {
		return err
	}
	defer f.turn.Unlock()
	f.w.SetModTime(t)
	return nil
}

// Close commits the file's writes and closes it. On a buffer whose durability is flushed it waits
// until the bytes are on the backing store. When Close fails, uncommitted writes are dropped. A
// second Close fails with fs.ErrClosed.
func (f *File) Close() error {
	if f.w == nil {
		if f.closed.Swap(true) {
			return closedFile("close", f.b.address(f.path))
		}
		f.r.Close()
		f.b.c.forget(f)
		return nil
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.closed.Swap(true) {
		return closedFile("close", f.b.address(f.path))
	}
	defer f.b.c.forget(f)
	if f.ctx.Err() != nil {
		f.w.Abort()
		return bb.Wrap("close", f.b.address(f.path), session.Cancelled(f.ctx))
	}
	return f.w.Close(f.ctx)
}

// Alone returns, after Close, the generation that the file was written as, if that has the content that was there when
// the file was opened and this File's writes, and nothing else. It returns 0 if that is not certain, or not so.
func (f *File) Alone() bb.Generation {
	f.turn.Lock()
	defer f.turn.Unlock()
	if f.w == nil || !f.closed.Load() || !f.w.Alone() {
		return 0
	}
	return f.w.Generation()
}

// Abort closes the file and drops uncommitted writes. After Close it does
// nothing, so that it can be deferred.
func (f *File) Abort() error {
	f.release()
	f.b.c.forget(f)
	return nil
}

// release closes the file without a request.
func (f *File) release() {
	if f.w == nil {
		f.closed.Store(true)
		f.r.Close()
		return
	}
	f.turn.Lock()
	defer f.turn.Unlock()
	if !f.closed.Swap(true) {
		f.w.Abort()
	}
}
