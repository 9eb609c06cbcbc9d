package change

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/freeze"
	"forebay/bbd/owner"
	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Hold rests flushes while another daemon renames or removes names.
func (v *Service) Hold(ctx context.Context, r *rpc.Request, m *wire.Hold) (proto.Message, error) {
	b, err := v.o.Daemons(ctx, r, "hold", m.Buffer)
	if err != nil {
		return nil, err
	}
	if m.Freeze {
		thaw, err := b.p.Gate.Freeze(ctx)
		if err != nil {
			return nil, err
		}
		defer func() {
			if r.Session().Context().Err() == nil {
				thaw()
			} else {
				b.thawLater(thaw)
			}
		}()
	}
	held, err := v.o.Flusher.Hold(ctx, b.name, m.Paths...)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	// An object that a cancelled flush left should be removed before the other daemon may
	// have one there. If the store does not answer, the other one does not wait for that:
	// whether it may be removed is asked again when it comes to it (writeback.Catalog.OrphanObject). Renames and
	// removals that are still to be carried out are kept in order by the namespace.
	patience, cancel := context.WithTimeout(ctx, sweptPatience)
	err = held.Swept(patience)
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

// sweptPatience is how long a hold that another daemon asks for waits for the store.
const sweptPatience = time.Second

// holdOthers makes other daemons rest the flushes that a rename would meet, until release is called: of a
// directory, all of them; of a file, the owner of what it replaces.
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

// concernedByRename returns the other daemons whose flushes a rename would meet, under some paths.
func (b *Buffer) concernedByRename(ctx context.Context, at, target bb.Place, from, to string) ([]bb.NodeID, []string, error) {
	if b.o.Cluster == nil || b.p.Spec().Backing == "" {
		return nil, nil, nil
	}
	e, err := b.p.Names.Lookup(ctx, at.Dir, at.Name)
	if err != nil {
		return nil, nil, err
	}
	if e.IsDir() {
		// One that serves, and cannot be asked to rest, fails the rename.
		return freeze.Serving(b.o.Cluster), []string{from, to}, nil
	}
	replaced, err := b.p.Names.Lookup(ctx, target.Dir, target.Name)
	if err == nil && b.o.Owners.Foreign(&replaced) && !owner.Adoptable(&replaced) {
		return []bb.NodeID{b.o.Owners.Of(&replaced)}, []string{to}, nil
	}
	return nil, nil, nil
}

// thawLater ends a freeze that another daemon asked for whose session broke. That one may
// not know yet, and act on what it has found: it finds out when this one has been silent
// for long enough.
func (b *Buffer) thawLater(thaw func()) {
	b.o.Go(func() {
		select {
		case <-time.After(2 * b.o.Silence):
		case <-b.ctx.Done():
		}
		thaw()
	})
}
