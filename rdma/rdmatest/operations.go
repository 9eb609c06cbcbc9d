package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"forebay/rdma"
)

func testWriteThenRead(t *testing.T, p Provider) {
	x := newPair(t, p)
	r := x.region(3<<20, readWrite)
	src, dst := fill(x.local(3<<20), 1), x.local(3<<20)
	must(t, x.do(write(src, r.Key(), 0, 0)))
	if !bytes.Equal(r.Bytes(), src) {
		t.Fatal("the region does not hold what was written when the write has completed")
	}
	must(t, x.do(read(dst, r.Key(), 0, 0)))
	if !bytes.Equal(dst, src) {
		t.Fatal("read something else than was written")
	}
	back := register(t, x.near, 1<<20, readWrite) // and the other way round
	must(t, rdma.Do(x.ctx, x.farConn, []rdma.Op{write(localFrom(t, x.far, src[:1<<20]), back.Key(), 0, 0)}))
	if !bytes.Equal(back.Bytes(), src[:1<<20]) {
		t.Fatal("the accepting side's write did not arrive")
	}
}

func localFrom(t testing.TB, f rdma.Fabric, b []byte) []byte {
	local := localMemory(t, f, len(b))
	copy(local, b)
	return local
}

// testSizes writes and reads back lengths and offsets that are aligned to nothing, and checks
// the bytes around them.
func testSizes(t *testing.T, p Provider) {
	x := newPair(t, p)
	const size = 5 << 20
	r := x.region(size, readWrite)
	want := append([]byte(nil), r.Bytes()...)
	for i, c := range []struct{ off, n int }{
		{0, 0},
		{size, 0},
		{0, 1},
		{1, 1},
		{size - 1, 1},
		{3, 7},
		{4095, 2},
		{4097, 4095},
		{65533, 65539},
		{1<<20 - 1, 1<<20 + 2},
		{13, 4<<20 + 11},
		{2047, 2049},
		{0, size},
	} {
		src, dst := fill(x.local(c.n + 3)[3:], i), x.local(c.n + 1)[1:]
		copy(want[c.off:], src)
		must(t, x.do(write(src, r.Key(), uint64(c.off), 0)))
		if !bytes.Equal(r.Bytes(), want) {
			t.Fatalf("%d bytes written at %d: the region differs", c.n, c.off)
		}
		must(t, x.do(read(dst, r.Key(), uint64(c.off), 0)))
		if !bytes.Equal(dst, src) {
			t.Fatalf("%d bytes read at %d differ", c.n, c.off)
		}
	}
}

func testBatches(t *testing.T, p Provider) {
	x := newPair(t, p)
	const n, size = 300, 1000
	r := x.region(n*size, readWrite)
	src, dst := fill(x.local(n*size), 2), x.local(n*size)
	writes, reads := make([]rdma.Op, n), make([]rdma.Op, n)
	for i := range n {
		writes[i] = write(src[i*size:(i+1)*size], r.Key(), uint64(i*size), uint64(i))
		reads[i] = read(dst[i*size:(i+1)*size], r.Key(), uint64(i*size), uint64(i))
	}
	q := rdma.NewQueue(2 * n)
	for _, batch := range [][]rdma.Op{writes, reads} {
		postAll(t, x, q, batch)
		seen := drain(t, x, q, n)
		for i := range uint64(n) {
			if got, ok := seen[i]; !ok || got != nil {
				t.Fatalf("operation %d: completed %v, error %v", i, ok, got)
			}
		}
	}
	if !bytes.Equal(src, dst) {
		t.Fatal("data differ")
	}
	if extra := q.Poll(make([]rdma.Completion, 1)); extra != 0 {
		t.Fatal("a completion too many")
	}
}

func postAll(t testing.TB, x *pair, q *rdma.Queue, ops []rdma.Op) {
	t.Helper()
	for len(ops) > 0 {
		n, err := x.conn.Post(x.ctx, q, ops)
		must(t, err)
		ops = ops[n:]
	}
}

// drain waits for n completions, each with an ID of its own.
func drain(t testing.TB, x *pair, q *rdma.Queue, n int) map[uint64]error {
	t.Helper()
	seen := make(map[uint64]error, n)
	buf := make([]rdma.Completion, 64)
	for len(seen) < n {
		k, err := q.Wait(x.ctx, buf)
		if err != nil {
			t.Fatalf("%d of %d completions, then: %v", len(seen), n, err)
		}
		for _, c := range buf[:k] {
			if _, twice := seen[c.ID]; twice {
				t.Fatalf("operation %d completed twice", c.ID)
			}
			seen[c.ID] = c.Err
		}
	}
	return seen
}

