package owner

import (
	"context"
	"errors"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/table"
)

const (
	firstPause = 100 * time.Millisecond // before the second try in a row to open a log again
	longPause  = 10 * time.Second       // before later ones, at most
	calm       = time.Minute            // an owner that has served for so long has ended by another fault
)

// Keeper is an owner, and the next one where that has ended: by an error of its log, or since somebody
// else has claimed that. It is safe for concurrent use.
//
//	         an error of the log            the next call, after a pause that grows
//	serving ─────────────────────▶ ended ─────────────────────────────────────────────▶ serving
//	   │                             │ ▲                   │
//	   │                             │ └── it fails ───────┘ that call, and those that waited for it, fail
//	   └──── Close, MarkDestroyed ───┴──▶ over
//
// A change that no round of the ended owner had taken is carried out by the next one. One that was
// appended without an answer fails as one of unknown outcome: the next owner reads from the log
// whether it was carried out.
type Keeper struct {
	log     Log
	o       Options
	reopen  bool
	opening chan struct{} // has an element while the log is opened again

	mu struct {
		sync.Mutex
		owner    *Owner
		opened   time.Time // when the newest owner was, or was to be
		failures int       // tries in a row
		tries    int       // in all
		last     error     // of the newest try
		over     bool
	}
}

// Keep opens a log as Open does. With Options.Reopen, it is opened again when its owner has ended.
func Keep(ctx context.Context, log Log, o Options) (*Keeper, error) {
	w, err := Open(ctx, log, o)
	if err != nil {
		return nil, err
	}
	k := &Keeper{log: log, o: w.o, reopen: o.Reopen, opening: make(chan struct{}, 1)}
	k.mu.owner, k.mu.opened = w, time.Now()
	return k, nil
}

// current returns the newest owner, and how many tries to open another one there have been.
func (k *Keeper) current() (*Owner, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.owner, k.mu.tries
}

// ended reports whether an owner has ended that another one is to follow.
func (k *Keeper) ended(w *Owner) bool {
	err := w.Err()
	if err == nil || !k.reopen || errors.Is(err, kv.ErrNoBucket) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.mu.over
}

// serving returns an owner that serves, opened if need be.
func (k *Keeper) serving(ctx context.Context, op, path string) (*Owner, error) {
	w, tries := k.current()
	if !k.ended(w) {
		return w, nil
	}
	select {
	case k.opening <- struct{}{}:
		defer func() { <-k.opening }()
	case <-ctx.Done():
		return nil, w.gaveUp(ctx, op, path)
	}
	if now, since := k.current(); now != w {
		return now, nil
	} else if since != tries {
		return nil, k.failed(op, path)
	}
	if err := k.pause(ctx); err != nil {
		return nil, w.gaveUp(ctx, op, path)
	}
	if err := k.again(ctx, w); err != nil {
		return nil, k.failed(op, path)
	}
	w, _ = k.current()
	return w, nil
}

// failed is the error of a call that the log cannot be opened for.
func (k *Keeper) failed(op, path string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &bb.Error{Kind: bb.Unavailable, Op: op, Path: path, Err: k.mu.last, Remedy: "the namespace is opened again by a later call; see the daemon's log for what ended it"}
}

// pause waits before a try.
func (k *Keeper) pause(ctx context.Context) error {
	k.mu.Lock()
	if time.Since(k.mu.opened) > calm {
		k.mu.failures = 0
	}
	wait := time.Duration(0)
	if n := k.mu.failures; n > 0 {
		wait = time.Until(k.mu.opened.Add(min(firstPause<<min(n-1, 16), longPause)))
	}
	k.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again opens the log in the place of an owner that has ended.
func (k *Keeper) again(ctx context.Context, old *Owner) error {
	why := old.Err()
	old.Close() // before what follows changes what both share
	w, err := Open(ctx, k.log, k.o)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.failures++
	k.mu.tries++
	k.mu.opened, k.mu.last = time.Now(), err
	switch {
	case err != nil:
		k.o.Logger.Error("the namespace cannot be opened again", "buffer", k.o.Buffer, "ended", why, "err", err)
		return err
	case k.mu.over:
		w.Close()
		return errClosed
	}
	k.mu.owner = w
	k.o.Logger.Warn("the namespace is served again", "buffer", k.o.Buffer, "ended", why)
	return nil
}

// Do is Owner.Do. What an owner that has ended had not taken is carried out by the next one.
func (k *Keeper) Do(ctx context.Context, op, name string, run func(*Round) error) error {
	for {
		w, err := k.serving(ctx, op, name)
		if err != nil {
			return err
		}
		if err = w.Do(ctx, op, name, run); !notCarriedOut(err) || !k.ended(w) {
			return err
		}
	}
}

// notCarriedOut reports whether an error is of a change that is not in the log, since its owner had ended.
func notCarriedOut(err error) bool {
	return errors.Is(err, errUntaken) || errors.Is(err, ErrReplaced) && !errors.Is(err, bb.ErrUnknownOutcome)
}

// Read is Owner.Read.
func (k *Keeper) Read(ctx context.Context, op, path string, fn func(*table.Table) error) error {
	for {
		w, err := k.serving(ctx, op, path)
		if err != nil {
			return err
		}
		if err = w.Read(ctx, op, path, fn); err == nil || !k.ended(w) {
			return err
		}
	}
}

// Confirm is Owner.Confirm.
func (k *Keeper) Confirm(ctx context.Context, path string) error {
	w, err := k.serving(ctx, "confirm", path)
	if err != nil {
		return err
	}
	return w.Confirm(ctx, path)
}

// Checkpoint is Owner.Checkpoint.
func (k *Keeper) Checkpoint(ctx context.Context) error {
	w, err := k.serving(ctx, "checkpoint", k.o.Buffer)
	if err != nil {
		return err
	}
	return w.Checkpoint(ctx)
}

// Close ends the ownership for good, as Owner.Close does.
func (k *Keeper) Close() { k.end().Close() }

// Release is Owner.Release.
func (k *Keeper) Release(ctx context.Context) error { return k.end().Release(ctx) }

// MarkDestroyed makes the namespace answer that it is gone.
func (k *Keeper) MarkDestroyed() { k.end().MarkDestroyed() }

// end keeps the log from being opened again.
func (k *Keeper) end() *Owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.over = true
	return k.mu.owner
}

// Ended is closed when the newest owner serves no more.
func (k *Keeper) Ended() <-chan struct{} {
	w, _ := k.current()
	return w.Ended()
}

// Err returns why the newest owner serves no more, or nil.
func (k *Keeper) Err() error {
	w, _ := k.current()
	return w.Err()
}
