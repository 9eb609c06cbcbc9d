package rdma

import (
	"context"
	"sync"
)

// doDepth is how many operations one Do has in flight.
const doDepth = 256

// doQueues keeps the private queues of Do, so that an operation allocates nothing.
var doQueues = sync.Pool{New: func() any { return NewQueue(doDepth) }}

// Do posts operations and waits for all of them. It returns the first error and posts nothing
// further after it. When it returns, every posted operation has completed and the memory is the
// caller's again. So the end of a context stops posting, but does not abandon operations in flight
// (the provider's own time limits bound those, and Conn.Close ends them at once). The operations'
// IDs are ignored. It may be called concurrently.
func Do(ctx context.Context, c Conn, ops []Op) error {
	q := doQueues.Get().(*Queue)
	var first error
	flying := 0
	for {
		if first == nil && len(ops) > 0 && flying < doDepth {
			n, err := c.Post(ctx, q, ops)
			ops, flying, first = ops[n:], flying+n, err
			continue
		}
		if flying == 0 {
			break
		}
		n, _ := q.wait(nil, nil, q.scratch[:])
		flying -= n
		for i := range n {
			if first == nil {
				first = q.scratch[i].Err
			}
		}
	}
	doQueues.Put(q)
	return first
}
