package replica

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/internal/bb"
)

// A second copy goes with its node, or with that node's memory. The file's owner makes another one.
// At the next commit, or in the background, once gossip has reported for a while that the copy is
// gone. One goroutine does that for all buffers of a daemon, a file after the other, and no faster
// than repairRate.

const (
	// repairEvery is how often it is looked for second copies that are gone.
	repairEvery = time.Second
	// repairRate bounds the making of second copies in the background, in bytes a second, since
	// clients lack the bandwidth that it uses.
	repairRate  = 128 << 20
	repairBurst = 16 << 20
	// repairTimeout bounds the making of a small one, and of one of a file that is being written, whose
	// commits wait for it. One of a large closed file has the time besides that it needs at repairSlowest, in
	// bytes a second.
	repairTimeout = time.Minute
	repairSlowest = 16 << 20
	// pieceTime bounds the writing of each piece of one that is paced. All other copies wait for it, and
	// its leased memory at the other node is barred from all others.
	pieceTime = 30 * time.Second
)

// errNeedless ends the making of a second copy of a file that needs none any more.
var errNeedless = errors.New("no second copy of it is needed any more")

// repairTime bounds the making of a second copy of so many bytes of a closed file. A node without room is
// detected sooner, by pieceTime. So is one that does not answer, since its session breaks.
func repairTime(bytes int64) time.Duration {
	return repairTimeout + time.Duration(float64(bytes)/repairSlowest*float64(time.Second))
}

// paced waits until so many bytes may be sent in the background. Nil: there is no wait.
type paced func(ctx context.Context, bytes int64) error

// pacedBy returns the paced of a limiter, whose burst is repairBurst.
func pacedBy(limiter *rate.Limiter) paced {
	return func(ctx context.Context, bytes int64) error {
		for bytes > 0 {
			n := min(bytes, repairBurst)
			if err := limiter.WaitN(ctx, int(n)); err != nil {
				return err
			}
			bytes -= n
		}
		return nil
	}
}

// lacking is a file without its second copy.
type lacking struct {
	file   bb.FileID
	closed dirty.File // of a closed file
	open   OpenFile   // of one that is being written; nil: it is closed
	was    cluster.Incarnation
	bytes  int64 // of a closed file
}

// Lacking returns how many files that this node owns have no second copy and should have one, by
// gossip.
func (b *Buffer) Lacking() int { return len(b.underReplicated()) }

// underReplicated returns the files that this node owns and that should have a second
// copy and do not, by gossip.
func (b *Buffer) underReplicated() (list []lacking) {
	if !b.Wanted() {
		return nil
	}
	known := make(map[cluster.Incarnation]bool) // there are few nodes, and many files
	has := func(h cluster.Incarnation) bool {
		there, ok := known[h]
		if !ok {
			there = b.o.Cluster.Remains(h)
			known[h] = there
		}
		return there
	}
	open := make(map[bb.FileID]bool) // a file that is closed meanwhile is in both lists
	for _, f := range b.files.Open() {
		if !f.Published() {
			continue
		}
		open[f.File()] = true
		if at := f.Replica().At(); !has(at) {
			list = append(list, lacking{file: f.File(), open: f, was: at})
		}
	}
	for file, f := range b.dirty.All() {
		if !f.Bare && !open[file] && !has(f.Second) {
			bytes := b.size(&bb.Entry{File: file, Generation: f.Generation})
			list = append(list, lacking{file: file, closed: f, was: f.Second, bytes: bytes})
		}
	}
	// Many small files do not wait for a large one.
	slices.SortFunc(list, func(x, y lacking) int { return cmp.Compare(x.bytes, y.bytes) })
	return list
}

// Repair makes second copies again that are gone, of all buffers, until ctx ends. A node whose last gossip
// is less than grace old keeps its copies.
func Repair(ctx context.Context, c Cluster, grace time.Duration, buffers func() []*Buffer) {
	tick := time.NewTicker(repairEvery)
	defer tick.Stop()
	gone := make(map[cluster.Incarnation]time.Time) // since when
	pace := pacedBy(rate.NewLimiter(repairRate, repairBurst))
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		still := make(map[cluster.Incarnation]time.Time)
		for _, b := range buffers() {
			list, failed := b.underReplicated(), 0
			for i := range list {
				h := list[i].was
				since, ok := gone[h]
				if !ok {
					since = time.Now()
				}
				still[h] = since
				if failed == tries || ctx.Err() != nil || len(targets(c, 0, "")) == 0 {
					continue // with the next check
				}
				// One that is only started again, or has only just become silent, keeps its copies.
				if h.Node != "" && time.Since(since) < grace {
					continue
				}
				// Those before it may have lasted long. Its node may be back.
				if !b.lacks(&list[i]) {
					delete(still, h)
					continue
				}
				if !b.rereplicate(ctx, &list[i], pace) {
					failed++
				}
			}
		}
		gone = still
	}
}

// lacks reports whether a file that lacked its second copy a while ago lacks it still, by gossip.
func (b *Buffer) lacks(l *lacking) bool {
	at := l.was
	if l.open != nil {
		at = l.open.Replica().At() // a commit may have made it
	}
	return !b.o.Cluster.Remains(at)
}

