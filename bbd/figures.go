package bbd

import (
	"context"
	"sync/atomic"
	"time"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// figures count what a buffer of a job does on this node. They are written down with the
// job's stay on it every few seconds, and a daemon that is started again adds to what it
// finds there: what it counted in the last of them is not, if it was killed.
type figures struct {
	absorbed, blocked, peak, failures atomic.Int64

	mu       lockorder.Mutex[lockrank.Leaf] // guards what follows
	flushed  int64
	flushing time.Duration
	until    time.Time   // the end of the latest flush
	before   *bb.Figures // what was written down before this daemon counted; nil: not looked for

	noted bb.Figures // what of counted was written down last; keepLifetimes's alone
}

// figuresEvery is how often they are written down.
const figuresEvery = 10 * time.Second

func (f *figures) dirty(now int64) {
	for old := f.peak.Load(); now > old && !f.peak.CompareAndSwap(old, now); old = f.peak.Load() {
	}
}

// flush counts a flush that has ended now. Time in which several ran counts once.
func (f *figures) flush(bytes int64, took time.Duration) {
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

// counted returns what this daemon has counted.
func (f *figures) counted() bb.Figures {
	f.mu.Lock()
	defer f.mu.Unlock()
	return bb.Figures{
		Absorbed: f.absorbed.Load(), Blocked: time.Duration(f.blocked.Load()).Seconds(), PeakDirty: f.peak.Load(), Failures: f.failures.Load(),
		Flushed: f.flushed, Flushing: f.flushing.Seconds(),
	}
}

// onto returns that, and what was counted before. Written is what is written down now.
func (f *figures) onto(written bb.Figures) bb.Figures {
	now := f.counted()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.before == nil {
		f.before = &written
	}
	return bb.Figures{
		Absorbed: f.before.Absorbed + now.Absorbed, Blocked: f.before.Blocked + now.Blocked, PeakDirty: max(f.before.PeakDirty, now.PeakDirty),
		Failures: f.before.Failures + now.Failures, Flushed: f.before.Flushed + now.Flushed, Flushing: f.before.Flushing + now.Flushing,
	}
}

// figuresOf returns a buffer's figures on this node; written is what is written down.
func (d *Daemon) figuresOf(name string, written bb.Figures) bb.Figures {
	d.buffers.Lock()
	b := d.buffers.byName[name]
	d.buffers.Unlock()
	if b == nil {
		return written
	}
	b.figures.dirty(d.store.Stats().Buffers[name].Dirty)
	return b.figures.onto(written)
}

// addFigures brings those of this node up to now.
func (d *Daemon) addFigures(l *bb.Lifetime) {
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Node == d.cfg.Node {
			n.Figures = d.figuresOf(l.Buffer, n.Figures)
		}
	}
}

// noteFigures writes down what buffers of jobs have done, also of those that are gone
// since the last time.
func (d *Daemon) noteFigures(ctx context.Context, lives []bb.Lifetime) {
	known := make(map[string]*bb.Lifetime, len(lives))
	for i := range lives {
		known[lives[i].Key] = &lives[i]
	}
	d.retired.Lock()
	buffers := d.retired.list
	d.retired.list = nil
	d.retired.Unlock()
	for _, b := range append(buffers, d.allBuffers()...) {
		if l := known[b.spec().Job]; l == nil || l.Buffer != b.name {
			continue
		}
		if err := d.noteFiguresOf(ctx, b); err != nil {
			d.log.Debug("noting what a buffer has done for its job", "buffer", b.name, "err", err)
		}
	}
}

func (d *Daemon) noteFiguresOf(ctx context.Context, b *buffer) error {
	f := &b.figures
	now := f.counted()
	if now == f.noted {
		return nil
	}
	err := d.meta.BatchJobs().ChangeAttachment(ctx, b.spec().Job, d.cfg.Node, func(n *bb.LifetimeNode) error {
		n.Figures = f.onto(n.Figures)
		return nil
	})
	if err == nil {
		f.noted = now
	}
	return err
}

func (d *Daemon) anyRetired() bool {
	d.retired.Lock()
	defer d.retired.Unlock()
	return len(d.retired.list) > 0
}

// keepFigures keeps what a job's buffer that is gone has counted until it is written down.
func (d *Daemon) keepFigures(b *buffer) {
	if b.spec().Job == "" || d.cluster == nil {
		return
	}
	d.retired.Lock()
	defer d.retired.Unlock()
	d.retired.list = append(d.retired.list, b)
}
