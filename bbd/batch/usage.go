package batch

import (
	"context"
	"sync/atomic"
	"time"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Usage counts a buffer's activity on this node, for a buffer of a job. It is written down with the
// job's attachment to the node every few seconds, and a daemon that is started again adds to the
// figures there. Its counts of the last seconds are missing, if it was killed. The zero value is
// ready. Its methods may be called concurrently.
type Usage struct {
	absorbed, blocked, peak, failures atomic.Int64
	dropped, droppedBytes             atomic.Int64

	mu       lockorder.Mutex[lockrank.Leaf] // guards the fields below
	flushed  int64
	flushing time.Duration
	until    time.Time // the end of the latest flush
	before   *bb.Usage // as written down before this daemon counted; nil: not read yet

	noted bb.Usage // the part of counted that was written down last (used by Controller.Run alone)
}

// Absorbed counts bytes that were committed.
func (f *Usage) Absorbed(bytes int64) { f.absorbed.Add(bytes) }

// Blocked counts the time that a writer has waited for memory.
func (f *Usage) Blocked(d time.Duration) { f.blocked.Add(int64(d)) }

// Failed counts a flush that has failed.
func (f *Usage) Failed() { f.failures.Add(1) }

// Dropped counts superseded files that were dropped from memory.
func (f *Usage) Dropped(files, bytes int64) {
	f.dropped.Add(files)
	f.droppedBytes.Add(bytes)
}

// usageEvery is how often usage is written down.
const usageEvery = 10 * time.Second

func (f *Usage) dirty(now int64) {
	for old := f.peak.Load(); now > old && !f.peak.CompareAndSwap(old, now); old = f.peak.Load() {
	}
}

// Flushed counts a flush that has ended now. Time in which several ran counts once.
func (f *Usage) Flushed(bytes int64, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	begun := now.Add(-took)
	if begun.Before(f.until) {
		begun = f.until
	}
	f.flushed += bytes
	f.flushing += max(0, now.Sub(begun))
	f.until = now
}

// counted returns this daemon's counts.
func (f *Usage) counted() bb.Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bb.Usage{
		Absorbed: f.absorbed.Load(), Blocked: time.Duration(f.blocked.Load()).Seconds(), PeakDirty: f.peak.Load(), Failures: f.failures.Load(),
		Flushed: f.flushed, Flushing: f.flushing.Seconds(), Dropped: f.dropped.Load(), DroppedBytes: f.droppedBytes.Load(),
	}
}

// onto returns that, and the earlier counts. Written are the figures that are written down now.
func (f *Usage) onto(written bb.Usage) bb.Usage {
	now := f.counted()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before == nil {
		f.before = &written
	}
	return bb.Usage{
		Absorbed: f.before.Absorbed + now.Absorbed, Blocked: f.before.Blocked + now.Blocked, PeakDirty: max(f.before.PeakDirty, now.PeakDirty),
		Failures: f.before.Failures + now.Failures, Flushed: f.before.Flushed + now.Flushed, Flushing: f.before.Flushing + now.Flushing,
		Dropped: f.before.Dropped + now.Dropped, DroppedBytes: f.before.DroppedBytes + now.DroppedBytes,
	}
}

// usageOf returns a buffer's usage on this node. written are the figures that are written down.
func (k *Controller) usageOf(name string, written bb.Usage) bb.Usage {
	b, ok := k.o.Buffers.Served(name)
	if !ok {
		return written
	}
	b.Usage().dirty(k.o.Buffers.Dirty()[name])
	return b.Usage().onto(written)
}

// addUsage brings that of this node up to now.
func (k *Controller) addUsage(l *bb.Lifetime) {
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Node == k.o.Node {
			n.Usage = k.usageOf(l.Buffer, n.Usage)
		}
	}
}

// noteUsage writes down the usage of the buffers of jobs, also of those that are gone
// since the last time.
func (k *Controller) noteUsage(ctx context.Context, lives []bb.Lifetime) {
	known := make(map[string]*bb.Lifetime, len(lives))
	for i := range lives {
		known[lives[i].Key] = &lives[i]
	}
	k.destroyed.Lock()
	buffers := k.destroyed.list
	k.destroyed.list = nil
	k.destroyed.Unlock()
	for _, b := range append(buffers, k.o.Buffers.All()...) {
		spec := b.Spec()
		if l := known[spec.Job]; l == nil || l.Buffer != spec.Name {
			continue
		}
		if err := k.noteUsageOf(ctx, spec.Job, b.Usage()); err != nil {
			k.o.Log.Debug("the usage of a job's buffer was not recorded", "buffer", spec.Name, "err", err)
		}
	}
}

func (k *Controller) noteUsageOf(ctx context.Context, job string, f *Usage) error {
	now := f.counted()
	if now == f.noted {
		return nil
	}
	err := k.o.Records.ChangeAttachment(ctx, job, k.o.Node, func(n *bb.Attachment) error {
		n.Usage = f.onto(n.Usage)
		return nil
	})
	if err == nil {
		f.noted = now
	}
	return err
}

func (k *Controller) anyDestroyed() bool {
	k.destroyed.Lock()
	defer k.destroyed.Unlock()
	return len(k.destroyed.list) > 0
}

// Destroyed keeps the counts of a job's destroyed buffer until they are written down.
func (k *Controller) Destroyed(b Buffer) {
	if b.Spec().Job == "" || k.o.Cluster == nil {
		return
	}
	k.destroyed.Lock()
	defer k.destroyed.Unlock()
	k.destroyed.list = append(k.destroyed.list, b)
}
