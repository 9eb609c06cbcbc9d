package bbd

import (
	"context"
	"strings"

	"forebay/flusher"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/meta"
)

// A directory's rename moves on the store what the buffer has flushed and nothing else. What that
// is follows from the namespace: an object below the old name is this buffer's if an entry says so
// that has its name by now, or a later operation that the store has yet to follow. Those that
// concern the same names wait for this rename, so none of them goes while it is carried out.

// traced follows an object's name through operations in their order, and reports the name that it
// has after them; or that one of them says that the object was flushed by this buffer.
func traced(object string, ops []meta.StoreOp) (now string, flushed bool) {
	for i := range ops {
		op := &ops[i]
		switch {
		case op.IsDir && op.Op == meta.OpRename:
			if within(object, op.OldPath) {
				object = op.NewPath + strings.TrimPrefix(object, op.OldPath)
			}
		case op.IsDir:
		case holds(op.OldPath, &op.Flushed, object), holds(op.OldPath, &op.Left, object),
			op.Op == meta.OpRename && holds(op.NewPath, &op.Replaced, object):
			return object, true
		}
	}
	return object, false
}

// holds reports whether an object is what was flushed of a path.
func holds(path string, f *bb.Flushed, object string) bool {
	return f.Generation != 0 && object == path+codec.Suffix(f.Codec)
}

// ours returns those objects that this buffer has flushed, of a directory's rename on the store.
func (d *Daemon) ours(ctx context.Context, name string, op flusher.StoreOp, objects []string) (ours []string, err error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	for last := uint64(0); ; {
		ops, err := b.ns.StoreOps(ctx)
		if err != nil {
			return nil, err
		}
		// An object that no entry knows may have been renamed between the two looks. The
		// operation of that is pending then.
		if len(ops) == 0 || len(objects) == 0 || ops[len(ops)-1].Seq == last {
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
			now, known := traced(object, ops)
			if !known {
				if known, err = b.flushedAs(ctx, now); err != nil {
					return nil, err
				}
			}
			if known {
				ours = append(ours, object)
			} else {
				unknown = append(unknown, object)
			}
		}
		objects = unknown
	}
}

// flushedAs reports whether the entry that an object's name stands for was flushed as that object.
func (b *buffer) flushedAs(ctx context.Context, object string) (bool, error) {
	paths := []string{object}
	if plain, name := codec.OfName(object); name != codec.None {
		paths = append(paths, plain)
	}
	for _, path := range paths {
		e, err := b.ns.Resolve(ctx, path)
		switch kind := bb.KindOf(err); {
		case kind == bb.NotFound || kind == bb.NotDirectory:
			continue
		case err != nil:
			return false, err
		}
		if f := e.Stored(); !e.IsDir() && holds(path, &f, object) {
			return true, nil
		}
	}
	return false, nil
}

// ourDirs returns those directories that this buffer has under their names after the rename of
// one that they lie in, and after what follows on it.
func (d *Daemon) ourDirs(ctx context.Context, name string, op flusher.StoreOp, dirs []string) (ours []string, err error) {
	b, err := d.buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	ops, err := b.ns.StoreOps(ctx)
	if err != nil {
		return nil, err
	}
	for len(ops) > 0 && ops[0].Revision != op.ID {
		ops = ops[1:]
	}
	for _, dir := range dirs {
		now, _ := traced(dir, ops)
		e, err := b.ns.Resolve(ctx, now)
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
