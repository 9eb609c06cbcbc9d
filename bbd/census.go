package bbd

import (
	"context"
	"fmt"
	"time"

	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// census is what the namespace knows of where files are that are not on a store.
type census struct {
	held  map[bb.NodeID]map[string]Holding // by home and buffer
	specs map[string]bb.Buffer
	lacks string // why it may lack something; "": it does not
}

// censor counts those files. A count reads every entry: it is used again for a while, the
// longer the longer it took, and one count at a time is under way. It ends with the daemon.
type censor struct {
	d  *Daemon
	mu struct {
		lockorder.Mutex[lockrank.Leaf]
		last    census
		at      time.Time // when it was complete; zero: there is none
		took    time.Duration
		running chan struct{} // closed when the count under way has ended; nil: there is none
	}
}

const (
	censusFresh = 2 * time.Second // how long a quick one is used
	censusShare = 10              // a slow one is used for so many times what it took
	// An older one is used when a new one takes longer.
	censusPatience = 3 * time.Second
)

// fresh reports whether a count of some age is new enough.
func fresh(age, took time.Duration) bool { return age < max(censusFresh, censusShare*took) }

// look returns the newest count, after waiting a little for one that is new enough.
func (c *censor) look(ctx context.Context) census {
	c.mu.Lock()
	if !c.mu.at.IsZero() && fresh(time.Since(c.mu.at), c.mu.took) {
		defer c.mu.Unlock()
		return c.mu.last
	}
	if c.mu.running == nil {
		c.mu.running = make(chan struct{})
		c.d.wg.Go(c.count)
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

// known returns the newest count, and says of what age it is if it is old. mu is held.
func (c *censor) known(now time.Time) census {
	last := c.mu.last
	switch {
	case c.mu.at.IsZero() && last.lacks == "":
		last.lacks = "the entries of all buffers are still being counted: ask again"
	case c.mu.running != nil && last.lacks == "":
		last.lacks = fmt.Sprintf("counted %v ago; a new count is under way", now.Sub(c.mu.at).Round(time.Second))
	}
	return last
}

// count counts, and ends when that is done or the daemon stops.
func (c *censor) count() {
	began := time.Now()
	now, err := c.d.countHoldings(c.d.ctx)
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

// countHoldings reads all entries.
func (d *Daemon) countHoldings(ctx context.Context) (census, error) {
	all := census{held: make(map[bb.NodeID]map[string]Holding), specs: make(map[string]bb.Buffer)}
	specs, err := d.bufferSpecs(ctx)
	if err != nil {
		return all, err
	}
	for _, spec := range specs {
		all.specs[spec.Name] = spec
		b, err := d.buffer(ctx, spec.Name)
		if err == nil {
			err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
				all.add(spec.Name, b.home(&e), &e)
				return nil
			})
		}
		if bb.KindOf(err) == bb.NotFound {
			continue // destroyed meanwhile
		}
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// add counts an entry, if its bytes are not on a store.
func (c *census) add(buffer string, home bb.NodeID, e *bb.Entry) {
	state := e.State()
	if e.Type != bb.TypeFile || state != bb.StateDirty && state != bb.StateOpen {
		return
	}
	if c.held[home] == nil {
		c.held[home] = make(map[string]Holding)
	}
	h := c.held[home][buffer]
	h.Buffer = buffer
	h.Files++
	h.Bytes += e.Size
	if state == bb.StateOpen {
		h.Open++
	}
	if replicaOf(e) != "" {
		h.Seconds++
	}
	c.held[home][buffer] = h
}