// rereplicate makes one second copy again, unless that fails. A closed file's is paced piece by piece. The
// commits of one that is being written wait for its copy, which is made at once. Its bytes are waited for
// afterwards.
func (b *Buffer) rereplicate(ctx context.Context, l *lacking, pace paced) (ok bool) {
	var (
		bytes int64
		err   error
	)
	if l.open != nil {
		within, cancel := context.WithTimeout(ctx, repairTimeout)
		bytes, err = l.open.Rereplicate(within)
		cancel()
	} else {
		err = b.rereplicateClosed(ctx, l, pace)
	}
	if err != nil && b.ctx.Err() == nil {
		b.o.Log.Warn("a second copy of a file cannot be made again", "buffer", b.name, "file", l.file, "err", err)
	}
	_ = pace(ctx, bytes) // it fails with ctx, which ends the repair
	return err == nil
}

// rereplicateClosed makes the copy of a closed file.
func (b *Buffer) rereplicateClosed(ctx context.Context, l *lacking, pace paced) error {
	at := l.closed.At
	ctx, cancel := context.WithTimeout(ctx, repairTime(l.bytes))
	defer cancel()
	e, err := b.names.Lookup(ctx, at.Dir, at.Name)
	if bb.KindOf(err) == bb.NotFound {
		return nil // renamed or removed; the next check finds it
	}
	if err != nil || !l.isOf(b.o.Owners, &e) {
		return err
	}
	if made := l.closed.Unsure; made.Node == owner.Replica(&e) && b.o.Cluster.Remains(made) {
		b.setCopy(l, made) // the namespace has it, whose answer was lost
		return nil
	}
	nodes := targets(b.o.Cluster, e.Size, l.closed.Near)
	for _, node := range nodes[:min(tries, len(nodes))] {
		var h cluster.Incarnation
		h, err = b.sendWhole(ctx, &e, node, b.whileNeeded(l, pace))
		switch {
		case err == nil:
			return b.recordCopy(&e, l, h)
		case !b.needed(l):
			return nil
		case ctx.Err() != nil:
			return err
		}
	}
	return err
}

// needed reports whether the closed file that lacks a copy still waits for its flush, as the generation that
// it was.
func (b *Buffer) needed(l *lacking) bool {
	f, ok := b.dirty.Of(l.file)
	return ok && f.Generation == l.closed.Generation
}

// whileNeeded waits as pace does. If the file that lacks a copy needs none any more, it then fails
// with errNeedless.
func (b *Buffer) whileNeeded(l *lacking, pace paced) paced {
	return func(ctx context.Context, bytes int64) error {
		if err := pace(ctx, bytes); err != nil {
			return err
		}
		if !b.needed(l) {
			return errNeedless
		}
		return nil
	}
}

// isOf reports whether an entry is that of the closed file that lacks a copy.
func (l *lacking) isOf(owners owner.Node, e *bb.Entry) bool {
	return e.File == l.file && e.Generation == l.closed.Generation && e.State() == bb.StateDirty && owners.Of(e) == owners.Self
}

// recordCopy records a new second copy in the namespace. One that has come too late goes.
func (b *Buffer) recordCopy(e *bb.Entry, l *lacking, h cluster.Incarnation) error {
	var was bb.NodeID
	_, err := b.names.Update(b.ctx, e.Parent, e.Name, func(now *bb.Entry) error {
		second := owner.Replica(now)
		// It may name the node already, for a copy that was made there before, of which the answer
		// was lost.
		if !l.isOf(b.o.Owners, now) || second != owner.Replica(e) && second != h.Node {
			return errNotConcerned
		}
		was = second
		now.Holders = []bb.NodeID{b.o.Owners.Self, h.Node}
		return nil
	})
	switch {
	case err == errNotConcerned || bb.KindOf(err) == bb.NotFound:
		b.Discard(h.Node, e.File, e.Generation)
		return nil
	case err != nil:
		b.changeClosed(l, func(f *dirty.File) { f.Unsure = h })
		return err
	}
	if was != h.Node {
		b.Discard(was, e.File, e.Generation)
	}
	b.setCopy(l, h)
	return nil
}

// setCopy records which node has the second copy, as the namespace does. One at another node that the
// namespace might have had goes.
func (b *Buffer) setCopy(l *lacking, h cluster.Incarnation) {
	var unsure cluster.Incarnation
	b.changeClosed(l, func(f *dirty.File) {
		unsure = f.Unsure
		f.Second, f.Unsure = h, cluster.Incarnation{}
	})
	if unsure.Node != h.Node {
		b.Discard(unsure.Node, l.file, l.closed.Generation)
	}
}

// changeClosed changes the record of the closed file that lacks a copy, unless it has a newer generation.
func (b *Buffer) changeClosed(l *lacking, how func(*dirty.File)) {
	b.dirty.Change(l.file, func(f *dirty.File) {
		if f.Generation == l.closed.Generation {
			how(f)
		}
	})
}
