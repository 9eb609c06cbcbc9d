package change

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/bbd/freeze"
	"forebay/bbd/owner"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Hold pauses flushes while another daemon renames or removes names.
func (v *Service) Hold(ctx context.Context, r call.Request, m *wire.Hold) (proto.Message, error) {
	b, err := v.o.Daemons(ctx, r, "hold", m.Buffer)
	if err != nil {
		return nil, err
	}
	if m.Freeze {
		thaw, err := b.p.Gate.Freeze(ctx)
		if err != nil {
			return nil, err
		}
		defer b.endHold(r, thaw)
	}
	held, err := v.o.Flusher.Hold(ctx, b.name, m.Paths...)
	if err != nil {
		return nil, err
	}
	defer b.endHold(r, held.Release)
	// An object of a cancelled flush should be removed before the other daemon may have one there. If the store
	// does not answer, the other daemon does not wait for that. The right to remove the object is checked again
	// right before (writeback.Catalog.OrphanObject). The namespace keeps pending renames and removals in order.
	patience, cancel := context.WithTimeout(ctx, cleanupPatience)
	err = held.CleanedUp(patience)
	cancel()
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err := r.More(&wire.Empty{}, nil); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return &wire.Empty{}, nil
}

// cleanupPatience bounds the wait for the store of a hold for another daemon.
const cleanupPatience = time.Second

// holdOthers pauses the flushes of other daemons that conflict with a rename, until release is called. For
// a directory, these are the flushes of all daemons. For a file, they are those of the owner of the file
// that it replaces.
func (b *Buffer) holdOthers(ctx context.Context, at, target bb.Place, from, to string) (release func(), err error) {
	nodes, paths, err := b.concernedByRename(ctx, at, target, from, to)
	if err != nil || len(nodes) == 0 {
		return func() {}, err
	}
	there, err := freeze.There(ctx, b.o.Cluster, nodes, &wire.Hold{Buffer: b.name, Paths: paths})
	if err != nil {
		return nil, err
	}
	return there.Release, nil
}

// concernedByRename returns the other daemons whose flushes conflict with a rename, under some paths.
func (b *Buffer) concernedByRename(ctx context.Context, at, target bb.Place, from, to string) ([]bb.NodeID, []string, error) {
	if b.o.Cluster == nil || b.p.Spec().Backing == "" {
		return nil, nil, nil
	}
	e, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
	if err != nil {
		return nil, nil, err
	}
	if e.IsDir() {
		// If a serving daemon cannot be paused, the rename fails.
		return freeze.Serving(b.o.Cluster), []string{from, to}, nil
	}
	replaced, err := b.p.Names.Lookup(ctx, target.Dir, target.Name)
	if err == nil && b.o.Owners.OwnedElsewhere(&replaced) && !owner.Adoptable(&replaced) {
		return []bb.NodeID{b.o.Owners.Of(&replaced)}, []string{to}, nil
	}
	return nil, nil, nil
}

// endHold ends a freeze or a hold for another daemon: later if its session broke. That daemon may not have
// detected this yet, and may act on its findings, or change names. It detects it once this one has been silent for
// long enough.
func (b *Buffer) endHold(r call.Request, end func()) {
	if !r.SessionEnded() {
		end()
		return
	}
	b.o.Go(func() {
		select {
		case <-time.After(2 * b.o.Silence):
		case <-b.ctx.Done():
		}
		end()
	})
}