// testRefused: operations that the key does not allow fail with the right reason, and touch nothing.
func testRefused(t *testing.T, p Provider) {
	const size = 1 << 20
	for _, c := range []struct {
		name   string
		access rdma.Access
		op     func(b []byte, key rdma.RemoteKey) rdma.Op
		want   error
	}{
		{"write to read-only", rdma.AccessRemoteRead, func(b []byte, k rdma.RemoteKey) rdma.Op { return write(b, k, 0, 0) }, rdma.ErrAccess},
		{"read from write-only", rdma.AccessRemoteWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return read(b, k, 0, 0) }, rdma.ErrAccess},
		{"read from local", rdma.AccessLocal, func(b []byte, k rdma.RemoteKey) rdma.Op { return read(b, k, 0, 0) }, rdma.ErrAccess},
		{"write with wrong secret", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return write(b, forge(k, 31), 0, 0) }, rdma.ErrAccess},
		{"read with wrong secret", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return read(b, forge(k, 8), 0, 0) }, rdma.ErrAccess},
		{"unknown id", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return write(b, forge(k, 0), 0, 0) }, rdma.ErrAccess},
		{"no key", readWrite, func(b []byte, _ rdma.RemoteKey) rdma.Op { return read(b, rdma.RemoteKey{}, 0, 0) }, rdma.ErrAccess},
		{"one byte beyond", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return write(b, k, 1, 0) }, rdma.ErrBounds},
		{"read beyond", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return read(b, k, size-1, 0) }, rdma.ErrBounds},
		{"nothing, beyond", readWrite, func(_ []byte, k rdma.RemoteKey) rdma.Op { return write(nil, k, size+1, 0) }, rdma.ErrBounds},
		{"offset overflows", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return write(b, k, math.MaxUint64-10, 0) }, rdma.ErrBounds},
		{"sum is zero", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return read(b, k, math.MaxUint64-size+1, 0) }, rdma.ErrBounds},
		{"offset is negative", readWrite, func(b []byte, k rdma.RemoteKey) rdma.Op { return write(b, k, 1<<63, 0) }, rdma.ErrBounds},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newPair(t, p)
			r := x.region(size, c.access)
			before := append([]byte(nil), r.Bytes()...)
			if err := x.do(c.op(fill(x.local(size), 3), r.Key())); !x.refusal(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if !bytes.Equal(before, r.Bytes()) {
				t.Fatal("a refused operation changed the region")
			}
			if x.limit.ErrorEndsConn {
				return
			}
			good := x.region(1000, readWrite)
			must(t, x.do(write(x.local(1000), good.Key(), 0, 0)))
		})
	}
}

// refusal reports whether err is the expected reason, or the one error of hardware for every reason.
func (x *pair) refusal(err, want error) bool {
	return errors.Is(err, want) || x.limit.ErrorEndsConn && errors.Is(err, rdma.ErrAccess)
}

// forge changes one byte of a key.
func forge(k rdma.RemoteKey, at int) rdma.RemoteKey {
	b, _ := k.AppendBinary(nil) // cannot fail
	b[at] ^= 0x40
	k, _ = rdma.DecodeRemoteKey(b) // has the right length
	return k
}

func testMalformed(t *testing.T, p Provider) {
	x := newPair(t, p)
	r := x.region(100, readWrite)
	q := rdma.NewQueue(4)
	good, bad := write(x.local(100), r.Key(), 0, 7), rdma.Op{Kind: 9, Local: x.local(1)}
	n, err := x.conn.Post(x.ctx, q, []rdma.Op{good, bad, good})
	if n != 1 || !errors.Is(err, rdma.ErrInvalid) {
		t.Fatalf("posted %d, error %v; want 1 and %v", n, err, rdma.ErrInvalid)
	}
	if seen := drain(t, x, q, 1); seen[7] != nil {
		t.Fatal(seen[7])
	}
	if n, err := x.conn.Post(x.ctx, q, nil); n != 0 || err != nil {
		t.Fatalf("an empty batch: %d, %v", n, err)
	}
	if _, err := x.far.Register(make([]byte, 8), 0x80); err == nil {
		t.Fatal("an unknown access flag was accepted")
	}
}

func testKeysAreSecret(t *testing.T, p Provider) {
	x := newPair(t, p)
	a, b := x.region(100, readWrite), x.region(100, readWrite)
	if a.Key() == b.Key() || a.Key().ID() == b.Key().ID() {
		t.Fatal("two regions share a key")
	}
	raw, err := a.Key().AppendBinary(nil)
	must(t, err)
	if len(raw) != rdma.RemoteKeySize {
		t.Fatalf("a key has %d bytes", len(raw))
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%s", "%q", "%d"} {
		if s := fmt.Sprintf(verb, a.Key()); s != a.Key().String() || strings.Contains(s, fmt.Sprintf("%x", raw[8:12])) {
			t.Fatalf("%s shows %q", verb, s)
		}
	}
}

