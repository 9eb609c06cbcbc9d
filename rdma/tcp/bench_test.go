package tcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"forebay/rdma"
)

const benchOp = 1 << 20

// BenchmarkOneSided moves 1 MiB operations over loopback, and in turn with it the same bytes over
// as many plain TCP connections: "ratio" is the first rate over the second. Both send from one
// buffer and receive into another, with a few operations in flight per stream.
func BenchmarkOneSided(b *testing.B) {
	for _, streams := range []int{1, 2, 4} {
		for _, kind := range []rdma.OpKind{rdma.OpWrite, rdma.OpRead} {
			name := map[rdma.OpKind]string{rdma.OpRead: "read", rdma.OpWrite: "write"}[kind]
			b.Run(fmt.Sprintf("%s/streams=%d", name, streams), func(b *testing.B) {
				compare(b, newRaw(b, streams), newOps(b, streams, kind))
			})
		}
	}
}

// compare runs both in short turns, so that a noisy machine is noisy to both.
func compare(b *testing.B, raw, ours func(n int)) {
	const turn = 64
	var rawTime, ourTime time.Duration
	raw(turn)
	ours(turn)
	b.SetBytes(benchOp)
	b.ResetTimer()
	for left := b.N; left > 0; left -= turn {
		n := min(turn, left)
		start := time.Now()
		ours(n)
		ourTime += time.Since(start)
		b.StopTimer()
		start = time.Now()
		raw(n)
		rawTime += time.Since(start)
		b.StartTimer()
	}
	rate := func(d time.Duration) float64 { return float64(b.N) * benchOp / 1e6 / d.Seconds() }
	b.ReportMetric(rate(rawTime), "rawMB/s")
	b.ReportMetric(rawTime.Seconds()/ourTime.Seconds(), "ratio")
}

// newRaw returns a function that sends n times benchOp bytes over plain connections and waits
// until they have been read.
func newRaw(b *testing.B, streams int) func(n int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	src, dst := make([]byte, 16*benchOp), make([]byte, 16*benchOp)
	var out, in []net.Conn
	for range streams {
		o, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		i, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = o.Close(); _ = i.Close() })
		out, in = append(out, o), append(in, i)
	}
	return func(n int) {
		var wg sync.WaitGroup
		for s := range streams {
			var mine []int
			for i := s; i < n; i += streams {
				mine = append(mine, i%16*benchOp)
			}
			wg.Go(func() {
				for _, at := range mine {
					if _, err := out[s].Write(src[at : at+benchOp]); err != nil {
						b.Error(err)
					}
				}
			})
			wg.Go(func() {
				for _, at := range mine {
					if _, err := io.ReadFull(in[s], dst[at:at+benchOp]); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func newOps(b *testing.B, streams int, kind rdma.OpKind) func(n int) {
	ctx, cancel := context.WithCancel(context.Background())
	far, near := benchFabric(b, streams), benchFabric(b, streams)
	b.Cleanup(cancel)
	r, err := far.Register(make([]byte, 16*benchOp), rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		b.Fatal(err)
	}
	l, err := far.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	conn, err := near.Dial(ctx, l.Addr())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := l.Accept(ctx); err != nil {
		b.Fatal(err)
	}
	local := make([]byte, 16*benchOp)
	ops := make([]rdma.Op, 64)
	for i := range ops {
		at := i % 16 * benchOp
		ops[i] = rdma.Op{Kind: kind, Local: local[at : at+benchOp], Remote: rdma.Remote{Key: r.Key(), Offset: uint64(at)}}
	}
	return func(n int) {
		if err := rdma.Do(ctx, conn, ops[:n]); err != nil {
			b.Fatal(err)
		}
	}
}

func benchFabric(b *testing.B, streams int) *Fabric {
	f, err := New(Options{Streams: streams})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	return f
}
