package writeback

import (
	"context"
	"slices"
	"strings"

	"forebay/flusher/codec"
	"forebay/flusher/storeop"
	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// A directory's rename moves the buffer's flushed objects on the store and nothing else. They follow
// from the namespace. An object below the old name is this buffer's if it is in an entry that has its
// name by now, or in a later operation that the store has yet to follow. Operations that concern the
// same names wait for this rename, so none of them goes while it is carried out.

// owned gathers this buffer's objects under an object's name, by the namespace.
type owned struct {
	storeop.Owned
	flushes string // codec that the buffer flushes with
}

// add notes the flushed object of a path, and the objects that flushes may have put there without
// a record. It leaves out those with another name than the object's.
func (o *owned) add(now, path string, flushed []bb.Flushed, attempts []bb.Content) {
	for _, f := range flushed {
		if f.Generation != 0 && now == path+codec.Suffix(f.Codec) {
			o.Was, o.Codec = append(o.Was, f), f.Codec
		}
	}
	if len(attempts) > 0 && now == path+codec.Suffix(o.flushes) {
		o.Attempts, o.Codec = bb.AddContents(o.Attempts, attempts...), o.flushes
	}
}

func (o *owned) any() bool { return len(o.Was)+len(o.Attempts) > 0 }

// trace follows an object's name through operations in their order, up to one by which the
// object may be this buffer's, and returns its name at that point.
func (o *owned) trace(ops []namespace.StoreOp) (now string) {
	now = o.Object
	for i := range ops {
		op := &ops[i]
		switch {
		case op.IsDir && op.Op == namespace.OpRename:
			now = renamed(now, op)
		case !op.IsDir:
			o.add(now, op.OldPath, []bb.Flushed{op.Flushed, op.Left}, op.Attempts)
			if op.Op == namespace.OpRename {
				o.add(now, op.NewPath, []bb.Flushed{op.Replaced}, op.ReplacedAttempts)
			}
		}
		if o.any() {
			return now
		}
	}
	return now
}

// renamed is the later name of an object that has a name before the rename of a directory.
func renamed(name string, op *namespace.StoreOp) string {
	if bb.Within(name, op.OldPath) {
		return op.NewPath + strings.TrimPrefix(name, op.OldPath)
	}
	return name
}

// Ours returns those objects that may be this buffer's, of a directory's rename on the store.
func (c Catalog) Ours(ctx context.Context, name string, op storeop.Op, objects []string) (ours []storeop.Owned, err error) {
	b, err := c.Of(ctx, name)
	if err != nil {
		return nil, err
	}
	var judged []judgement // by their entries
	for last := uint64(0); ; {
		ops, err := b.names.StoreOps(ctx)
		if err != nil {
			return nil, err
		}
		// An entry that was looked up after an operation was noted may be another file's.
		newer := newerThan(ops, last)
		judged = slices.DeleteFunc(judged, func(j judgement) bool {
			uncertain := slices.ContainsFunc(newer, func(op namespace.StoreOp) bool { return concerns(&op, j.now) })
			if uncertain {
				objects = append(objects, j.Object)
			}
			return uncertain
		})
		// An object without an entry may have been renamed between the two lookups. The
		// operation of that is pending then.
		if len(objects) == 0 || len(newer) == 0 {
			for _, j := range judged {
				ours = append(ours, j.Owned)
			}
			return ours, nil
		}
		last = ops[len(ops)-1].Seq
		for len(ops) > 0 && ops[0].Revision != op.ID {
			ops = ops[1:]
		}
		if len(ops) == 0 {
			return nil, bb.E(bb.Busy, "rename", b.address(op.Old), "another node carries it out on the store")
		}
		var unknown []string
		for _, object := range objects {
			o := owned{Owned: storeop.Owned{Object: object}, flushes: b.files.Spec().Codec}
			now := o.trace(ops)
			if o.any() {
				ours = append(ours, o.Owned)
				continue
			}
			if err := b.addEntry(ctx, now, &o); err != nil {
				return nil, err
			}
			if o.any() {
				judged = append(judged, judgement{o.Owned, now})
			} else {
				unknown = append(unknown, object)
			}
		}
		objects = unknown
	}
}

// judgement is an object that is the buffer's by the entry of its present name.
type judgement struct {
	storeop.Owned
	now string
}

// newerThan returns the operations that came after one.
func newerThan(ops []namespace.StoreOp, last uint64) []namespace.StoreOp {
	i := slices.IndexFunc(ops, func(op namespace.StoreOp) bool { return op.Seq > last })
	if i < 0 {
		return nil
	}
	return ops[i:]
}

// concerns reports whether an operation changes the object of a name.
func concerns(op *namespace.StoreOp, name string) bool {
	return slices.ContainsFunc(pathsOf(op), func(p string) bool { return bb.Within(name, p) || strings.HasPrefix(name, p) })
}

// addEntry adds the objects that an object's name stands for by the entry.
func (b *Buffer) addEntry(ctx context.Context, object string, o *owned) error {
	paths := []string{object}
	if plain, name := codec.OfName(object); name != codec.None {
		paths = append(paths, plain)
	}
	for _, path := range paths {
		e, err := b.names.Resolve(ctx, path)
		switch kind := bb.KindOf(err); {
		case kind == bb.NotFound || kind == bb.NotDirectory:
			continue
		case err != nil:
			return err
		case !e.IsDir():
			if e.Type == bb.TypeSymlink {
				o.flushes = codec.None
			}
			o.add(object, path, []bb.Flushed{e.Stored()}, e.Unrecorded())
		}
	}
	return nil
}

// OurDirs returns those directories that this buffer has under their names after the rename of
// one that they lie in, and after the operations that follow it.
func (c Catalog) OurDirs(ctx context.Context, name string, op storeop.Op, dirs []string) (ours []string, err error) {
	b, err := c.Of(ctx, name)
	if err != nil {
		return nil, err
	}
	ops, err := b.names.StoreOps(ctx)
	if err != nil {
		return nil, err
	}
	for len(ops) > 0 && ops[0].Revision != op.ID {
		ops = ops[1:]
	}
	for _, dir := range dirs {
		now := dir
		for i := range ops {
			if ops[i].IsDir && ops[i].Op == namespace.OpRename {
				now = renamed(now, &ops[i])
			}
		}
		e, err := b.names.Resolve(ctx, now)
		switch kind := bb.KindOf(err); {
		case kind == bb.NotFound || kind == bb.NotDirectory:
		case err != nil:
			return nil, err
		case e.IsDir():
			ours = append(ours, dir)
		}
	}
	return ours, nil
}
