// Package shared is the namespace of a buffer as one of several daemons has it. The Tree of each
// carries calls to the daemon that owns the namespace's log, which may be itself, and waits for the
// next owner while there is none. It decides when its daemon claims the log. The log decides its
// owner. It must never depend on the transport of calls, nor on gossip.
//
//	caller ──▶ Tree ──▶ Caller ──▶ Tree.Handle of the owner ──▶ nslog.Engine ──▶ log
//	             ▲                          │
//	             └── not the owner, or no answer: the log names the owner, and the call is sent again
//
// # Exactly once
//
// A change has a session and a number (once.ID): those of its client, or the Tree's own. It is
// sent until an owner answers, and carried out by the first of them that has it in the log. Any
// other owner finds its outcome there. A refused change has left nothing in the log, so a late copy
// of the call could be carried out after all. So the owner keeps refusals, and each call names the
// incarnation of the owner for which it is. A late copy reaches the owner that has the refusal, or
// is not carried out. If the caller's context ends before an answer came, the outcome is unknown
// (bb.ErrUnknownOutcome), if anything was sent.
//
// Update is a look-up and a Put by revision, which are repeated while others change the entry.
// RemoveAll removes the names of a listing, each by a change of its own.
//
// # Who claims a log
//
// Watch does, when gossip or the log has something new, or calls wait in vain (turn.View).
// Release releases the log, so that the next owner need not wait for the end of the lease. If
// others take the log from a daemon again and again, it claims the log later and later
// (turn.Backoff).
//
// A daemon that starts cannot be called yet, so that the others take its logs over, and it carries
// its own calls to them. Where all daemons start, each may wait for the log of another one. If the
// owner of a log starts, and has appended nothing for a while, those that wait for the log claim
// it.
//
// # A server that loses records
//
// Before the owner answers, the next two daemons in line hold each record in memory (hold.go), for as
// long as a server may lose it with its power (Options.Hold). A daemon that claims the log requests
// the records of all others, and stores those again that the log has lost. So names are lost only
// with the server's memory, the owner and both of these daemons, all within that time. Then the next owner
// logs it if any daemon was answered with a later revision. While fewer daemons answer the
// owner, it continues with those that do. Without any it logs that, and Holders shows it.
//
// # State
//
// All calls go to the owner, but for look-ups and listings under leases (lease.go). No daemon follows the log, and a namespace
// has one log. Outcomes of the sessions of daemons that were killed stay until these sessions are ended.
package shared

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/session"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/nslog/tail"
	"forebay/meta/stream"
)

// Caller carries calls to other daemons. It is safe for concurrent use. A call may arrive several
// times, late, or never. After an error it may have arrived or not. The other daemon answers with
// its Tree's Handle. Neither side changes a call or an answer.
type Caller interface {
	Call(ctx context.Context, to bb.NodeID, c *calls.Call) (*calls.Answer, error)
}

// Options are the identity and the environment of a namespace.
type Options struct {
	Buffer string
	Node   bb.NodeID // this daemon
	// Lease is for how long an owner answers reads without an append to the log, the same for
	// all daemons. Default 2 s.
	Lease time.Duration
	// Patience is the wait for an answer before a look for another owner. Default 2 s.
	Patience time.Duration
	// Log is the name of the log. Of two buffers that have one name, one after the other, each has its own.
	Log string
	// Members returns the daemons as gossip has them. nil means that this one is alone.
	Members func() []turn.Member
	// Hold is the time for which records are held in the memory of another daemon besides the
	// owner's, since the log's servers may lose them. 0 means that they are not.
	Hold            time.Duration
	CheckpointBytes int // see nslog.Options, as the next four
	Floor           func() uint64
	Remake          func(context.Context) error
	Unanswered      func(ctx context.Context, op string, cause error) error
	Settle          time.Duration
	Pauses          lease.Pauses // see lease.Options
	Unreadable      func(key string, err error)
	Logger          *slog.Logger // default: discard
}

