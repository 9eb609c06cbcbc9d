package migrate

import (
	"context"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Empty flushes this node's only copies of the buffer's files, or moves them to other nodes (first
// to those in to, if there are any). Files that are open for writing, and those that no node
// accepts, are named in p.
func (b *Buffer) Empty(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	if len(to) > 0 {
		if err := b.moveAmong(ctx, to, p); err != nil {
			return err
		}
	}
	if b.p.Spec().Backing != "" {
		// Files that cannot be flushed now are moved, so the caller waits no longer than that takes.
		flushing, cancel := context.WithTimeout(ctx, b.o.Flush)
		err := b.p.Files.Flush(flushing)
		cancel()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	left, err := b.unsaved(ctx)
	if err != nil {
		return err
	}
	p.Update(func(m *wire.Progress) {
		for i := range left {
			m.FilesTotal++
			m.BytesTotal += left[i].Size
		}
	})
	for i := range left {
		if err := b.moveOne(ctx, &left[i], p); err != nil {
			return err
		}
	}
	return nil
}

// unsaved returns the files that this node owns and that are on no store.
func (b *Buffer) unsaved(ctx context.Context) (left []bb.Entry, err error) {
	err = b.p.Names.ScanAll(ctx, func(e bb.Entry) error {
		if !e.IsDir() && !e.Lost && b.o.Owners.Of(&e) == b.o.Owners.Self && e.State() != bb.StateClean {
			left = append(left, e)
		}
		return nil
	})
	return left, err
}

// moveAmong moves closed files to the nodes that are to have them. Files that they do not accept are
// left to be flushed, or moved elsewhere.
func (b *Buffer) moveAmong(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	left, err := b.unsaved(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range left {
		e := &left[i]
		if e.Open {
			continue
		}
		group.Go(func() error {
			moving, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			if err := b.moveToOne(moving, e, b.o.Cluster.CandidatesAmong(e.Size, to)); err != nil {
				return ctx.Err()
			}
			return p.Update(func(m *wire.Progress) {
				m.FilesTotal++
				m.BytesTotal += e.Size
				m.FilesDone++
				m.BytesDone += e.Size
			})
		})
	}
	return group.Wait()
}

// moveOne moves a file to any node that accepts it.
func (b *Buffer) moveOne(ctx context.Context, e *bb.Entry, p *transfer.Progress) error {
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		return nil // removed meanwhile
	}
	if e.Open {
		return p.Update(func(m *wire.Progress) {
			m.OpenTotal++
			if len(m.Open) < transfer.MaxNamed {
				m.Open = append(m.Open, b.address(path))
			}
		})
	}
	closed, _ := b.p.Dirty.Of(e.File)
	err = b.moveToOne(ctx, e, b.o.Cluster.Candidates(e.Size, closed.Near))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return p.Failed(b.address(path), e.Size, err)
	}
	return p.Update(func(m *wire.Progress) { m.FilesDone++; m.BytesDone += e.Size })
}
