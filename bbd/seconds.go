package bbd

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A second copy goes with its node, or with that node's memory. The file's home makes
// another one: at the next commit, or in the background, once gossip has said for a while
// that the copy is gone. One goroutine does that for all buffers of a daemon, a file
// after the other, and no faster than secondRate.

// secondsFor returns the nodes to ask to keep a second copy of so many bytes.
func secondsFor(c *cluster.Cluster, bytes int64, near bb.NodeID) []bb.NodeID {
	return slices.DeleteFunc(c.Candidates(bytes, near), func(node bb.NodeID) bool {
		m, ok := c.Member(node)
		return !ok || !cluster.Supports(&m, wire.VersionReplicas)
	})
}

const (
	// secondsEvery is how often it is looked for second copies that are gone.
	secondsEvery = time.Second
	// secondRate bounds the making of second copies in the background, in bytes a second:
	// what goes over the network for it, clients do not have.
	secondRate  = 128 << 20
	secondBurst = 16 << 20
)

// lacking is a file without its second copy.
type lacking struct {
	file   bb.FileID
	closed dirty.File // of a closed file
	open   *openFile  // of one that is being written; nil: it is closed
	was    cluster.Incarnation
}

// underReplicated returns the files whose home this node is that should have a second
// copy and do not, as far as gossip knows.
func (b *buffer) underReplicated() (list []lacking) {
	if b.d.cluster == nil || b.Spec().Replicas < 2 {
		return nil
	}
	known := make(map[cluster.Incarnation]bool) // there are few nodes, and many files
	has := func(h cluster.Incarnation) bool {
		there, ok := known[h]
		if !ok {
			there = b.d.cluster.Remains(h)
			known[h] = there
		}
		return there
	}
	open := make(map[bb.FileID]bool) // a file that is closed meanwhile is in both lists
	for _, f := range b.open.all() {
		if !f.published.Load() {
			continue
		}
		open[f.file] = true
		var at cluster.Incarnation
		if second := f.second.Load(); second != nil {
			at = *second
		}
		if !has(at) {
			list = append(list, lacking{file: f.file, open: f, was: at})
		}
	}
	for file, f := range b.dirty.All() {
		if !open[file] && !has(f.Second) {
			list = append(list, lacking{file: file, closed: f, was: f.Second})
		}
	}
	return list
}

// keepSeconds makes second copies again that are gone.
func (d *Daemon) keepSeconds() {
	tick := time.NewTicker(secondsEvery)
	defer tick.Stop()
	gone := make(map[cluster.Incarnation]time.Time) // since when
	pace := rate.NewLimiter(secondRate, secondBurst)
	for {
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return
		}
		still := make(map[cluster.Incarnation]time.Time)
		for _, b := range d.allBuffers() {
			list, failed := b.underReplicated(), 0
			for i := range list {
				h := list[i].was
				since, ok := gone[h]
				if !ok {
					since = time.Now()
				}
				still[h] = since
				if failed == replicaTries || d.ctx.Err() != nil || len(secondsFor(d.cluster, 0, "")) == 0 {
					continue // with the next look
				}
				// One that is only started again, or has only just not been heard of, keeps its copies.
				if h.Node != "" && time.Since(since) < d.cfg.ResumeGrace {
					continue
				}
				if !b.makeSecond(d.ctx, &list[i], pace) {
					failed++
				}
			}
		}
		gone = still
	}
}

// makeSecond makes one second copy again, unless that fails.
func (b *buffer) makeSecond(ctx context.Context, l *lacking, pace *rate.Limiter) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	var (
		bytes int64
		err   error
	)
	if l.open != nil {
		bytes, err = l.open.makeSecond(ctx)
	} else {
		bytes, err = b.makeSecondOf(ctx, l)
	}
	if err != nil && b.d.ctx.Err() == nil {
		b.d.log.Warn("a second copy of a file cannot be made again", "buffer", b.name, "file", l.file, "err", err)
	}
	for bytes > 0 && ctx.Err() == nil {
		n := min(bytes, secondBurst)
		if pace.WaitN(b.d.ctx, int(n)) != nil {
			break
		}
		bytes -= n
	}
	return err == nil
}

// makeSecond is the buffer's of a file that is being written. While somebody commits,
// that makes the copy.
func (f *openFile) makeSecond(ctx context.Context) (bytes int64, err error) {
	if !f.mu.TryLock() {
		return 0, nil
	}
	defer f.mu.Unlock()
	if f.gone || f.removed || !f.committed || len(secondsFor(f.buf.d.cluster, f.size(), f.near)) == 0 {
		return 0, nil
	}
	if f.replica != nil {
		f.replica.behind = true
	}
	if err := f.replicate(ctx, nil); err != nil {
		return 0, err
	}
	return f.size(), f.publish(ctx)
}

