package bbd

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/origin"
	"forebay/bbd/owner"
	"forebay/bbd/rpc"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A file moves to another node when its home is drained, or has too little memory:
//
//	home                                   taker
//	 hold the file's flush
//	 Take ────────────────────────────────▶ read it from the home, one-sided
//	                                        compare its checksum
//	                                        put itself into the entry (compare-and-set)
//	 forget the bytes ◀──────────────────── done
//
// Until the compare-and-set the home is the home; afterwards the taker has everything,
// recorded. Whoever has the file open for reading keeps what it opened.

// errNotConcerned ends an update of an entry that is not what it was.
var errNotConcerned = errors.New("the entry has changed")

// take makes this daemon the home of a closed file.
func (d *Daemon) take(ctx context.Context, r *rpc.Request, m *wire.Take) (proto.Message, error) {
	b, err := d.daemonsBuffer(ctx, r, "take", m.Buffer)
	if err != nil {
		return nil, err
	}
	if b.d.draining.Active() {
		return nil, bb.E(bb.Busy, "take", b.address(m.Name), "this node is being drained itself")
	}
	e, err := b.ns.Lookup(ctx, bb.DirID(m.Dir), m.Name)
	if err != nil {
		return nil, err
	}
	if m.Replica {
		return &wire.Empty{}, b.replicas.Promote(ctx, &e, bb.FileID(m.File), bb.Generation(m.Generation))
	}
	if e.File != bb.FileID(m.File) || e.Generation != bb.Generation(m.Generation) || e.Open || e.Lost || b.owners.Of(&e) != r.Session().Peer() {
		return nil, owner.Changed("take", b.address(m.Name))
	}
	stats := b.d.store.Stats()
	if m := stats.Memory; !stats.Populating && m.Free+m.Evictable < e.Size {
		return nil, bb.E(bb.NoSpace, "take", b.address(e.Name), "this node has no room for it")
	} else if m.Free < 2*e.Size {
		b.d.alloc.Evict(2*e.Size - m.Free)
	}
	if err := b.takeFile(ctx, &e); err != nil {
		return nil, bb.Wrap("take", b.address(m.Name), err)
	}
	return &wire.Empty{}, nil
}

func (b *buffer) takeFile(ctx context.Context, e *bb.Entry) error {
	if err := b.cache.BeginRestore(ctx, e.File); err != nil {
		return err
	}
	defer b.cache.EndRestore(e.File)
	// Who waited for somebody else that took it may not drop what that brought in.
	now, err := b.ns.Lookup(ctx, e.Parent, e.Name)
	if err != nil {
		return err
	}
	if now.File != e.File || now.Generation != e.Generation || b.owners.Of(&now) != b.owners.Of(e) {
		return owner.Changed("take", b.address(e.Name))
	}
	if err := b.cache.DropCopies(e.File); err != nil {
		return err
	}
	second := b.replicas.Complete(e) // then there is nothing to fetch, and nothing to let go of if it is not the home's to give
	drop := func() {
		if !second {
			b.d.store.DropGeneration(e.File, e.Generation)
		}
	}
	if !second {
		if err := b.fetchWhole(ctx, e); err != nil {
			drop()
			return err
		}
	}
	from := b.owners.Of(e)
	if err := ctx.Err(); err != nil {
		drop()
		return err
	}
	ctx = b.d.ctx // carried through: whose the bytes are must be known before any are dropped
	now, err = b.ns.Update(ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		if now.File != e.File || now.Generation != e.Generation || now.Open || now.Lost || b.owners.Of(now) != from {
			return errNotConcerned
		}
		second := owner.Replica(now)
		now.Holders = []bb.NodeID{b.d.cfg.Node}
		if second != "" && second != b.d.cfg.Node {
			now.Holders = append(now.Holders, second)
		}
		return nil
	})
	if err == errNotConcerned || bb.KindOf(err) == bb.NotFound {
		drop()
	}
	if err != nil {
		return err
	}
	if now.State() == bb.StateClean {
		return b.d.store.MarkClean(now.File, now.Generation)
	}
	b.requeue(ctx, &now)
	return nil
}

