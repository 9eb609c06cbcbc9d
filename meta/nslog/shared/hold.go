package shared

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/turn"
	"forebay/meta/nslog/tail"
)

const (
	// wanted is how many other daemons hold each record, if there are so many. So the owner and one of them may end
	// together while the log's servers lose the record.
	wanted = 2
	// holdPatience is the time that the owner waits for the daemon that holds the log's end, before
	// it sends to another one.
	holdPatience = 500 * time.Millisecond
	// A daemon that did not hold a record gets it again after a pause that grows from holdSoon to
	// holdAgain. If it did not answer in time, the pause is holdAgain.
	holdSoon  = 50 * time.Millisecond
	holdAgain = 5 * time.Second
	// asked is how many daemons are queried at a time for their records.
	asked = 64
)

// holders are the daemons that hold the log's end for the owner. They are used by one engine at a time.
type holders struct {
	now      []holding
	later    map[bb.NodeID]time.Time // of those that have failed: when to try again
	failures int
	warned   bool
}

// holding is a daemon that holds all records of the owner's tail.
type holding struct {
	node bb.NodeID
	tail [16]byte // of that daemon
}

// keep makes other daemons hold a record, wanted of them if there are so many. While fewer are there, or answer, changes
// are answered with those that do. Without any, their names are as safe as the log is.
func (t *Tree) keep(ctx context.Context, r tail.Record) {
	now := time.Now()
	t.tail.Add(now, r)
	if !t.tail.Holds() {
		return
	}
	h := &t.holders
	t.holdNow(ctx, r)
	if len(h.now) < wanted && now.UnixNano() >= t.unheld.Load() {
		t.addHolders(ctx, now)
	}
	t.publishHolders()
}

// holdNow sends a record to the daemons that hold those before it, and drops those that do not hold it.
func (t *Tree) holdNow(ctx context.Context, r tail.Record) {
	h := &t.holders
	errs := make([]error, len(h.now))
	var all sync.WaitGroup
	for i, one := range h.now {
		hold := func() {
			at, err := t.hold(ctx, one.node, []tail.Record{r})
			if err == nil && at != one.tail {
				err = errRestarted
			}
			errs[i] = err
		}
		if i == len(h.now)-1 {
			hold()
		} else {
			all.Go(hold)
		}
	}
	all.Wait()
	hold := h.now[:0]
	for i, one := range h.now {
		if errs[i] == nil {
			hold = append(hold, one)
			continue
		}
		if !errors.Is(errs[i], errRestarted) {
			h.failed(one.node, errs[i])
		}
		t.unheld.Store(1) // another one is searched at once
	}
	h.now = hold
}

// errRestarted: a daemon has a tail with none of the records before.
var errRestarted = errors.New("the daemon holds no record from before")

// addHolders makes further daemons hold all that this one holds.
func (t *Tree) addHolders(ctx context.Context, now time.Time) {
	h := &t.holders
	for len(h.now) < wanted && ctx.Err() == nil {
		to := t.nextHolder(now)
		if to == "" {
			break
		}
		at, err := t.holdAll(ctx, to)
		if err != nil {
			h.failed(to, err)
			t.o.Logger.Debug("a daemon does not hold the end of the namespace's log", "buffer", t.o.Buffer, "node", to, "err", err)
			continue
		}
		h.now = append(h.now, holding{to, at})
	}
	if len(h.now) == wanted {
		*h = holders{now: h.now}
		t.unheld.Store(0)
		return
	}
	if len(t.members()) > 1+len(h.now) {
		h.failures++
	}
	t.unheld.Store(now.Add(h.pause()).UnixNano())
	if len(h.now) == 0 && !h.warned && h.failures > 3 {
		h.warned = true
		t.o.Logger.Warn("no other daemon holds the end of the namespace's log. If this one ends while the namespace server forgets changes, they are lost", "buffer", t.o.Buffer)
	}
}

func (h *holders) pause() time.Duration { return min(holdSoon<<min(h.failures, 10), holdAgain) }