// makeSecondOf makes the copy of a closed file.
func (b *buffer) makeSecondOf(ctx context.Context, l *lacking) (bytes int64, err error) {
	at := l.closed.At
	e, err := b.ns.Lookup(ctx, at.Dir, at.Name)
	if bb.KindOf(err) == bb.NotFound {
		return 0, nil // renamed or removed: the next look knows
	}
	if err != nil || !b.wantsSecond(&e, l) {
		return 0, err
	}
	if now := b.d.cluster.Incarnation(owner.Replica(&e)); now.Node != l.was.Node && b.d.cluster.Remains(now) {
		b.setSecond(l, now) // made, and the answer of the namespace was lost
		return 0, nil
	}
	for _, node := range secondsFor(b.d.cluster, e.Size, l.closed.Near) {
		h := b.d.cluster.Incarnation(node)
		if err = b.sendWhole(ctx, &e, node); err == nil {
			return e.Size, b.recordSecond(&e, l, h)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return 0, err
}

// wantsSecond reports whether an entry is that of the file that lacks a copy.
func (b *buffer) wantsSecond(e *bb.Entry, l *lacking) bool {
	return e.File == l.file && e.Generation == l.closed.Generation && e.State() == bb.StateDirty && b.owners.Of(e) == b.d.cfg.Node
}

// recordSecond tells the namespace of a new second copy. One that has come too late goes.
func (b *buffer) recordSecond(e *bb.Entry, l *lacking, h cluster.Incarnation) error {
	var was bb.NodeID
	_, err := b.ns.Update(b.d.ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		if !b.wantsSecond(now, l) || owner.Replica(now) != owner.Replica(e) {
			return errNotConcerned
		}
		was = owner.Replica(now)
		now.Holders = []bb.NodeID{b.d.cfg.Node, h.Node}
		return nil
	})
	switch {
	case err == errNotConcerned || bb.KindOf(err) == bb.NotFound:
		b.discardAt(h.Node, e.File, e.Generation)
		return nil
	case err != nil:
		return err
	}
	if was != h.Node {
		b.discardAt(was, e.File, e.Generation)
	}
	b.setSecond(l, h)
	return nil
}

// setSecond remembers who has the second copy.
func (b *buffer) setSecond(l *lacking, h cluster.Incarnation) {
	b.dirty.Change(l.file, func(f *dirty.File) {
		if f.Generation == l.closed.Generation {
			f.Second = h
		}
	})
}

// sendWhole sends a node all that a generation of this node shows.
func (b *buffer) sendWhole(ctx context.Context, e *bb.Entry, node bb.NodeID) error {
	snap, err := b.d.store.Snapshot(e.File, e.Generation)
	if err != nil {
		return err
	}
	defer snap.Close()
	pinned, extents, err := b.cache.View(e, snap).Pin(ctx, 0, snap.Size())
	if err != nil {
		return err
	}
	defer pinned.Release()
	var list []*wire.NewExtent
	var bytes [][]byte
	for i := range extents {
		x := &extents[i]
		if x.State == store.Hole {
			continue
		}
		sum, err := snap.PieceSum(x)
		if err != nil {
			return err
		}
		pieces, err := snap.Slices(x.FileOffset, x.Length, nil)
		if err != nil {
			return err
		}
		list = append(list, &wire.NewExtent{FileOffset: x.FileOffset, Length: x.Length, Checksum: sum})
		bytes = append(bytes, pieces[0]) // an extent is one piece of memory
	}
	return b.sendReplica(ctx, node, e.File, e.Generation, true, list, bytes)
}

// hasSecond reports whether this node has the second copy of a closed file, all of it.
func (b *buffer) hasSecond(e *bb.Entry) bool {
	if owner.Replica(e) != b.d.cfg.Node {
		return false
	}
	sum, size, err := b.d.store.Checksum(e.File, e.Generation)
	return err == nil && sum == e.Checksum && size == e.Size && b.d.store.Seal(e.File, e.Generation) == nil
}

// makeWay forgets the copy of a generation that this node has for its readers, before it
// gets the second copy. Busy if somebody reads it.
func (b *buffer) makeWay(file bb.FileID, n bb.Generation) error {
	if !b.cache.ForgetIdle(file, n) {
		return bb.E(bb.Busy, "replicate", b.address(""), fmt.Sprintf("somebody reads a copy of file %v here", file))
	}
	return nil
}
