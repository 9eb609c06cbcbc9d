package provider

import (
	"fmt"
	"sync"

	"forebay/rdma"
)

// Admission is a peer's permission to be connected, for any provider: Options.Admit returns it, and its
// owner may end it. It counts the connections of all providers that were given it. It may be used
// concurrently.
type Admission struct {
	limit int
	conns Set[rdma.Conn]
	enter sync.Mutex // keeps connections that enter together within the limit
}

// NewAdmission admits so many connections at once.
func NewAdmission(conns int) *Admission { return &Admission{limit: conns} }

// End closes the connections that were admitted, and admits no more. When it returns, no fabric
// touches any region's memory for any of them. Not even those whose handshake was under way can
// come later. It is idempotent.
func (a *Admission) End() { _ = a.conns.Close() } // closing a connection cannot fail

// Admit is for providers. It takes in a connection whose threads have not started.
func (a *Admission) Admit(c rdma.Conn) error {
	if a == nil {
		return nil
	}
	a.enter.Lock()
	defer a.enter.Unlock()
	if len(a.conns.All()) >= a.limit {
		return fmt.Errorf("more than %d connections with one admission: %w", a.limit, rdma.ErrAccess)
	}
	return a.conns.Add(c)
}

// Leave is for providers. The connection has ended.
func (a *Admission) Leave(c rdma.Conn) {
	if a != nil {
		a.conns.Remove(c)
	}
}