// fetchWhole brings all of a file in from its home as this store's own.
func (b *buffer) fetchWhole(ctx context.Context, e *bb.Entry) error {
	owner, _, err := b.sources.OpenAt(ctx, b.owners.Of(e), &wire.Open{Path: e.Name, File: uint64(e.File), Generation: uint64(e.Generation)})
	if err != nil {
		return err
	}
	defer owner.Close()
	// If there is no room after all, another node may have it: two that wait for each other
	// to make some would wait for long.
	w := alloc.NewWriter(b.d.alloc, memoryBuffer{b}, b.Spec().UID, bb.TierMemory)
	w.NoWait = !b.d.store.Stats().Populating // which makes room by itself
	defer w.ReleaseIdle()
	return owner.Read(ctx, []origin.Run{{From: 0, To: e.Size}}, func(ctx context.Context, _ origin.Run, from io.Reader) error {
		same, err := b.cache.Absorb(ctx, w, from, e)
		if err == nil && !same {
			err = bb.E(bb.Checksum, "take", b.address(e.Name), "what came from its home is not what its entry says")
		}
		return err
	})
}

// giveAway moves a closed file of this node to another one.
func (b *buffer) giveAway(ctx context.Context, e *bb.Entry, to bb.NodeID) error {
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		return err
	}
	held, err := b.d.flusher.Hold(ctx, b.name, path)
	if err != nil {
		return err
	}
	defer held.Release()
	if err := b.cache.SaveReaders(ctx, e.File, 0); err != nil {
		return err
	}
	// Nobody begins to write, rename or remove it meanwhile.
	at := e.Place()
	f, free := b.openAt(at, path)
	if !free {
		return bb.E(bb.Busy, "move", b.address(path), "the file is open for writing, or is being changed")
	}
	defer func() { f.retire(); f.mu.Unlock() }()
	err = b.d.cluster.Ask(ctx, to, access.Daemon(), wire.Type_TYPE_TAKE, &wire.Take{
		Buffer: b.name, Dir: uint64(e.Parent), Name: e.Name, File: uint64(e.File), Generation: uint64(e.Generation),
	}, nil)
	if err != nil {
		// The answer may have got lost after the other node became the home.
		now, lookupErr := b.ns.Lookup(b.d.ctx, e.Parent, e.Name)
		if lookupErr != nil || now.File != e.File || now.Generation != e.Generation || !b.owners.Foreign(&now) {
			return err
		}
	}
	b.dirty.Forget(e.File, e.Generation)
	b.d.flusher.Forget(b.key(e))
	b.d.store.DropGeneration(e.File, e.Generation)
	b.d.alloc.Wake()
	return nil
}

