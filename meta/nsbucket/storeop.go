package nsbucket

import (
	"context"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
)

func (ns *Namespace) removalOp(ctx context.Context, e *bb.Entry) (kv.Change, error) {
	dir, paths, err := ns.pathOf(ctx, e.Parent)
	if err != nil {
		return kv.Change{}, gone(err)
	}
	return ns.removalOpIn(ctx, dir, paths, e)
}

// removalOpIn is removalOp for an entry of the directory that has a path.
func (ns *Namespace) removalOpIn(ctx context.Context, dir string, paths uint64, e *bb.Entry) (kv.Change, error) {
	op := namespace.StoreOp{
		Op: namespace.OpRemove, OldPath: join(dir, e.Name), File: e.File, IsDir: e.IsDir(), Flushed: e.Flushed, Left: e.Replaced(),
		Attempts: e.Unrecorded(),
	}
	return ns.ops.Change(ctx, op, paths)
}