// failed records that a daemon does not hold records.
func (h *holders) failed(node bb.NodeID, err error) {
	pause := h.pause()
	if errors.Is(err, context.DeadlineExceeded) {
		pause = holdAgain
	}
	if h.later == nil {
		h.later = map[bb.NodeID]time.Time{}
	}
	h.later[node] = time.Now().Add(pause)
	h.failures++
}

// holds reports whether a daemon holds the end of the log.
func (h *holders) holds(node bb.NodeID) bool {
	return slices.ContainsFunc(h.now, func(one holding) bool { return one.node == node })
}

// publishHolders makes the present holders visible to other goroutines.
func (t *Tree) publishHolders() {
	nodes := make([]bb.NodeID, 0, wanted)
	for _, one := range t.holders.now {
		nodes = append(nodes, one.node)
	}
	if old := t.heldAt.Load(); old == nil || !slices.Equal(*old, nodes) {
		t.heldAt.Store(&nodes)
	}
}

// Holders returns the other daemons that hold the end of the log, if this one owns it; owns: it does.
func (t *Tree) Holders() (nodes []bb.NodeID, owns bool) {
	if t.serving() == nil {
		return nil, false
	}
	if now := t.heldAt.Load(); now != nil {
		nodes = *now
	}
	return nodes, true
}

// Unheld reports whether this daemon owns the log, and no other one holds its end, which a server may lose.
func (t *Tree) Unheld() bool {
	holders, owns := t.Holders()
	return owns && t.tail.Holds() && len(holders) == 0
}

// short records that the log has lost acknowledged changes which no daemon holds.
func (t *Tree) short() {
	now := time.Now()
	t.lost.Store(&now)
}

// Lost returns when this daemon found that the log had lost acknowledged changes, or nil if it found none lost.
func (t *Tree) Lost() *time.Time { return t.lost.Load() }

// findHolder makes another daemon hold the records that none holds, if there is one.
func (t *Tree) findHolder(ctx context.Context, members []turn.Member) {
	e, at := t.serving(), t.unheld.Load()
	holders, _ := t.Holders()
	others := slices.ContainsFunc(members, func(m turn.Member) bool {
		return m.Node != t.o.Node && !m.Away && !slices.Contains(holders, m.Node)
	})
	if e == nil || at == 0 || time.Now().UnixNano() < at || !others {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.o.Patience)
	defer cancel()
	if err := e.Confirm(ctx); err != nil && ctx.Err() == nil {
		t.o.Logger.Debug("the end of the namespace's log is held by no other daemon", "buffer", t.o.Buffer, "err", err)
	}
}

// nextHolder returns the daemon that is next in line to claim the log, and has not failed lately.
func (t *Tree) nextHolder(now time.Time) bb.NodeID {
	v := turn.View{Self: t.o.Node, Owner: t.o.Node, Members: t.members()}
	for _, m := range v.Line(t.o.Buffer) {
		if m.Node != t.o.Node && !t.holders.holds(m.Node) && !now.Before(t.holders.later[m.Node]) {
			return m.Node
		}
	}
	return ""
}

func (t *Tree) members() []turn.Member {
	if t.o.Members == nil {
		return nil
	}
	return t.o.Members()
}

// holdAll makes a daemon hold all that this one holds.
func (t *Tree) holdAll(ctx context.Context, to bb.NodeID) (at [16]byte, err error) {
	for after, more := uint64(0), true; more && err == nil; {
		var page []tail.Record
		page, after, more = t.tail.Page(after, calls.AnswerBytes, func(*tail.Record) bool { return true })
		at, err = t.hold(ctx, to, page)
	}
	return at, err
}

// hold makes a daemon hold records, and returns the identity of its tail.
func (t *Tree) hold(ctx context.Context, to bb.NodeID, records []tail.Record) ([16]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, holdPatience)
	defer cancel()
	c := &calls.Call{Op: calls.OpHold, From: t.o.Node, Name: t.o.Log}
	for _, r := range records {
		c.Changes = append(c.Changes, kv.Change{Key: strconv.FormatUint(r.After, 10), Data: r.Data, Expected: r.Seq})
	}
	a, err := t.caller.Call(ctx, to, c)
	if err == nil {
		err = a.Failure.Err()
	}
	if err != nil {
		return [16]byte{}, err
	}
	return a.Owner, nil
}

