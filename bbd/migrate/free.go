package migrate

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/dirty"
	"forebay/internal/bb"
)

// atOnce bounds the files that are on their way to other nodes.
const atOnce = 4

// victim is a closed file that may move.
type victim struct {
	b    *Buffer
	file bb.FileID
	size int64
	dirty.File
}

// Free moves closed files of some buffers to other nodes, the largest first, until so many bytes
// are gone, and returns how many are.
func Free(ctx context.Context, c Cluster, buffers []*Buffer, bytes int64) int64 {
	var (
		group errgroup.Group
		moved atomic.Int64
		asked int64
	)
	group.SetLimit(atOnce)
	for _, v := range victims(buffers) {
		if asked >= bytes || v.size == 0 || ctx.Err() != nil {
			break
		}
		to := c.Candidates(v.size, v.Near)
		if len(to) == 0 {
			continue
		}
		asked += v.size
		group.Go(func() error {
			if v.move(ctx, to) {
				moved.Add(v.size)
			}
			return nil
		})
	}
	_ = group.Wait()
	return moved.Load()
}

// victims returns the files that may move, the largest first. One that has gone meanwhile has size 0.
func victims(buffers []*Buffer) (all []victim) {
	for _, b := range buffers {
		for file, f := range b.p.Dirty.All() {
			if !f.Bare {
				all = append(all, victim{b: b, file: file, File: f})
			}
		}
	}
	for i := range all {
		all[i].size, _ = all[i].b.o.Store.Size(all[i].file, all[i].Generation)
	}
	slices.SortFunc(all, func(x, y victim) int { return cmp.Compare(y.size, x.size) })
	return all
}

// move moves the file to one of some nodes, and reports whether that was done.
func (v *victim) move(ctx context.Context, to []bb.NodeID) (moved bool) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e, err := v.b.p.Names.Lookup(ctx, v.At.Dir, v.At.Name)
	if err == nil && e.File == v.file && e.Generation == v.Generation && !e.Open {
		if err = v.b.moveToOne(ctx, &e, to); err == nil {
			return true
		}
	}
	if err != nil && v.b.ctx.Err() == nil {
		v.b.o.Log.Debug("moving a file to another node", "file", v.file, "err", err)
	}
	return false
}
