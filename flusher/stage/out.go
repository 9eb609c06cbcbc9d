package stage

import (
	"context"
	"path"
	"strings"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// Tree is a buffer that is staged out of. Its methods may be called concurrently.
type Tree interface {
	// Walk calls fn for the file at a path, or for every file below it.
	Walk(ctx context.Context, path string, fn func(Entry) error) error
	// Open pins a file's bytes.
	Open(ctx context.Context, e Entry) (Pinned, error)
}

// Entry is a file in a Tree.
type Entry struct {
	Path     string // clean, in the buffer
	File     bb.FileID
	Size     int64
	Checksum uint64
	Attrs    *backing.Attrs // nil: leave it to the store
}

// Pinned is a file's bytes, until Close.
type Pinned interface {
	backing.Source
	// Entry describes the bytes. They may be newer than those of the Entry that was opened.
	Entry() Entry
	// Verify checks the bytes before anything is written.
	Verify(ctx context.Context) error
	Close()
}

// Leaving is a file that is to be staged out, and the object's name that it goes to.
type Leaving struct {
	Entry Entry
	Name  string
}

// Under returns the name of the object that a file at a path goes to when a source is
// staged out under a name: exactly that, or one below it.
func Under(source, name, file string) string {
	return path.Join(name, strings.TrimPrefix(strings.TrimPrefix(file, source), "/"))
}

// Out copies the file at a path, or the tree below it, to a store: a file under
// exactly that name, a tree's files below it. Objects that are there with the same
// size and checksum are skipped, where the store keeps checksums. Nothing is ever
// removed. Errors are as those of In.
func Out(ctx context.Context, from Tree, source string, to backing.Store, name string, opts Options) (Report, error) {
	out := &stageOut{copier: newCopier(opts), from: from, to: to}
	found := false
	err := from.Walk(ctx, source, func(e Entry) error {
		found = true
		return out.start(ctx, e, Under(source, name, e.Path))
	})
	if err == nil && !found {
		err = bb.E(bb.NotFound, "stage-out", source, "there is nothing under this path")
	}
	return out.finish(ctx, "stage-out", err)
}

// OutFiles is Out for files that were found before.
func OutFiles(ctx context.Context, from Tree, files []Leaving, to backing.Store, opts Options) (Report, error) {
	out := &stageOut{copier: newCopier(opts), from: from, to: to}
	var err error
	for i := 0; i < len(files) && err == nil; i++ {
		err = out.start(ctx, files[i].Entry, files[i].Name)
	}
	return out.finish(ctx, "stage-out", err)
}

type stageOut struct {
	*copier
	from Tree
	to   backing.Store
}

func (out *stageOut) start(ctx context.Context, e Entry, name string) error {
	out.begin(e.Size)
	if err := out.acquire(ctx); err != nil {
		return err
	}
	out.wg.Go(func() {
		defer out.free()
		named := e.Path
		if out.opts.DryRun {
			named = name
		}
		out.end(named, e.Size, e.Size, out.copy(ctx, e, name))
	})
	return nil
}

// same compares an object with a file of the same size: by checksum where the store
// keeps them, else by the time that an earlier copy set.
func same(there *backing.Object, e *Entry) bool {
	if there.IsLink() != e.Attrs.IsLink() {
		return false
	}
	if there.HasChecksum {
		return there.Checksum == e.Checksum
	}
	return e.Attrs != nil && !e.Attrs.MTime.IsZero() && there.MTime.Equal(e.Attrs.MTime)
}

// keep sets the file's mode on an object that is there and equal.
func (out *stageOut) keep(ctx context.Context, there *backing.Object, e *Entry) error {
	if e.Attrs != nil && !e.Attrs.IsLink() && there.HasMode && there.Mode != e.Attrs.Mode.Perm() && !out.opts.DryRun {
		if err := out.to.SetMode(ctx, there.Name, *e.Attrs); err != nil {
			return err
		}
	}
	return errSame
}

func (out *stageOut) copy(ctx context.Context, e Entry, name string) error {
	there, err := out.to.Stat(ctx, name)
	if err == nil && there.Size == e.Size && same(&there, &e) {
		return out.keep(ctx, &there, &e)
	}
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return err
	}
	if out.opts.DryRun {
		return errDry
	}
	pinned, err := out.from.Open(ctx, e)
	if err != nil {
		return err
	}
	defer pinned.Close()
	if err := pinned.Verify(ctx); err != nil {
		return err
	}
	// The bytes' own attributes. With the time of other bytes, a later stage-out would mistake
	// these for them.
	_, err = out.to.Put(ctx, name, pinned, backing.PutOptions{Attrs: pinned.Entry().Attrs})
	return err
}
