package tcp

import (
	"bytes"
	"io"
	"net"
	"testing"

	"forebay/rdma"
)

func FuzzDecodeHello(f *testing.F) {
	good := hello{streams: 2, chunk: 1 << 20, window: 8, session: [16]byte{1, 2}}
	f.Add(good.encode())
	f.Add([]byte(magic))
	f.Add(bytes.Repeat([]byte{0xff}, helloSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		if again, err := decodeHello(h.encode()); err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func FuzzDecodeFrame(f *testing.F) {
	for k := kindWrite; k <= kindData; k++ {
		fr := frame{kind: k, length: 9, tag: 1, at: 2, total: 11, offset: 3, key: rdma.NewRemoteKey(4)}
		f.Add(append(fr.append(nil), make([]byte, requestSize)...)[:requestSize])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < requestSize {
			return
		}
		fr, err := decodeBase(b, maxChunk)
		if err != nil {
			return
		}
		if fr.length > maxChunk {
			t.Fatalf("length %d accepted", fr.length)
		}
		if fr.kind.isRequest() {
			must(t, fr.decodeRequest(b[baseSize:]))
		}
		if again := fr.append(nil); !bytes.Equal(again, b[:len(again)]) {
			t.Fatalf("%x became %x", b[:len(again)], again)
		}
	})
}

// keyHere stands in the corpus where the region's real key goes.
var keyHere = bytes.Repeat([]byte{'K'}, rdma.RemoteKeySize)

// FuzzConn feeds a live connection with two operations in flight. On any input: no panic, no thread
// left, each operation completes once.
func FuzzConn(f *testing.F) {
	placeholder, err := rdma.DecodeRemoteKey(keyHere)
	if err != nil {
		f.Fatal(err)
	}
	w := frame{kind: kindWrite, length: 8, total: 8, key: placeholder}
	r := frame{kind: kindRead, length: 4096, total: 4096, key: placeholder}
	ack := frame{kind: kindAck, length: 100, total: 100, tag: 1 << 32}
	data := frame{kind: kindData, length: 100, total: 100, tag: 1<<32 | 1}
	f.Add(append(w.append(nil), make([]byte, 8)...), ping[:])
	f.Add(r.append(r.append(nil)), append([]byte{1, 0, 0, 0, 0, 0, 0, 3}, "abc"...))
	f.Add(append(data.append(ack.append(nil)), make([]byte, 100)...), []byte{})
	f.Add(ack.append(ack.append(nil)), append(ping[:], ping[:]...))
	f.Fuzz(func(t *testing.T, data, control []byte) {
		fabric, err := New(Options{Streams: 1, Depth: 2, Window: 4})
		must(t, err)
		region, err := fabric.Register(make([]byte, 4096), rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
		must(t, err)
		key, _ := region.Key().AppendBinary(nil) // cannot fail
		theirs := fabric.hello(1)
		near, far := pipes()
		c, err := newConn(fabric, near[:], theirs)
		must(t, err)
		q := rdma.NewQueue(2)
		n, err := c.Post(t.Context(), q, []rdma.Op{
			{Kind: rdma.OpWrite, Local: make([]byte, 100), ID: 0}, {Kind: rdma.OpRead, Local: make([]byte, 100), ID: 1},
		})
		if n != 2 {
			t.Fatal(n, err)
		}
		for i, b := range [][]byte{control, bytes.ReplaceAll(data, keyHere, key)} {
			go func() { _, _ = io.Copy(io.Discard, far[i]) }()
			_, _ = far[i].Write(b) // refused when the connection is cut
		}
		_ = far[0].Close()
		<-c.done
		must(t, fabric.Close())
		var seen [2]rdma.Completion
		if n := q.Poll(seen[:]); n != 2 || seen[0].ID == seen[1].ID {
			t.Fatalf("%d completions: %v", n, seen)
		}
	})
}

func pipes() (near [2]socket, far [2]net.Conn) {
	for i := range near {
		a, b := net.Pipe()
		near[i], far[i] = socket{Conn: a, raw: a}, b
	}
	return near, far
}
