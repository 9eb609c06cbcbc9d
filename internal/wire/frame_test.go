package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/iotest"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	"forebay/internal/bb"
)

func frame(t testing.TB, typ Type, flags uint16, id uint64, m proto.Message, data []byte) []byte {
	t.Helper()
	f, err := AppendFrame(nil, typ, flags, id, m, len(data))
	if err != nil {
		t.Fatal(err)
	}
	return append(f, data...)
}

func TestFramesRoundTrip(t *testing.T) {
	var stream []byte
	stream = append(stream, frame(t, Type_TYPE_STAT, 0, 7, &PathRequest{Buffer: "b", Path: "p"}, nil)...)
	stream = append(stream, frame(t, Type_TYPE_COMMIT, FlagReply|FlagMore, 8, nil, bytes.Repeat([]byte("d"), 100_000))...)
	stream = append(stream, frame(t, Type_TYPE_STAT, FlagError, 1<<63, &Error{Reason: "why"}, []byte("x"))...)
	for name, source := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "bytewise": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(source)
			h, m, err := r.Next()
			var p PathRequest
			if err != nil || h.Type != Type_TYPE_STAT || h.Request != 7 || proto.Unmarshal(m, &p) != nil || p.Path != "p" {
				t.Fatalf("first frame: %+v %v %v", h, &p, err)
			}
			h, _, err = r.Next()
			if err != nil || h.DataLength != 100_000 || !h.Has(FlagReply|FlagMore) {
				t.Fatalf("second frame: %+v %v", h, err)
			}
			data := make([]byte, h.DataLength)
			if err := r.ReadData(data); err != nil || data[99_999] != 'd' {
				t.Fatalf("data: %v", err)
			}
			h, _, err = r.Next()
			if err != nil || h.Request != 1<<63 || r.ReadData(data[:1]) != nil || data[0] != 'x' {
				t.Fatalf("third frame: %+v %v", h, err)
			}
			if _, _, err := r.Next(); err != io.EOF {
				t.Fatalf("at the end: %v", err)
			}
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	good := frame(t, Type_TYPE_STAT, 0, 1, &PathRequest{Path: "a"}, nil)
	change := func(at int, value uint32) []byte {
		f := bytes.Clone(good)
		binary.LittleEndian.PutUint32(f[at:], value)
		return f
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, stream := range map[string][]byte{
		"oversized message": change(0, MaxMessage+1),
		"oversized data":    change(4, MaxData+1),
		"longest message":   change(0, 0xFFFFFFFF),
		"flipped header":    change(8, 99),
		"flipped message":   flipped,
	} {
		_, _, err := NewReader(bytes.NewReader(stream)).Next()
		var f *FrameError
		if !errors.As(err, &f) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n := 1; n < len(good); n++ {
		if _, _, err := NewReader(bytes.NewReader(good[:n])).Next(); err != io.ErrUnexpectedEOF {
			t.Fatalf("truncated after %d bytes: %v", n, err)
		}
	}
}

func TestAppendFrameRefusesWhatNobodyWouldRead(t *testing.T) {
	if _, err := AppendFrame(nil, Type_TYPE_STAT, 0, 1, &PathRequest{Path: string(make([]byte, MaxMessage))}, 0); err == nil {
		t.Error("an oversized message was framed")
	}
	if _, err := AppendFrame(nil, Type_TYPE_STAT, 0, 1, nil, MaxData+1); err == nil {
		t.Error("oversized data was framed")
	}
}

func TestReaderDoesNotKeepLargeBuffers(t *testing.T) {
	var stream []byte
	stream = append(stream, frame(t, Type_TYPE_STAT, 0, 1, &PathRequest{Path: string(make([]byte, MaxMessage-100))}, nil)...)
	for range 10_000 {
		stream = append(stream, frame(t, Type_TYPE_STAT, 0, 1, &PathRequest{Path: "a"}, nil)...)
	}
	r := NewReader(bytes.NewReader(stream))
	for {
		if _, _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.buf) > readAhead {
		t.Errorf("the reader keeps %d bytes", cap(r.buf))
	}
}

func TestWriterManySenders(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close()
	w := NewWriter(client)
	const senders, each = 16, 200
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for k := range each {
				if err := w.Send(Type_TYPE_STAT, 0, uint64(i*each+k), &PathRequest{Path: "p"}, []byte{byte(i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { wg.Wait(); client.Close() }()
	r, seen := NewReader(server), map[uint64]bool{}
	for {
		h, _, err := r.Next()
		if err == io.EOF {
			break
		}
		var data [1]byte
		if err != nil || r.ReadData(data[:]) != nil || data[0] != byte(h.Request/each) || seen[h.Request] {
			t.Fatalf("%+v %v %v", h, err, seen[h.Request])
		}
		seen[h.Request] = true
	}
	if len(seen) != senders*each {
		t.Errorf("%d frames came, %d were sent", len(seen), senders*each)
	}
}

// Queued frames leave with the next frame, in order and in one write, or when they are flushed, or
// when they are too many to keep.
func TestWriterQueue(t *testing.T) {
	var out countedWrites
	w := NewWriter(&out)
	queue := func(id uint64, data []byte) {
		t.Helper()
		if err := w.Queue(Type_TYPE_OPEN, 0, id, nil, data); err != nil {
			t.Fatal(err)
		}
	}
	queue(1, nil)
	queue(2, nil)
	if out.n != 0 {
		t.Error("a queued frame was written")
	}
	if err := w.Send(Type_TYPE_STAT, 0, 3, nil, nil); err != nil || out.n != 1 {
		t.Errorf("%d writes, %v", out.n, err)
	}
	queue(4, nil)
	for range 2 {
		if err := w.Flush(); err != nil || out.n != 2 {
			t.Errorf("%d writes, %v", out.n, err)
		}
	}
	for id := uint64(5); id < 9; id++ {
		queue(id, make([]byte, maxPending/2))
	}
	if out.n != 3 {
		t.Errorf("%d writes of what is too much to keep", out.n)
	}
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	r := NewReader(&out.Buffer)
	for want := uint64(1); want < 9; want++ {
		h, _, err := r.Next()
		if err != nil || h.Request != want {
			t.Fatalf("%+v, %v; want request %d", h, err, want)
		}
		if err := r.ReadData(make([]byte, h.DataLength)); err != nil {
			t.Fatal(err)
		}
	}
}

type countedWrites struct {
	bytes.Buffer
	n int
}

func (c *countedWrites) Write(p []byte) (int, error) {
	c.n++
	return c.Buffer.Write(p)
}

func TestWriterReportsBrokenConnection(t *testing.T) {
	client, server := net.Pipe()
	server.Close()
	w := NewWriter(client)
	if w.Send(Type_TYPE_STAT, 0, 1, nil, nil) == nil {
		t.Error("sending on a closed connection succeeded")
	}
	if w.Send(Type_TYPE_STAT, 0, 2, nil, nil) == nil {
		t.Error("and a second time")
	}
}

func TestErrorsCrossTheWire(t *testing.T) {
	in := bb.E(bb.NoSpace, "write", "bb://b/x", "it is full").WithRemedy("drain it")
	out := FromError(bb.Wrap("close", "bb://b/x", in)).AsError()
	if !errors.Is(out, bb.NoSpace) || out.Op != "close" {
		t.Errorf("%v", out)
	}
	if got := (&Error{Kind: 200, Reason: "new"}).AsError(); got.Kind != bb.Internal {
		t.Errorf("a kind of a newer protocol became %v", got.Kind)
	}
}

func TestProofsDiffer(t *testing.T) {
	key, a, b := []byte("key"), make([]byte, NonceSize), bytes.Repeat([]byte{1}, NonceSize)
	x := Exchange{client: a, daemon: b}
	proofs := [][]byte{
		x.DaemonProof(key), Exchange{client: b, daemon: a}.DaemonProof(key), x.DaemonProof([]byte("other")),
		Exchange{client: a, daemon: b, channel: a}.DaemonProof(key), Exchange{client: a, daemon: b, channel: b}.DaemonProof(key),
	}
	for _, hello := range []*Hello{
		{}, {Uid: 1}, {Gid: 1}, {Node: "n"}, {Token: []byte("n")}, {Instance: 1}, {System: true}, {MinVersion: 1}, {MaxVersion: 1},
	} {
		proofs = append(proofs, x.ClientProof(key, hello))
	}
	for i := range proofs {
		for k := range i {
			if bytes.Equal(proofs[i], proofs[k]) {
				t.Errorf("proofs %d and %d are equal", i, k)
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(frame(f, Type_TYPE_STAT, 0, 1, &PathRequest{Path: "a"}, []byte("data")))
	f.Add([]byte("garbage that is longer than a header, certainly"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			h, m, err := r.Next()
			if err != nil {
				return
			}
			if len(m) != int(h.MessageLength) || len(m) > MaxMessage || h.DataLength > MaxData {
				t.Fatalf("%+v with %d bytes", h, len(m))
			}
			again, err := AppendFrame(nil, h.Type, h.Flags, h.Request, nil, int(h.DataLength))
			if err != nil || len(again) != HeaderSize {
				t.Fatal(err)
			}
			if r.ReadData(make([]byte, h.DataLength)) != nil {
				return
			}
		}
	})
}

// FuzzMessages reads messages of all kinds, as requests of programs and of other daemons carry them.
func FuzzMessages(f *testing.F) {
	seed, _ := proto.Marshal(&Open{Handle: 1, Buffer: "b", Path: "p"})
	f.Add(seed)
	take, _ := proto.Marshal(&Take{Buffer: "b"})
	f.Add(take)
	kinds := File_internal_wire_forebay_proto.Messages()
	f.Fuzz(func(t *testing.T, text []byte) {
		for i := range kinds.Len() {
			kind, err := protoregistry.GlobalTypes.FindMessageByName(kinds.Get(i).FullName())
			if err != nil {
				t.Fatal(err)
			}
			m := kind.New().Interface()
			if proto.Unmarshal(text, m) != nil {
				continue
			}
			again, err := proto.Marshal(m)
			if err != nil || proto.Unmarshal(again, kind.New().Interface()) != nil {
				t.Fatalf("%s does not come back: %v", kind.Descriptor().Name(), err)
			}
			switch m := m.(type) {
			case *Entry:
				e := m.AsEntry()
				FromEntry(&e)
			case *Buffer:
				b := m.AsBuffer()
				FromBuffer(&b)
			case *Error:
				FromError(m.AsError())
			}
		}
	})
}