// giveAwayTo moves a file to the first of some nodes that takes it.
func (b *buffer) giveAwayTo(ctx context.Context, e *bb.Entry, takers []bb.NodeID) error {
	var err error = bb.E(bb.Unavailable, "move", b.address(e.Name), "no other node has room for it").WithRemedy("see bbctl nodes")
	for _, to := range takers {
		arrived := b.d.cluster.Sending(to, e.Size)
		err = b.giveAway(ctx, e, to)
		arrived(err)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// movesAtOnce bounds the files that are on their way to other nodes.
const movesAtOnce = 4

// moveTimeout bounds the move of one file: its taker may be full by then.
const moveTimeout = time.Minute

// moveFiles moves closed files to other nodes, the largest first, until so many bytes
// are gone, and returns how many are.
func (d *Daemon) moveFiles(ctx context.Context, bytes int64) int64 {
	type victim struct {
		b    *buffer
		at   bb.Place
		file bb.FileID
		n    bb.Generation
		near bb.NodeID
		size int64
	}
	var victims []victim
	for _, b := range d.allBuffers() {
		for file, f := range b.dirty.All() {
			victims = append(victims, victim{b: b, at: f.At, file: file, n: f.Generation, near: f.Near})
		}
	}
	for i := range victims {
		victims[i].size, _ = d.store.Size(victims[i].file, victims[i].n) // 0: gone meanwhile
	}
	slices.SortFunc(victims, func(x, y victim) int { return cmp.Compare(y.size, x.size) })
	var (
		group errgroup.Group
		moved atomic.Int64
		asked int64
	)
	group.SetLimit(movesAtOnce)
	for _, v := range victims {
		if asked >= bytes || v.size == 0 || ctx.Err() != nil {
			break
		}
		to := d.cluster.Candidates(v.size, v.near)
		if len(to) == 0 {
			continue
		}
		asked += v.size
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, moveTimeout)
			defer cancel()
			e, err := v.b.ns.Lookup(ctx, v.at.Dir, v.at.Name)
			if err == nil && e.File == v.file && e.Generation == v.n && !e.Open {
				if err = v.b.giveAwayTo(ctx, &e, to); err == nil {
					moved.Add(v.size)
				}
			}
			if err != nil && d.ctx.Err() == nil {
				d.log.Debug("moving a file to another node", "file", v.file, "err", err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return moved.Load()
}

// moveAllOut flushes what this node alone has, or moves it to other nodes.
func (d *Daemon) moveAllOut(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	specs, err := d.bufferSpecs(ctx)
	if err != nil {
		return err
	}
	for _, spec := range specs {
		b, err := d.buffer(ctx, spec.Name)
		if bb.KindOf(err) == bb.NotFound {
			continue
		}
		if err == nil {
			err = b.moveOut(ctx, to, p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveOut empties one buffer's share of this node.
func (b *buffer) moveOut(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	if len(to) > 0 {
		if err := b.moveTo(ctx, to, p); err != nil {
			return err
		}
	}
	if b.Spec().Backing != "" {
		// What cannot be flushed now is moved, so nobody waits longer than that takes.
		flushing, cancel := context.WithTimeout(ctx, b.d.cfg.Flush.DrainTimeout)
		err := b.d.work.drains.Here(flushing, drainBuffer{b})
		cancel()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	homed, err := b.unsavedHere(ctx)
	if err != nil {
		return err
	}
	p.Update(func(m *wire.Progress) {
		for i := range homed {
			m.FilesTotal++
			m.BytesTotal += homed[i].Size
		}
	})
	for i := range homed {
		if err := b.moveOne(ctx, &homed[i], p); err != nil {
			return err
		}
	}
	return nil
}

// unsavedHere returns the files that this node is the home of and that are on no store.
func (b *buffer) unsavedHere(ctx context.Context) (homed []bb.Entry, err error) {
	err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if e.Type == bb.TypeFile && !e.Lost && b.owners.Of(&e) == b.d.cfg.Node && e.State() != bb.StateClean {
			homed = append(homed, e)
		}
		return nil
	})
	return homed, err
}

// moveTo moves what is closed to the nodes that are to have it. What they do not take is
// left to be flushed, or moved elsewhere.
func (b *buffer) moveTo(ctx context.Context, to []bb.NodeID, p *transfer.Progress) error {
	homed, err := b.unsavedHere(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(movesAtOnce)
	for i := range homed {
		e := &homed[i]
		if e.Open {
			continue
		}
		group.Go(func() error {
			moving, cancel := context.WithTimeout(ctx, moveTimeout)
			defer cancel()
			if err := b.giveAwayTo(moving, e, b.d.cluster.CandidatesAmong(e.Size, to)); err != nil {
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

func (b *buffer) moveOne(ctx context.Context, e *bb.Entry, p *transfer.Progress) error {
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
	dirty, _ := b.dirty.Of(e.File)
	err = b.giveAwayTo(ctx, e, b.d.cluster.Candidates(e.Size, dirty.Near))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return p.Failed(b.address(path), e.Size, err)
	}
	return p.Update(func(m *wire.Progress) { m.FilesDone++; m.BytesDone += e.Size })
}