// held returns the records of the log that the daemons hold from a revision on, this one among them.
func (t *Tree) held(ctx context.Context, from uint64) owner.Held {
	var mu sync.Mutex
	all := owner.Held{Seen: t.seen.Load()}
	all.Records, _, _ = t.tail.Page(0, 1<<62, since(from))
	var g errgroup.Group
	g.SetLimit(asked)
	for _, m := range t.members() {
		if m.Node == t.o.Node {
			continue
		}
		g.Go(func() error {
			patience := t.o.Patience
			if m.Away {
				patience = min(patience, holdPatience) // it may be there all the same
			}
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			records, seen, err := t.heldBy(ctx, m.Node, from)
			if err != nil && bb.KindOf(err) != bb.NotFound && !m.Away {
				t.o.Logger.Warn("a daemon does not answer what it holds of the namespace's log", "buffer", t.o.Buffer, "node", m.Node, "err", err)
			}
			mu.Lock()
			defer mu.Unlock()
			all.Records, all.Seen = append(all.Records, records...), max(all.Seen, seen)
			return nil
		})
	}
	_ = g.Wait()
	return all
}

// since selects the records that may have given out a revision, or a later one.
func since(from uint64) func(*tail.Record) bool {
	return func(r *tail.Record) bool { return owner.FirstOf(r.Data) >= from }
}

// heldBy returns the records that another daemon holds.
func (t *Tree) heldBy(ctx context.Context, node bb.NodeID, from uint64) (all []tail.Record, seen uint64, err error) {
	for after, more := uint64(0), true; more; {
		a, err := t.caller.Call(ctx, node, &calls.Call{Op: calls.OpHeld, From: t.o.Node, Name: t.o.Log, Revision: from, File: bb.FileID(after)})
		if err == nil {
			err = a.Failure.Err()
		}
		if err != nil {
			return all, seen, err
		}
		for i := range a.Records {
			r := &a.Records[i]
			claimed, _ := strconv.ParseUint(r.Key, 10, 64)
			all = append(all, tail.Record{Seq: r.Seq, After: claimed, Data: r.Data})
		}
		seen = max(seen, a.Revision)
		after, more = uint64(a.Dir), a.Yes
	}
	return all, seen, nil
}

// handleHeld answers calls about the records that this daemon holds, whether it owns the log or not.
func (t *Tree) handleHeld(c *calls.Call) *calls.Answer {
	a := &calls.Answer{Status: calls.Served, Owner: t.tail.ID()}
	switch {
	case c.Name != t.o.Log:
		a.Failure = calls.FailureOf(bb.E(bb.NotFound, "hold", t.o.Buffer, "this daemon has another log of that buffer"))
	case c.Op == calls.OpHold:
		records := make([]tail.Record, 0, len(c.Changes))
		for i := range c.Changes {
			claimed, _ := strconv.ParseUint(c.Changes[i].Key, 10, 64)
			records = append(records, tail.Record{Seq: c.Changes[i].Expected, After: claimed, Data: slices.Clone(c.Changes[i].Data)})
		}
		t.tail.Add(time.Now(), records...)
	default:
		page, last, more := t.tail.Page(uint64(c.File), calls.AnswerBytes, since(c.Revision))
		for _, r := range page {
			a.Records = append(a.Records, kv.Record{Key: strconv.FormatUint(r.After, 10), Data: r.Data, Seq: r.Seq})
		}
		a.Revision, a.Dir, a.Yes = t.seen.Load(), bb.DirID(last), more
	}
	return a
}

// saw records the revisions of an answer, since the log had them.
func (t *Tree) saw(c *calls.Call, a *calls.Answer) {
	if c.Op == calls.OpScanPage {
		return
	}
	now := max(a.Revision, a.Entry.Revision)
	for old := t.seen.Load(); now > old && !t.seen.CompareAndSwap(old, now); old = t.seen.Load() {
	}
}
