package shared

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/stream"
)

const (
	// lookEvery is how often Watch checks the state of the owner in gossip.
	lookEvery = 500 * time.Millisecond
	// damagedPause is before the next try to read a log that is damaged. Each appends a claim.
	damagedPause = 30 * time.Second
	// goneFor is for how long a log is gone before calls fail, or empty before another daemon than its owner claims it.
	goneFor = 4 * time.Second
	// releaseWithin bounds the release of a log at the end of a daemon.
	releaseWithin = 3 * time.Second
)

// Surroundings are the facts by which a Tree decides when to claim its log.
type Surroundings struct {
	// Members returns the daemons as gossip has them.
	Members func() []turn.Member
	// Destroyed reports whether the namespace, whose log is not there or damaged, was destroyed, or has another log now.
	Destroyed func(context.Context) (bool, error)
}

// Watch claims the log for this daemon when it needs an owner and it is this daemon's turn, until
// the context ends, or the namespace is destroyed.
func (t *Tree) Watch(ctx context.Context, s Surroundings) {
	var known owner.Holder
	look := true // at the log, with any report of gossip
	for ctx.Err() == nil && !errors.Is(t.gone(), kv.ErrNoBucket) {
		wait := lookEvery
		v := turn.View{Self: t.o.Node, Serving: t.serving() != nil, Members: s.Members(), Owner: ownerOf(known), Silent: t.silence()}
		if look || v.NeedsOwner() || t.gone() != nil {
			again, h, err := t.step(ctx, v.Members)
			if err == nil {
				known = h
			}
			t.judge(ctx, err, s)
			if again > 0 {
				wait = min(wait, again)
			}
			if t.gone() != nil && !errors.Is(err, stream.ErrGone) {
				wait = damagedPause
			}
		}
		t.tail.Trim(time.Now())
		t.findHolder(ctx, v.Members)
		look = t.wait(ctx, wait)
	}
}

func ownerOf(h owner.Holder) bb.NodeID {
	if h.Released {
		return ""
	}
	return h.Node
}

// wait waits for a while, and reports whether calls wait in vain meanwhile, or this daemon's engine has ended.
func (t *Tree) wait(ctx context.Context, d time.Duration) (look bool) {
	var ended <-chan struct{}
	if e := t.serving(); e != nil && e.Err() == nil {
		ended = e.Ended()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-ctx.Done():
		return false
	case <-ended:
	case <-t.vain:
		// Callers try more often than a look at the log is needed.
		select {
		case <-time.After(lookEvery / 5):
		case <-ctx.Done():
		}
	}
	return true
}

// judge records the state of the log by the error of a step: destroyed, damaged, or fine.
func (t *Tree) judge(ctx context.Context, err error, s Surroundings) {
	kind := bb.KindOf(err)
	switch {
	case err == nil:
		t.setOver(nil)
	case errors.Is(err, stream.ErrGone) || errors.Is(err, kv.ErrNoBucket):
		if destroyed, derr := s.Destroyed(ctx); derr != nil {
			return
		} else if destroyed {
			t.MarkDestroyed()
			return
		}
		if t.mayReturn(ctx) {
			return
		}
		t.damaged(bb.E(bb.Lost, "open", t.o.Buffer, "the namespace's server does not have the log").
			WithRemedy("see the warnings of the namespace server (nats:) at its start, and its disk; put a copy of the namespace server's folder back"))
	case kind == bb.Lost || kind == bb.Checksum:
		if begunAnew, derr := s.Destroyed(ctx); derr == nil && begunAnew {
			t.MarkDestroyed()
			return
		}
		t.damaged(err)
	case ctx.Err() == nil:
		t.o.Logger.Warn("the owner of a namespace cannot be determined", "buffer", t.o.Buffer, "err", err)
	}
}

// mayReturn reports whether calls wait for a log that is gone, since its owner may make it again. If this daemon owns it,
// the owner is made to detect the loss.
func (t *Tree) mayReturn(ctx context.Context) bool {
	if e := t.serving(); e != nil && e.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, t.o.Patience)
		defer cancel()
		return e.Confirm(ctx) == nil || e.Err() == nil
	}
	if is, err := t.Rouse(ctx, t.o.Patience); is || err != nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.gone.IsZero() {
		t.mu.gone = time.Now()
	}
	return time.Since(t.mu.gone) < goneFor
}

// damaged records that the log cannot be read.
func (t *Tree) damaged(err error) {
	if t.gone() == nil {
		t.o.Logger.Error("the log of a namespace cannot be read", "buffer", t.o.Buffer, "err", err)
	}
	t.setOver(err)
}

// MarkDestroyed makes the namespace answer that it is gone.
func (t *Tree) MarkDestroyed() {
	t.setOver(kv.ErrNoBucket)
	if e := t.serving(); e != nil {
		e.MarkDestroyed()
	}
}

// setOver records the reason why calls fail without an owner. A namespace that is destroyed stays
// so.
func (t *Tree) setOver(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !errors.Is(t.mu.over, kv.ErrNoBucket) {
		t.mu.over = err
	}
}

// Step claims the log if it needs an owner, and it is this daemon's turn by the members in gossip. It returns
// after how long to call it again. 0 means when a member has changed, or when calls wait in vain.
func (t *Tree) Step(ctx context.Context, members []turn.Member) (again time.Duration, err error) {
	again, _, err = t.step(ctx, members)
	return again, err
}

// step is Step that returns the owner that it has found as well.
func (t *Tree) step(ctx context.Context, members []turn.Member) (again time.Duration, h owner.Holder, err error) {
	h, err = t.newest(ctx)
	if err != nil {
		return 0, h, bb.Wrap("claim", t.o.Buffer, err)
	}
	if wait := t.emptied(h); wait > 0 {
		return wait, h, nil
	}
	v := turn.View{Self: t.o.Node, Serving: t.serving() != nil, Members: members, Owner: ownerOf(h), Silent: t.silence(), Pause: t.pause()}
	v.Missed = t.missing(h.Seq, v.NeedsOwner())
	claim, again := v.Turn(t.o.Buffer)
	if !claim {
		return again, h, nil
	}
	if err := t.Claim(ctx); err != nil {
		return 0, h, err
	}
	return 0, owner.Holder{Node: t.o.Node}, nil
}

// emptied returns how long to wait before a log is claimed that was found empty, and had records that an owner answered
// from. That owner stores them again.
func (t *Tree) emptied(h owner.Holder) time.Duration {
	if h.Seq != 0 || t.seen.Load() == 0 && (t.o.Floor == nil || t.o.Floor() == 0) {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return goneFor - time.Since(t.mu.end.since)
}

// End ends the part of this daemon in order. The next owner need not wait. Of a namespace that is destroyed there is none.
func (t *Tree) End() {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	if errors.Is(t.gone(), kv.ErrNoBucket) {
		t.Close()
		return
	}
	if err := t.Release(ctx); err != nil {
		t.o.Logger.Warn("the next owner of a namespace has to wait for this daemon's lease to end", "buffer", t.o.Buffer, "err", err)
	}
	t.Close()
	t.setOver(bb.E(bb.Unavailable, "namespace", t.o.Buffer, "the daemon is being stopped"))
}
