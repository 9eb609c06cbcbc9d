package status

import (
	"context"
	"fmt"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/aside"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Entries are those of all buffers.
type Entries interface {
	Buffers(ctx context.Context) ([]bb.Buffer, error)
	// Scan calls visit with each entry of a buffer, the node that owns it, and the one that has a
	// second copy, or "" if none has. It returns bb.NotFound if the buffer was destroyed.
	Scan(ctx context.Context, buffer string, visit func(e *bb.Entry, owner, replica bb.NodeID)) error
}

// census counts, by the entries of the namespace, the files and symbolic links that are not on a store, by node.
type census struct {
	held  map[bb.NodeID]map[string]Holding // by owner and buffer
	specs map[string]bb.Buffer
	lacks string // why it may be incomplete; "": it is complete
}

// takeCensus reads all entries.
func takeCensus(ctx context.Context, from Entries) (census, error) {
	all := census{held: make(map[bb.NodeID]map[string]Holding), specs: make(map[string]bb.Buffer)}
	specs, err := from.Buffers(ctx)
	if err != nil {
		return all, err
	}
	for _, spec := range specs {
		all.specs[spec.Name] = spec
		err := from.Scan(ctx, spec.Name, func(e *bb.Entry, owner, replica bb.NodeID) { all.add(spec.Name, e, owner, replica) })
		switch {
		case err == nil, bb.KindOf(err) == bb.NotFound: // it was destroyed meanwhile
		case aside.Concerns(err):
			all.lacks = "the entries of one buffer: " + err.Error()
		default:
			return all, err
		}
	}
	return all, nil
}

// add counts an entry, if its bytes are not on a store.
func (c *census) add(buffer string, e *bb.Entry, owner, replica bb.NodeID) {
	state := e.State()
	if e.Type != bb.TypeFile && e.Type != bb.TypeSymlink || state != bb.StateDirty && state != bb.StateOpen {
		return
	}
	if c.held[owner] == nil {
		c.held[owner] = make(map[string]Holding)
	}
	h := c.held[owner][buffer]
	h.Buffer = buffer
	h.Files++
	h.Bytes += e.Size
	if state == bb.StateOpen {
		h.Open++
	}
	if replica != "" {
		h.Seconds++
	}
	c.held[owner][buffer] = h
}

// permits reports whether a user may enter a buffer that the census has found.
func (c *census) permits(user access.Caller, buffer string) bool {
	spec, ok := c.specs[buffer]
	return ok && user.Permits(spec.UID, spec.GID, spec.Mode, access.Execute)
}

// counter takes the census. That reads every entry. One is used again for a while, the longer the
// longer it took, and one at a time is under way. It ends with ctx.
type counter struct {
	ctx  context.Context
	from Entries
	run  func(func()) // starts a goroutine
	mu   struct {
		lockorder.Mutex[lockrank.Leaf]
		last    census
		at      time.Time // when it was complete; zero: there is none
		took    time.Duration
		running chan struct{} // closed when the count under way has ended; nil: there is none
	}
}

const (
	censusFresh = 2 * time.Second // how long a quick one is used
	censusShare = 10              // a slow one is used for so many times its duration
	// An older one is used when a new one takes longer.
	censusPatience = 3 * time.Second
)

// fresh reports whether a count of some age is new enough.
func fresh(age, took time.Duration) bool { return age < max(censusFresh, censusShare*took) }

// newest returns the newest census, after a short wait for a fresh one.
func (c *counter) newest(ctx context.Context) census {
	c.mu.Lock()
	if !c.mu.at.IsZero() && fresh(time.Since(c.mu.at), c.mu.took) {
		defer c.mu.Unlock()
		return c.mu.last
	}
	if c.mu.running == nil {
		c.mu.running = make(chan struct{})
		c.run(c.count)
	}
	running := c.mu.running
	c.mu.Unlock()
	timer := time.NewTimer(censusPatience)
	defer timer.Stop()
	select {
	case <-running:
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known(time.Now())
}

// known returns the newest census, with its age if it is old. mu is held.
func (c *counter) known(now time.Time) census {
	last := c.mu.last
	switch {
	case c.mu.at.IsZero() && last.lacks == "":
		last.lacks = "the entries of all buffers are still being counted: ask again"
	case c.mu.running != nil && last.lacks == "":
		last.lacks = fmt.Sprintf("counted %v ago; a new count is under way", now.Sub(c.mu.at).Round(time.Second))
	}
	return last
}

// count takes one census.
func (c *counter) count() {
	began := time.Now()
	now, err := takeCensus(c.ctx, c.from)
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.mu.running)
	c.mu.running = nil
	if err != nil {
		c.mu.last.lacks = "counting the entries of all buffers: " + err.Error()
		c.mu.at = time.Time{}
		return
	}
	c.mu.last, c.mu.at, c.mu.took = now, time.Now(), time.Since(began)
}