// Tree is a namespace that several daemons share. It is safe for concurrent use.
type Tree struct {
	log      owner.Log
	ids      namespace.IDs
	caller   Caller
	o        Options
	changes  *session.Numbers
	claiming *semaphore.Weighted // of one: Claim, Release, Close
	prepared atomic.Bool
	whole    atomic.Pointer[nslog.Engine] // of this daemon, that was found to have all names (RebuildKey)
	opening  atomic.Bool                  // the log is being claimed
	vain     chan struct{}                // has an element when calls wait in vain
	cache    lease.Cache                  // of entries in directories that another daemon's engine has leased to this one
	tail     *tail.Tail                   // of the log, for the next owner
	seen     atomic.Uint64                // the highest revision that an owner has answered with
	counts   lease.Counts                 // of the leases of others
	holders  holders                      // of this daemon's engine
	heldAt   atomic.Pointer[[]bb.NodeID]
	lost     atomic.Pointer[time.Time]
	unheld   atomic.Int64 // when to look for more holders, in nanoseconds; 0 while there are as many as are wanted

	mu struct {
		sync.Mutex
		engine *nslog.Engine // of this daemon, if it owns the log, or did
		since  time.Time     // when engine began to serve
		route  route
		missed map[uint64]time.Time // since when the owner of a claim was found missing
		end    ended                // of the log, at the last look
		taken  *nslog.Engine        // of this daemon, the last one that another daemon's claim has ended
		pauses turn.Backoff
		gone   time.Time // when the log was first found gone; zero: it was there at the last look
		silent time.Time // since when calls to the owner, on their route, are not answered; zero: they are
		closed bool
		over   error // the reason why calls fail without an owner: a destroyed namespace, or a damaged log; nil: they wait
	}
}

var _ namespace.Tree = (*Tree)(nil)

// route is where calls go.
type route struct {
	node  bb.NodeID // "": unknown
	owner nslog.Incarnation
}

// ended is the last record of a log at a look.
type ended struct {
	seq   uint64
	owner record.Owner
	since time.Time
}

