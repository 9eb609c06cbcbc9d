package shm

import (
	"fmt"
	"maps"
	"os"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/target"
)

// region implements rdma.Region: what this process has registered, and which connections were
// given it.
type region struct {
	*target.Region
	fabric *Fabric
	file   *os.File // nil for local access
	offset int64

	mu struct {
		sync.Mutex
		closed  bool
		holders map[*conn]chan struct{} // closed when the peer has let go
	}
	once sync.Once
	err  error
}

// find returns the region with this key.
func (f *Fabric) find(key rdma.RemoteKey) (*region, error) {
	if _, err := f.regions.Find(key); err != nil {
		return nil, err
	}
	f.files.Lock()
	defer f.files.Unlock()
	r := f.files.byID[key.ID()]
	switch {
	case r == nil: // closed since
		return nil, rdma.ErrRevoked
	case r.Access() == rdma.AccessLocal:
		return nil, rdma.ErrAccess
	}
	return r, nil
}

// grant gives the region to a connection: send is called, under the region's lock, only if the
// region is not closed, so that whatever it queues comes before the revocation.
func (r *region) grant(c *conn, send func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return rdma.ErrRevoked
	}
	if r.mu.holders[c] == nil {
		r.mu.holders[c] = make(chan struct{})
	}
	return send()
}

// letGo says that a connection's peer has no mapping any more.
func (r *region) letGo(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch := r.mu.holders[c]; ch != nil {
		close(ch)
		delete(r.mu.holders, c)
	}
}

// Close implements rdma.Region.
func (r *region) Close() error {
	r.once.Do(func() { r.err = r.close() })
	return r.err
}

func (r *region) close() error {
	r.Revoke()
	f := r.fabric
	r.mu.Lock()
	r.mu.closed = true
	waits := make(map[*conn]chan struct{}, len(r.mu.holders))
	maps.Copy(waits, r.mu.holders)
	r.mu.Unlock()

	for c := range waits {
		c.revoke(r.Key().ID())
	}
	err := r.await(waits)
	f.files.Lock()
	delete(f.files.byID, r.Key().ID())
	f.files.Unlock()
	f.owned.Remove(r)
	if r.file != nil {
		_ = r.file.Close() // nothing was written through it
	}
	return err
}

// await waits for all to let go; those that do not in time are disconnected and counted.
func (r *region) await(waits map[*conn]chan struct{}) error {
	timer := time.NewTimer(r.fabric.opts.RevokeTimeout)
	defer timer.Stop()
	stalled := 0
	for c, ch := range waits {
		if stalled == 0 {
			select {
			case <-ch:
				continue
			case <-timer.C:
			}
		}
		select {
		case <-ch:
		default:
			stalled++
			c.fail(fmt.Errorf("shm %s: did not confirm a revocation: %w", c.peer, rdma.ErrPeerGone))
		}
	}
	if stalled > 0 {
		return fmt.Errorf("shm: %d peers did not confirm that they unmapped %v: %w", stalled, r.Key(), rdma.ErrPeerGone)
	}
	return nil
}