// testTenThousandInFlight posts ten thousand operations while the queue is not drained.
func testTenThousandInFlight(t *testing.T, p Provider) {
	x := newPair(t, p)
	const n, size = 10_000, 512
	r := x.region(n*size, readWrite)
	src, dst := fill(x.local(n*size), 4), x.local(n*size)
	q := rdma.NewQueue(n)
	for _, make1 := range []func(i int) rdma.Op{
		func(i int) rdma.Op { return write(src[i*size:(i+1)*size], r.Key(), uint64(i*size), uint64(i)) },
		func(i int) rdma.Op { return read(dst[i*size:(i+1)*size], r.Key(), uint64(i*size), uint64(i)) },
	} {
		ops := make([]rdma.Op, n)
		for i := range ops {
			ops[i] = make1(i)
		}
		postAll(t, x, q, ops)
		for id, err := range drain(t, x, q, n) {
			if err != nil {
				t.Fatalf("operation %d: %v", id, err)
			}
		}
	}
	if !bytes.Equal(src, r.Bytes()) || !bytes.Equal(src, dst) {
		t.Fatal("data differ")
	}
}

// testBackPressure posts ten thousand operations through a queue of sixteen.
func testBackPressure(t *testing.T, p Provider) {
	x := newPair(t, p)
	const n, depth, size = 10_000, 16, 64
	r := x.region(n*size, readWrite)
	src := fill(x.local(n*size), 5)
	q := rdma.NewQueue(depth)
	failed := make(chan error, 1)
	go func() {
		ops := make([]rdma.Op, n)
		for i := range ops {
			ops[i] = write(src[i*size:(i+1)*size], r.Key(), uint64(i*size), uint64(i))
		}
		for len(ops) > 0 {
			k, err := x.conn.Post(x.ctx, q, ops)
			if err != nil || k < 1 || k > depth {
				failed <- fmt.Errorf("posted %d: %w", k, err)
				return
			}
			ops = ops[k:]
		}
		failed <- nil
	}()
	drain(t, x, q, n)
	must(t, <-failed)
	if !bytes.Equal(src, r.Bytes()) {
		t.Fatal("data differ")
	}
}

func testCancelledPost(t *testing.T, p Provider) {
	x := newPair(t, p)
	r := x.region(100, readWrite)
	q := rdma.NewQueue(1)
	op := write(x.local(100), r.Key(), 0, 1)
	postAll(t, x, q, []rdma.Op{op})
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	if n, err := x.conn.Post(ctx, q, []rdma.Op{op}); n != 0 || !errors.Is(err, context.Canceled) {
		t.Fatalf("posted %d, error %v", n, err)
	}
	if err := drain(t, x, q, 1)[1]; err != nil {
		t.Fatal(err)
	}
	postAll(t, x, q, []rdma.Op{op}) // the room is there again
	drain(t, x, q, 1)
	if _, err := q.Wait(ctx, make([]rdma.Completion, 1)); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// testConcurrent: many callers, two connections, reads and writes at once, from both sides of one.
func testConcurrent(t *testing.T, p Provider) {
	x := newPair(t, p)
	const callers, rounds, size = 16, 20, 70_001
	r := x.region(callers*size, readWrite)
	second, _ := x.connect()
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := range callers {
		conn := []rdma.Conn{x.conn, second}[i%2]
		src, dst := x.local(size), x.local(size)
		wg.Go(func() {
			for round := range rounds {
				fill(src, i*rounds+round)
				err := rdma.Do(x.ctx, conn, []rdma.Op{write(src, r.Key(), uint64(i*size), 0)})
				if err == nil {
					err = rdma.Do(x.ctx, conn, []rdma.Op{read(dst, r.Key(), uint64(i*size), 0)})
				}
				if err != nil || !bytes.Equal(src, dst) {
					t.Errorf("caller %d, round %d: error %v, or data differ", i, round, err)
					return
				}
			}
		})
	}
	back := register(t, x.near, size, readWrite)
	src, dst := localMemory(t, x.far, size), localMemory(t, x.far, size)
	for round := range rounds {
		fill(src, -round)
		must(t, rdma.Do(x.ctx, x.farConn, []rdma.Op{write(src, back.Key(), 0, 0)}))
		must(t, rdma.Do(x.ctx, x.farConn, []rdma.Op{read(dst, back.Key(), 0, 0)}))
		if !bytes.Equal(src, dst) {
			t.Fatalf("round %d of the accepting side: data differ", round)
		}
	}
}
