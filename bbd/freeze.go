package bbd

import (
	"context"
	"errors"
	"sync"
	"time"

	"forebay/bbd/cluster"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// A buffer that may only be destroyed while everything in it is on the store is frozen
// first, on every daemon:
//
//	destroyer                              every other daemon
//	 freeze: changes under way end,
//	 later ones wait
//	 Hold{freeze} ───────────────────────▶ the same
//	 check
//	   refused ───── the request ends ───▶ thaws: what waits goes on
//	   passed: delete the buffer
//	 thaw ────────── the request ends ───▶ thaws: what waits finds no buffer
//
// The changes are those that a client may believe in when they are acknowledged: commits,
// closes, exclusive creates, and renames. The freeze of another daemon lasts as long as the
// destroyer's request, so one that dies leaves none behind.

// freezer keeps the changes of a buffer apart from the decision to destroy it.
type freezer struct {
	mu      lockorder.Mutex[lockrank.Leaf]
	freezes int           // in effect
	inside  int           // changes under way
	waiting int           // changes that wait for the end of the freezes
	changed chan struct{} // closed, and made anew, when the last freeze or change ends
	gone    bool          // the buffer was destroyed
}

func newFreezer() freezer { return freezer{changed: make(chan struct{})} }

// enter begins a change, which leave ends. It waits while the buffer is frozen, so nothing
// that another change needs may be held. bb.NotFound if the buffer is destroyed meanwhile.
func (b *buffer) enter(ctx context.Context, op string) error {
	z := &b.freezer
	z.mu.Lock()
	defer z.mu.Unlock()
	for z.freezes > 0 && !z.gone {
		changed := z.changed
		z.waiting++
		z.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		z.mu.Lock()
		z.waiting--
		if err := ctx.Err(); err != nil {
			return bb.Wrap(op, b.address(""), err)
		}
	}
	if z.gone {
		return bb.E(bb.NotFound, op, b.address(""), "the buffer was destroyed")
	}
	z.inside++
	return nil
}

// tryEnter is enter for whoever may not wait.
func (z *freezer) tryEnter() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.freezes > 0 || z.gone {
		return false
	}
	z.inside++
	return true
}

func (z *freezer) leave() {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.inside--; z.inside == 0 {
		z.broadcast()
	}
}

func (z *freezer) broadcast() {
	close(z.changed)
	z.changed = make(chan struct{})
}

// destroyed ends all that waits.
func (z *freezer) destroyed() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.gone = true
	z.broadcast()
}

// freezePatience is how long a freeze waits for the changes under way. A commit may have to
// wait for another node, and later ones wait for this.
const freezePatience = 10 * time.Second

// freeze has later changes wait until thaw is called, and waits for those under way.
// bb.Busy if they do not end in time; then nothing is frozen.
func (b *buffer) freeze(ctx context.Context) (thaw func(), err error) {
	z := &b.freezer
	z.mu.Lock()
	defer z.mu.Unlock()
	z.freezes++
	thaw = sync.OnceFunc(func() {
		z.mu.Lock()
		defer z.mu.Unlock()
		if z.freezes--; z.freezes == 0 {
			z.broadcast()
		}
	})
	patience := time.NewTimer(freezePatience)
	defer patience.Stop()
	for z.inside > 0 {
		changed := z.changed
		z.mu.Unlock()
		select {
		case <-changed:
		case <-patience.C:
			err = bb.E(bb.Busy, "freeze", b.address(""), "commits or renames under way do not end").WithRemedy("try again")
		case <-ctx.Done():
			err = bb.Wrap("freeze", b.address(""), ctx.Err())
		}
		if err != nil {
			thaw()
		}
		z.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	return thaw, nil
}

// frozen is a buffer that no daemon changes.
type frozen struct {
	b      *buffer
	thaw   func()
	others *heldThere
}

// freezeEverywhere freezes a buffer here and at every daemon that serves.
func (b *buffer) freezeEverywhere(ctx context.Context) (*frozen, error) {
	thaw, err := b.freeze(ctx)
	if err != nil {
		return nil, err
	}
	f := &frozen{b: b, thaw: thaw}
	if b.d.cluster == nil {
		return f, nil
	}
	nodes := b.d.cluster.Nodes(func(m *gossip.Member) bool { return cluster.Serving(m.State) })
	f.others, err = b.holdWith(ctx, nodes, &wire.Hold{Buffer: b.name, Paths: []string{""}, Freeze: true})
	if err != nil {
		thaw()
		return nil, err
	}
	return f, nil
}

var errNotFrozen = errors.New("the daemon may have changed the buffer while it was looked through")

// intact fails if a daemon may have changed the buffer since it was frozen: one whose
// session broke, or that did not serve when the others were asked.
func (f *frozen) intact() error {
	if f.others == nil {
		return nil
	}
	for _, m := range f.b.d.cluster.Members() {
		serves := cluster.Serving(m.State) && m.State != gossip.Starting && m.State != gossip.Leaving
		if m.Node != f.b.d.cfg.Node && serves && !f.others.holds(m.Node) {
			return (&bb.Error{
				Kind: bb.Busy, Op: "freeze", Path: f.b.address(""), Node: m.Node, Err: errNotFrozen,
			}).WithRemedy("try again")
		}
	}
	return nil
}

// end lets changes go on, here and elsewhere.
func (f *frozen) end() {
	f.thaw()
	if f.others != nil {
		f.others.release()
	}
}

// thawLater ends a freeze that another daemon asked for whose session broke. That one may
// not know yet, and act on what it has found: it finds out when this one has been silent
// for long enough.
func (d *Daemon) thawLater(thaw func()) {
	d.wg.Go(func() {
		d.pause(2 * d.cfg.silence())
		thaw()
	})
}
