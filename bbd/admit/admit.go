// Package admit decides which request gets the next segment and how room is made for the
// others, by evicting, spilling, moving files to other nodes, waiting. It is pure: same input, same
// output. It must never depend on regions, sessions, clocks or I/O.
package admit

import (
	"cmp"
	"slices"
	"time"
)

// Unit is the granularity of leases in bytes. A grant is of one unit at least.
const Unit = 1 << 20

// Request is a writer that waits for a lease.
type Request struct {
	ID     uint64
	User   string // whose bytes they will be; requests of one user share its turn
	Buffer string
	Client string        // the requester; requests of one client share its turn
	Bytes  int64         // requested. A grant may be smaller, but not smaller than a unit
	Age    time.Duration // how long it has waited
	NoWait bool          // refuse rather than wait
}

// Pool is a node's room, in bytes.
type Pool struct {
	Free       int64 // can be leased now
	Evictable  int64 // clean: can be freed at once
	Spillable  int64 // can be moved to disk
	DiskFree   int64 // room there
	Misplaced  int64 // part of Spillable that belongs on disk
	UnderWay   int64 // evictions and spills that have been started and will free this much
	Populating bool  // more becomes free by itself
	Movable    int64 // dirty: can be moved to other nodes with room
}

// Buffer is the room that a buffer may use, in bytes.
type Buffer struct {
	Used      int64 // resident on this node
	Capacity  int64 // 0: no limit of its own
	Evictable int64 // part of Used that is clean; evicting it makes room within the capacity
}

// Watermarks keep some memory free ahead of requests. Below Low of free bytes, room is made until
// High are free. Both 0: only when a request waits.
type Watermarks struct{ Low, High int64 }

// State is all that a decision depends on. A buffer that is not in Buffers has no
// limit of its own.
type State struct {
	Pool       Pool
	Watermarks Watermarks
	Buffers    map[string]Buffer
	Waiting    []Request
}

// Kind is the kind of an action.
type Kind uint8

// The kinds of actions, in the order in which Decide returns them.
const (
	Refuse         Kind = iota // fail the request with bb.NoSpace
	Grant                      // lease Bytes here
	Evict                      // free Bytes of clean segments
	Spill                      // move Bytes to disk
	SpillMisplaced             // move Bytes to disk that belong there
	Move                       // move Bytes to other nodes
	Wait                       // nothing to do for the request now
)

// String returns the kind's name.
func (k Kind) String() string {
	return [...]string{"refuse", "grant", "evict", "spill", "spill misplaced", "move", "wait"}[min(k, Wait)]
}

// Action is one thing to do.
type Action struct {
	Kind    Kind
	Request uint64 // 0: none in particular
	Bytes   int64
	Reason  string
}

// Decide returns the actions for now, and the turns to pass to the next call.
//
// Free bytes go to the waiting user that has received least. Of the user's buffers, they go to the
// one that has received least, in it to the client that has received least, and there to the oldest
// request. See Served. No request starves. A waiter keeps its tag while all others move up, and a
// request that does not fit whole is granted in part.
func Decide(s State, before Served) ([]Action, Served) {
	d := decision{state: s, free: s.Pool.Free}
	d.served = before.copy(len(s.Waiting) > 0)
	d.capacity = map[string]int64{}
	queue := slices.Clone(s.Waiting)
	var left []Request
	for len(queue) > 0 {
		i := 0
		if d.free >= Unit { // else turns do not matter, and the queue may be long
			i = d.served.next(queue)
		}
		r := queue[i]
		queue[i] = queue[0]
		queue = queue[1:]
		if !d.settle(r) {
			left = append(left, r)
		}
	}
	d.makeRoom(left)
	slices.SortStableFunc(d.actions, func(a, b Action) int { return cmp.Compare(a.Kind, b.Kind) })
	return d.actions, d.served
}

type decision struct {
	state    State
	served   Served
	free     int64
	capacity map[string]int64 // granted now, by buffer
	actions  []Action
}

func (d *decision) act(a Action) { d.actions = append(d.actions, a) }

// settle refuses or grants a request. It returns false if the request must wait.
func (d *decision) settle(r Request) bool {
	bytes := max(Unit, (r.Bytes+Unit-1)/Unit*Unit)
	if b := d.state.Buffers[r.Buffer]; b.Capacity > 0 {
		room := (b.Capacity - b.Used - d.capacity[r.Buffer]) / Unit * Unit
		if room < Unit {
			if r.NoWait || b.Evictable < Unit {
				d.act(Action{Kind: Refuse, Request: r.ID, Reason: "the buffer's capacity is used up"})
				return true
			}
			return false
		}
		bytes = min(bytes, room)
	}
	switch {
	case d.free >= Unit:
		bytes = min(bytes, d.free/Unit*Unit)
		d.free -= bytes
		d.act(Action{Kind: Grant, Request: r.ID, Bytes: bytes})
	case r.NoWait:
		d.act(Action{Kind: Refuse, Request: r.ID, Reason: "no memory is free and the buffer does not wait"})
		return true
	default:
		return false
	}
	d.served.add(r, bytes)
	d.capacity[r.Buffer] += bytes
	return true
}

// canWaitForRoom reports whether this node can make room for a segment by itself.
func (d *decision) canWaitForRoom() bool {
	p := &d.state.Pool
	return p.Populating || p.UnderWay >= Unit || p.Evictable >= Unit || min(p.Spillable, p.DiskFree) >= Unit || p.Movable >= Unit
}

// makeRoom evicts and then spills for waiting requests and for the watermarks. Files move
// to other nodes only when a request waits, since that costs both nodes more than flushing.
func (d *decision) makeRoom(left []Request) {
	p, w := &d.state.Pool, d.state.Watermarks
	var need int64
	for _, r := range left {
		need += max(Unit, (r.Bytes+Unit-1)/Unit*Unit)
		d.act(Action{Kind: Wait, Request: r.ID, Reason: d.reason(r)})
	}
	if d.free < w.Low {
		need += max(w.High, w.Low) - d.free
	}
	need -= p.UnderWay
	if p.Populating && len(left) > 0 && d.free < Unit {
		need = min(need, p.Evictable) // populating frees more, and sooner than a spill to disk
	}
	if n := min(need, p.Evictable); n > 0 {
		d.act(Action{Kind: Evict, Bytes: n})
		need -= n
	}
	// Clean bytes count as spillable too. Bytes that belong on disk are the first to go there, and
	// go if no request needs room as well.
	if n := min(need, p.Spillable-p.Evictable, p.DiskFree); n > 0 {
		d.act(Action{Kind: Spill, Bytes: n})
		need -= n
	} else if n := min(p.Misplaced, p.DiskFree); n > 0 && p.UnderWay == 0 {
		d.act(Action{Kind: SpillMisplaced, Bytes: n})
	}
	if n := min(need, p.Movable); n > 0 && len(left) > 0 && !p.Populating {
		d.act(Action{Kind: Move, Bytes: n})
	}
}

func (d *decision) reason(r Request) string {
	p := &d.state.Pool
	b := d.state.Buffers[r.Buffer]
	switch {
	case b.Capacity > 0 && b.Capacity-b.Used-d.capacity[r.Buffer] < Unit:
		return "the buffer is full until clean data is evicted"
	case p.Populating:
		return "memory is being populated"
	case d.canWaitForRoom():
		return "room is being made"
	default:
		return "all memory is dirty: flushing makes room"
	}
}