// New returns the namespace of a log, which must exist. Close ends it.
func New(log owner.Log, ids namespace.IDs, caller Caller, o Options) *Tree {
	if o.Lease <= 0 {
		o.Lease = 2 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = 2 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tree{log: log, ids: ids, caller: caller, o: o, claiming: semaphore.NewWeighted(1), vain: make(chan struct{}, 1), changes: session.New(), tail: tail.New(tail.Limits{Age: o.Hold})}
	return t
}

// Buffer returns the name of the namespace's buffer.
func (t *Tree) Buffer() string { return t.o.Buffer }

// Distrust does nothing, since no answer comes from a server.
func (t *Tree) Distrust() {}

// serving returns the engine of this daemon, or nil if it does not own the log.
func (t *Tree) serving() *nslog.Engine {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.mu.engine; e != nil && (e.Err() == nil || errors.Is(e.Err(), kv.ErrNoBucket)) {
		return e
	}
	return nil
}

// Owns reports whether this daemon owns the log. It may be wrong for a moment.
func (t *Tree) Owns() bool { return t.serving() != nil }

// Claims reports whether this daemon owns the log or is claiming it, and whether it answers calls already.
func (t *Tree) Claims() (is, answers bool) {
	answers = t.Owns()
	return answers || t.opening.Load(), answers
}

// Owner returns the daemon that owned the log when this one was last answered; "": it is unknown.
func (t *Tree) Owner() bb.NodeID {
	if t.Owns() {
		return t.o.Node
	}
	return t.route().node
}

// Claim makes this daemon the owner of the log, in place of any present one, and returns when it
// serves.
func (t *Tree) Claim(ctx context.Context) error {
	if err := t.claiming.Acquire(ctx, 1); err != nil {
		return bb.Wrap("claim", t.o.Buffer, err)
	}
	defer t.claiming.Release(1)
	if t.serving() != nil {
		// It may have been replaced without notice.
		if h, err := t.newest(ctx); err != nil || h.Node == t.o.Node {
			return bb.Wrap("claim", t.o.Buffer, err)
		}
	}
	if err := t.replace(nil); err != nil {
		return err
	}
	t.holders = holders{} // what they held for an engine before may have gaps
	t.unheld.Store(0)
	t.opening.Store(true)
	defer t.opening.Store(false)
	leases := lease.New(lease.Options{Pauses: t.o.Pauses, Revoke: t.revoke, Counts: &t.counts})
	e, err := nslog.Open(ctx, t.log, t.ids, nslog.Options{
		Buffer: t.o.Buffer, Node: t.o.Node, CheckpointBytes: t.o.CheckpointBytes, Lease: t.o.Lease, Logger: t.o.Logger, Ended: t.endedSince, Held: t.held, Keep: t.keep, Short: t.short,
		Floor: t.o.Floor, Remake: t.o.Remake, Unanswered: t.o.Unanswered, Settle: t.o.Settle, Leases: leases, Unreadable: t.o.Unreadable,
	})
	if err != nil {
		leases.Close()
		return err
	}
	t.o.Logger.Info("this daemon owns the namespace", "buffer", t.o.Buffer)
	return t.replace(e)
}

// replace closes this daemon's engine and puts another, or nil, in its place.
func (t *Tree) replace(e *nslog.Engine) error {
	t.mu.Lock()
	old := t.mu.engine
	t.mu.engine, t.mu.since = e, time.Now()
	closed := t.mu.closed
	if closed {
		t.mu.engine = nil
	}
	t.mu.Unlock()
	if old != nil {
		old.Close()
	}
	if closed {
		if e != nil {
			e.Close()
		}
		return bb.E(bb.Unavailable, "claim", t.o.Buffer, "the daemon is being stopped")
	}
	return nil
}

// Release gives the log up, if this daemon owns it. The next owner need not wait. Calls go on to
// that one.
func (t *Tree) Release(ctx context.Context) error {
	if err := t.claiming.Acquire(ctx, 1); err != nil {
		return bb.Wrap("release", t.o.Buffer, err)
	}
	defer t.claiming.Release(1)
	e := t.serving()
	if e == nil {
		return nil
	}
	err := e.Release(ctx)
	return errors.Join(err, t.replace(nil))
}

// Close ends the part of this daemon. Calls that are under way continue until their contexts end,
// or another owner answers. It waits for a Claim, the context of which the caller ends.
func (t *Tree) Close() {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	_ = t.claiming.Acquire(context.Background(), 1)
	defer t.claiming.Release(1)
	_ = t.replace(nil)
}

// pause returns how much later this daemon claims the log, since others have taken it.
func (t *Tree) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if e := t.mu.engine; e != nil && e != t.mu.taken && errors.Is(e.Err(), owner.ErrReplaced) {
		t.mu.taken = e
		t.mu.pauses.Taken(now)
	}
	return t.mu.pauses.Pause(now)
}

// newest returns the owner of the log, and notes that the log ends in its record.
func (t *Tree) newest(ctx context.Context) (owner.Holder, error) {
	h, err := owner.Newest(ctx, t.log)
	t.mu.Lock()
	defer t.mu.Unlock()
	if errors.Is(err, stream.ErrGone) {
		t.mu.end = ended{} // a log that is made again may end in the same record: none
	}
	if err != nil {
		return h, err
	}
	t.mu.gone = time.Time{}
	if t.mu.end.since.IsZero() || t.mu.end.seq != h.Seq || t.mu.end.owner != h.Owner {
		t.mu.end = ended{h.Seq, h.Owner, time.Now()}
	}
	return h, nil
}

// endedSince returns the time since when a record was found to be the log's last, or the time when it came to be held
// here. Its owner had begun to append it before.
func (t *Tree) endedSince(h owner.Holder) time.Time {
	came := t.tail.Came(h.Seq, func(r *tail.Record) bool { return owner.OwnerOf(r.Data) == h.Owner })
	t.mu.Lock()
	defer t.mu.Unlock()
	if since := t.mu.end.since; t.mu.end.seq == h.Seq && t.mu.end.owner == h.Owner && (came.IsZero() || since.Before(came)) {
		return since
	}
	return came
}

// missing returns for how long the owner of a log that ends at a sequence has been missing.
func (t *Tree) missing(seq uint64, is bool) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	since, was := t.mu.missed[seq]
	if !was || !is {
		since = time.Now()
		t.mu.missed = map[uint64]time.Time{}
	}
	if is {
		t.mu.missed[seq] = since
	}
	return time.Since(since)
}
