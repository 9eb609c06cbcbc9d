// Package origin has the sources of bytes that are not in this node's memory: a file's object
// on the store, the nodes that have the file, or these one after the other. It must never depend on
// the bytes' destination.
package origin

import (
	"context"
	"io"

	"forebay/internal/bb"
)

// Origin has the bytes of one generation of a file. Its methods may be called concurrently.
type Origin interface {
	// Read calls place for each of some runs, which are in order, and ends with the first error. Where
	// it helps, several calls are under way at once. Place is called again for a run if it fails with
	// bb.Checksum and the bytes may be had otherwise.
	Read(ctx context.Context, runs []Run, place Place) error
	// Close closes the open source. The next Read opens it again.
	Close()
}

// Run is bytes [From, To) of a file.
type Run struct{ From, To int64 }

// Size is how many bytes a run has.
func (r Run) Size() int64 { return r.To - r.From }

// Place puts the bytes of a run where they belong, and verifies them. The error is bb.Checksum if
// they are not the file's. From has them in their order, and fills its argument, which may be
// leased memory.
type Place func(ctx context.Context, r Run, from io.Reader) error

// Entries is a buffer's namespace.
type Entries interface {
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
}

// Options are the means of reading the files of a buffer.
type Options struct {
	Buffer  string
	Objects Objects
	Nodes   Nodes // nil: there are no others
	Entries Entries
	Go      func(func()) // starts a goroutine that ends soon, or with the daemon
}

// Sources are the origins of a buffer's files.
type Sources struct {
	o   Options
	ctx context.Context // ends when the daemon stops
}

// New returns the origins of a buffer's files, which end with ctx.
func New(ctx context.Context, o Options) *Sources { return &Sources{o, ctx} }

func (s *Sources) address(path string) string {
	return bb.Address{Buffer: s.o.Buffer, Path: path}.String()
}

// filler has bytes of a file.
type filler interface {
	// fill fills p from an offset of the file on, or fails.
	fill(ctx context.Context, p []byte, offset int64) error
}

// reader reads a run of a file.
type reader struct {
	ctx      context.Context
	of       filler
	from, to int64
}

func (r *reader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.to-r.from)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := r.of.fill(r.ctx, p[:n], r.from); err != nil {
		return 0, err
	}
	r.from += n
	return int(n), nil
}

// placeAll calls place for runs in their order.
func placeAll(ctx context.Context, of filler, runs []Run, place Place) error {
	for _, r := range runs {
		if err := place(ctx, r, &reader{ctx, of, r.From, r.To}); err != nil {
			return err
		}
	}
	return nil
}

// Fallback reads from an owner. If the owner does not answer, or does not have the bytes any more,
// it reads them from the store, provided that the generation is there.
type Fallback struct {
	Owner  Origin
	Entry  *bb.Entry // of the file, as the owner has it
	Object *Object
}

// Read is of Origin. All runs are read from the object if the owner does not have one.
func (f *Fallback) Read(ctx context.Context, runs []Run, place Place) error {
	err := f.Owner.Read(ctx, runs, place)
	if kind := bb.KindOf(err); err == nil || ctx.Err() != nil || kind != bb.Unavailable && kind != bb.NotFound {
		return err
	}
	now, lookupErr := f.Object.Of.o.Entries.Lookup(ctx, f.Entry.Parent, f.Entry.Name)
	if lookupErr != nil || now.File != f.Entry.File || now.Flushed.Generation != f.Entry.Generation {
		return err
	}
	f.Object.use(&now)
	return f.Object.Read(ctx, runs, place)
}

// Close is of Origin.
func (f *Fallback) Close() {
	f.Owner.Close()
	f.Object.Close()
}
