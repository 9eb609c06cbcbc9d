// Package storeop is the store's share of renames and removals: the operations, their order, and their execution.
// It must never depend on its callers, nor the flushes that wait for it.
package storeop

import (
	"context"
	"errors"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/flusher/owned"
	"forebay/internal/bb"
)

// Carrier carries operations of one buffer out on its store. It may be used concurrently.
type Carrier struct {
	// Ours returns the objects below a directory that may be the buffer's. nil means all of them. OurDirs is
	// Ours of directories.
	Ours    func(ctx context.Context, op Op, objects []string) ([]Owned, error)
	OurDirs func(ctx context.Context, op Op, dirs []string) ([]string, error)
	// Unrecorded returns the objects that may be under a name without a record.
	Unrecorded   func(object string) owned.Unrecorded
	KeepExisting bool // the buffer does not replace other writers' objects
}

// Do carries an operation out. It may be repeated.
func (c *Carrier) Do(ctx context.Context, store backing.Store, op *Op) error {
	switch {
	case op.Kind == Rename && op.Tree:
		return c.moveTree(ctx, store, op)
	case op.Kind == Rename:
		return c.renameFile(ctx, store, op)
	case op.Kind == Remove && op.Tree:
		return store.RemoveDir(ctx, op.Old)
	case op.Kind == Remove:
		return c.removeFile(ctx, store, op)
	default:
		return bb.E(bb.Invalid, "apply", op.Old, "no such operation")
	}
}

// knownOf are the buffer's own objects under the two names of a file's operation.
func (c *Carrier) knownOf(op *Op) (was, replaces owned.Known) {
	suffix := codec.Suffix(op.Codec)
	was = owned.Known{Flushed: op.Was, Unrecorded: c.Unrecorded(op.Old + suffix).And(owned.Unrecorded{Attempts: op.Attempts}), Codec: op.Codec}
	if op.Kind == Rename {
		replaces = owned.Known{Flushed: op.Replaces, Unrecorded: c.Unrecorded(op.New + suffix).And(owned.Unrecorded{Attempts: op.ReplacedAttempts}), Codec: op.Codec}
	}
	return was, replaces
}

// indifferent reports whether a file's operation applies to any object there.
func (c *Carrier) indifferent(op *Op) bool {
	of := owned.Known{Flushed: op.Was}
	return len(of.Versions())+len(op.Attempts) == 0 && !c.KeepExisting
}

// removeFile removes the object of a file from a store, if it is this buffer's.
func (c *Carrier) removeFile(ctx context.Context, store backing.Store, op *Op) error {
	object := op.Old + codec.Suffix(op.Codec)
	was, _ := c.knownOf(op)
	if c.indifferent(op) {
		return store.Remove(ctx, object)
	}
	for _, v := range was.Versions() {
		if err := store.RemoveIf(ctx, object, v); !errors.Is(err, backing.ErrForeign) {
			return err
		}
	}
	is, ours, err := was.Find(ctx, store, object, func() {})
	if err != nil || !ours {
		return err
	}
	if err = store.RemoveIf(ctx, object, is); errors.Is(err, backing.ErrForeign) {
		return owned.Changed("remove", object)
	}
	return err
}

// renameFile moves the object of a file on a store, if it is this buffer's, over an object of
// this buffer, or over any one unless the buffer keeps other writers' objects.
func (c *Carrier) renameFile(ctx context.Context, store backing.Store, op *Op) error {
	suffix := codec.Suffix(op.Codec)
	old, newName := op.Old+suffix, op.New+suffix
	was, replaces := c.knownOf(op)
	if c.indifferent(op) {
		return ignoreNotFound(store.Rename(ctx, old, newName))
	}
	is, ours, err := was.Find(ctx, store, old, func() {})
	if err != nil || !ours {
		return err
	}
	if old == newName {
		return nil
	}
	over := backing.Version{}
	if all := replaces.Versions(); len(all) > 0 {
		over = all[0]
	}
	err = store.RenameIf(ctx, old, newName, is, over)
	if !errors.Is(err, backing.ErrForeign) {
		return ignoreNotFound(err)
	}
	over, ours, err = replaces.Find(ctx, store, newName, func() {})
	if err != nil {
		return err
	}
	if !ours && over != (backing.Version{}) && c.KeepExisting && !op.Overwrite {
		return backing.Foreign("rename", newName)
	}
	if err = store.RenameIf(ctx, old, newName, is, over); errors.Is(err, backing.ErrForeign) {
		return owned.Changed("rename", old)
	}
	return ignoreNotFound(err)
}

// ignoreNotFound: a source that is missing was moved, or removed, by an earlier attempt.
func ignoreNotFound(err error) error {
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}
