//go:build ofi && cgo

package ofi

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

// TestSmallWritesNeedNoStage: bytes that libfabric copies when they are posted are not staged,
// though the fabric requires registered memory. Larger writes, and reads, are.
func TestSmallWritesNeedNoStage(t *testing.T) { smallWritesNeedNoStage(t, "hardware") }

func smallWritesNeedNoStage(t *testing.T, name string) {
	x := newLinkOf(t, name, all)
	inject := x.near.dev.Inject
	if inject < 2 {
		t.Fatalf("this provider copies %d bytes: this proves nothing", inject)
	}
	for _, n := range []int{1, 8, inject - 1, inject} {
		b := bytes.Repeat([]byte{byte(n)}, n)
		must(t, x.do(rdma.OpWrite, 100, b))
		if !bytes.Equal(x.region.Bytes()[100:100+n], b) {
			t.Errorf("a write of %d bytes is not there", n)
		}
	}
	if n := x.slabs(); n != 0 {
		t.Error("small writes were staged")
	}
	must(t, x.do(rdma.OpRead, 0, make([]byte, 1)))
	if n := x.slabs(); n != 1 {
		t.Error("what was read was not staged: this proves nothing")
	}
}

// benchLink is newLinkOf for benchmarks.
func benchLink(b *testing.B, name string) (near *Fabric, c rdma.Conn, r rdma.Region) {
	b.Helper()
	conf := configurations[name]
	open := func() *Fabric {
		f, err := newFabric(conf.opts, conf.rules)
		must(b, err)
		b.Cleanup(func() { must(b, f.Close()) })
		return f
	}
	near, far := open(), open()
	l, err := far.Listen(b.Context(), "127.0.0.1:0")
	must(b, err)
	mem, err := rdmatest.Allocate(1 << 20)
	must(b, err)
	r, err = far.Register(mem, all)
	must(b, err)
	b.Cleanup(func() { must(b, r.Close()); must(b, rdmatest.Free(mem)) })
	c, err = near.Dial(b.Context(), l.Addr())
	must(b, err)
	_, err = l.Accept(b.Context())
	must(b, err)
	return near, c, r
}

// turns runs two ways of the same thing in short turns, so that a noisy machine is noisy to both,
// and reports the time that one round of each took, and the first's over the second's.
func turns(b *testing.B, names [2]string, ways [2]func()) {
	const turn = 32
	var took [2]time.Duration
	rounds := 0
	for ; b.Loop(); rounds += turn {
		for i, way := range ways {
			start := time.Now()
			for range turn {
				way()
			}
			took[i] += time.Since(start)
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, name := range names {
		b.ReportMetric(float64(took[i].Nanoseconds())/float64(rounds), "ns/"+name)
	}
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "ratio")
}

// BenchmarkInline compares the two ways of handing bytes to a peer that answers on arrival: inside
// the request, from which the peer copies them to their place, or with a one-sided write before it.
// Messages go over TCP, as those of sessions do. If ratio exceeds 1, bytes should no longer travel
// in messages.
func BenchmarkInline(b *testing.B) {
	for _, name := range []string{"tcp", "sockets", "hardware"} {
		for n := 64; n <= 64<<10; n *= 4 {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) { benchInline(b, name, n) })
		}
	}
}

func benchInline(b *testing.B, name string, n int) {
	_, c, r := benchLink(b, name)
	ask := asker(b, r.Bytes())
	data := make([]byte, n)
	ops := []rdma.Op{{Kind: rdma.OpWrite, Local: data, Remote: rdma.Remote{Key: r.Key()}}}
	turns(b, [2]string{"message", "onesided"}, [2]func(){
		func() { ask(data) },
		func() {
			must(b, rdma.Do(b.Context(), c, ops))
			ask(data[:1])
		},
	})
}

// asker returns a function that sends a message to a peer over TCP and waits until the peer has copied
// it to a place and answered.
func asker(b *testing.B, place []byte) func(msg []byte) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	must(b, err)
	peer, err := l.Accept()
	must(b, err)
	answered := make(chan struct{})
	b.Cleanup(func() { _, _ = c.Close(), peer.Close(); <-answered })
	go func() {
		defer close(answered)
		got := make([]byte, 4+len(place))
		for {
			if _, err := io.ReadFull(peer, got[:4]); err != nil {
				return
			}
			n := binary.LittleEndian.Uint32(got)
			if _, err := io.ReadFull(peer, got[4:4+n]); err != nil {
				return
			}
			copy(place, got[4:4+n])
			if _, err := peer.Write(got[:1]); err != nil {
				return
			}
		}
	}()
	out, in := make([]byte, 4+len(place)), make([]byte, 1)
	return func(msg []byte) {
		binary.LittleEndian.PutUint32(out, uint32(len(msg)))
		_, err := c.Write(out[:4+copy(out[4:], msg)])
		must(b, err)
		_, err = io.ReadFull(c, in)
		must(b, err)
	}
}

// BenchmarkInject compares writes of as much as the fabric copies when they are posted with the
// same staged, 64 at once, from memory that is in no region.
func BenchmarkInject(b *testing.B) {
	near, c, r := benchLink(b, "hardware")
	n := near.dev.Inject
	ops := make([]rdma.Op, 64)
	for i := range ops {
		ops[i] = rdma.Op{Kind: rdma.OpWrite, Local: make([]byte, n), Remote: rdma.Remote{Key: r.Key(), Offset: uint64(i * n)}}
	}
	write := func(inject int) func() {
		return func() {
			near.dev.Inject = inject // nothing is under way
			must(b, rdma.Do(b.Context(), c, ops))
		}
	}
	turns(b, [2]string{"injected", "staged"}, [2]func(){write(n), write(0)})
}
