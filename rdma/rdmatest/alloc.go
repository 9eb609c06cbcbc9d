package rdmatest

import (
	"testing"

	"forebay/rdma"
)

// Allocations checks that an operation of 1 MiB, posted and waited for, allocates nothing on
// either side. It is not part of Suite, for the race detector allocates by itself.
func Allocations(t *testing.T, p Provider) {
	x := newPair(t, p)
	const size = 1 << 20
	r := x.region(size, readWrite)
	local := x.local(size)
	q := rdma.NewQueue(4)
	done := make([]rdma.Completion, 4)
	for name, ops := range map[string][]rdma.Op{
		"write": {write(local, r.Key(), 0, 1)},
		"read":  {read(local, r.Key(), 0, 2)},
	} {
		postAndWait := func() {
			n, err := x.conn.Post(x.ctx, q, ops)
			if n != 1 || err != nil {
				t.Fatalf("%s: posted %d, %v", name, n, err)
			}
			if n, err := q.Wait(x.ctx, done); n != 1 || err != nil || done[0].Err != nil {
				t.Fatalf("%s: %d completions, %v, %v", name, n, err, done[0].Err)
			}
		}
		for range 50 {
			postAndWait() // first uses; mappings, buffers of the sockets
		}
		if n := testing.AllocsPerRun(200, postAndWait); n != 0 {
			t.Errorf("%s: Post and Wait allocate %v times", name, n)
		}
		if n := testing.AllocsPerRun(200, func() { must(t, x.do(ops[0])) }); n > 1 {
			t.Errorf("%s: Do allocates %v times", name, n) // 1: the slice of this test's own call
		}
	}
}
