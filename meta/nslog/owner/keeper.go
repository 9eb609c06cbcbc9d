package owner

import (
	"context"
	"errors"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/table"
	"forebay/meta/retry"
)

const (
	firstPause = 100 * time.Millisecond // before the second try in a row to open a log again
	longPause  = 10 * time.Second       // before later ones, at most
	calm       = time.Minute            // an owner that has served for so long has ended by another fault
)

// Keeper is an owner, and the next one where that has ended: by an error of its log, or since
// another owner has claimed that. It is safe for concurrent use.
//
//	         an error of the log            the next call, after a pause that grows
//	serving ─────────────────────▶ ended ─────────────────────────────────────────────▶ serving
//	   │                             │ ▲                   │
//	   │                             │ └── it fails ───────┘ that call, and those that waited for it, fail
//	   └──── Close, MarkDestroyed ───┴──▶ over
//
// A change that no round of the ended owner had taken is carried out by the next one. A change that
// was appended without an answer fails as one of unknown outcome. The next owner reads from the log
// whether it was carried out.
type Keeper struct {
	log    Log
	o      Options
	reopen bool
	ctx    context.Context // of tries
	cancel context.CancelFunc
	trying sync.WaitGroup

	mu struct {
		sync.Mutex
		owner    *Owner
		try      *try      // that is under way; nil: none is
		opened   time.Time // when the newest owner was, or was to be
		failures int       // tries in a row
		over     bool
	}
}

// try is a try to open a log again, for all calls that come before it ends.
type try struct {
	done chan struct{}
	err  error // when done is closed
}

// Keep opens a log as Open does. With Options.Reopen, it is opened again when its owner has ended.
func Keep(ctx context.Context, log Log, o Options) (*Keeper, error) {
	w, err := Open(ctx, log, o)
	if err != nil {
		return nil, err
	}
	k := &Keeper{log: log, o: w.o, reopen: o.Reopen}
	k.ctx, k.cancel = context.WithCancel(context.WithoutCancel(ctx))
	k.mu.owner, k.mu.opened = w, time.Now()
	return k, nil
}

// current returns the newest owner.
func (k *Keeper) current() *Owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.owner
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
	w := k.current()
	if !k.ended(w) {
		return w, nil
	}
	t := k.begin(w)
	if t == nil {
		return k.current(), nil
	}
	select {
	case <-t.done:
	case <-ctx.Done():
		return nil, w.gaveUp(ctx, op, path)
	}
	if t.err != nil {
		return nil, failed(op, path, t.err)
	}
	return k.current(), nil
}

// begin returns the try to open the log in the place of an owner that has ended, or nil if there is
// another owner, or is to be none. It continues when its callers stop waiting, since there is no
// bound on the time to read a log.
func (k *Keeper) begin(old *Owner) *try {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.owner != old || k.mu.over {
		return nil
	}
	if k.mu.try == nil {
		t := &try{done: make(chan struct{})}
		k.mu.try = t
		k.trying.Go(func() { k.again(t, old) })
	}
	return k.mu.try
}

// failed is the error of a call that the log cannot be opened for.
func failed(op, path string, why error) error {
	switch bb.KindOf(why) {
	case bb.Lost, bb.Checksum, bb.Unsupported: // no later call changes that
		return bb.Wrap(op, path, why)
	}
	return &bb.Error{Kind: bb.Unavailable, Op: op, Path: path, Err: why, Remedy: "the namespace is opened again by a later call; see the daemon's log for the reason"}
}

// pause waits before a try.
func (k *Keeper) pause() {
	k.mu.Lock()
	if time.Since(k.mu.opened) > calm {
		k.mu.failures = 0
	}
	wait := time.Duration(0)
	if n := k.mu.failures; n > 0 {
		wait = time.Until(k.mu.opened.Add(min(firstPause<<min(n-1, 16), longPause)))
	}
	k.mu.Unlock()
	retry.Sleep(k.ctx, wait)
}

// again is a try to open the log in the place of an owner that has ended.
func (k *Keeper) again(t *try, old *Owner) {
	k.pause()
	why := old.Err()
	old.Close() // before the next line changes the state that both share
	w, err := Open(k.ctx, k.log, k.o)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.failures++
	k.mu.opened, k.mu.try = time.Now(), nil
	switch {
	case err == nil:
		k.mu.owner = w
		k.o.Logger.Warn("the namespace is served again", "buffer", k.o.Buffer, "ended", why)
	case k.ctx.Err() == nil:
		k.o.Logger.Error("the namespace cannot be opened again", "buffer", k.o.Buffer, "ended", why, "err", err)
	}
	t.err = err
	close(t.done)
}

// Do is Owner.Do. Changes that an owner had not taken when it ended are carried out by the next
// one.
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

// end keeps the log from being opened again, waits for a try that is under way, and returns the last owner.
func (k *Keeper) end() *Owner {
	k.mu.Lock()
	k.mu.over = true
	k.mu.Unlock()
	k.cancel()
	k.trying.Wait()
	return k.current()
}

// Ended is closed when the newest owner does not serve any more.
func (k *Keeper) Ended() <-chan struct{} {
	return k.current().Ended()
}

// Err returns the reason why the newest owner does not serve any more, or nil.
func (k *Keeper) Err() error {
	return k.current().Err()
}
