package origin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
	"forebay/rdma"
)

// places are the store and the nodes that a test's file lies at.
type places struct {
	mu      sync.Mutex
	entry   bb.Entry            // as the namespace has it
	objects map[string][]byte   // by name. A nil one is being renamed
	former  map[string][]string // names from before renames, by path
	away    bb.NodeID           // the daemon that has to rename
	opened  []string            // names of objects, in order
	nodes   map[bb.NodeID]*node
	regions map[rdma.RemoteKey]*node // whose memory a key reaches
}

// node is another node.
type node struct {
	name     bb.NodeID
	content  []byte
	n        bb.Generation
	oneSided bool // it names regions. Otherwise the bytes come with the answers
	down     error
	broken   int // sessions up to this number

	fabricErr, transferErr error // of its one-sided connections

	dials, opens, closed, asked, pins, lost int
}

func (p *places) sources(t *testing.T) *Sources {
	return New(t.Context(), Options{Buffer: "b", Objects: p, Nodes: p, Entries: p, Go: func(f func()) { f() }})
}

func (p *places) Lookup(context.Context, bb.DirID, string) (bb.Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.entry, nil
}

func (p *places) Path(_ context.Context, e *bb.Entry) (string, error) { return e.Name, nil }

func (p *places) FormerNames(_ context.Context, path string) ([]string, bb.NodeID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := p.former[path]
	if p.away == "" {
		delete(p.former, path) // the next look finds it renamed
		for _, name := range names {
			p.objects[path] = p.objects[name]
		}
	}
	return names, p.away, nil
}

func (p *places) Open(_ context.Context, path, _ string, offset int64) (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened = append(p.opened, path)
	if p.objects[path] == nil {
		return nil, bb.NotFound
	}
	return io.NopCloser(bytes.NewReader(p.objects[path][min(offset, int64(len(p.objects[path]))):])), nil
}

func (p *places) Holders(e *bb.Entry) (owner, second bb.NodeID) {
	h := append(slices.Clone(e.Holders), "", "")
	return h[0], h[1]
}

func (p *places) Self() bb.NodeID { return "" }

func (p *places) Session(_ context.Context, name bb.NodeID) (Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[name]
	if n == nil || n.down == bb.Unavailable {
		return nil, bb.Unavailable
	}
	n.dials++
	return &session{p, n, n.dials}, nil
}

func (p *places) Transfer(_ context.Context, _ rdma.Conn, ops []rdma.Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range ops {
		n := p.regions[op.Remote.Key]
		if n.transferErr != nil {
			return n.transferErr
		}
		copy(op.Local, n.content[op.Remote.Offset:])
	}
	return nil
}

// session is one with a node.
type session struct {
	p  *places
	n  *node
	id int
}

func (s *session) Node() bb.NodeID { return s.n.name }

func (s *session) Broken() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.id <= s.n.broken
}

func (s *session) NewHandle() uint64                         { return uint64(s.id) }
func (s *session) Fabric(context.Context) (rdma.Conn, error) { return nil, s.n.fabricErr }

func (s *session) LoseFabric(rdma.Conn) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.n.lost++
}

func (s *session) CloseHandle(uint64) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.n.closed++
}

// perAnswer is how many bytes come with one answer.
const perAnswer = 100_000

func (s *session) Ask(ctx context.Context, typ wire.Type, m proto.Message, _ []byte, reply proto.Message) ([]byte, error) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	n := s.n
	if n.down != nil {
		return nil, n.down
	}
	switch m := m.(type) {
	case *wire.Open:
		n.opens++
		proto.Merge(reply, &wire.Opened{Generation: uint64(n.n), Entry: &wire.Entry{Size: int64(len(n.content))}})
	case *wire.Unpin:
		n.pins -= len(m.Pins)
	case *wire.ExtentsRequest:
		n.asked++
		answer := reply.(*wire.Extents)
		answer.Size = int64(len(n.content))
		to := min(m.Offset+m.Length, answer.Size)
		switch {
		case m.Layout:
			for at := m.Offset; at < to && len(answer.Extents) < 3; at += perAnswer {
				p := n.content[at:min(at+perAnswer, to)]
				answer.Extents = append(answer.Extents, &wire.Extent{FileOffset: at, Length: int64(len(p)), Region: 1, Checksum: checksum.Sum(p)})
			}
		case m.Inline || !n.oneSided:
			return slices.Clone(n.content[m.Offset:min(to, m.Offset+perAnswer)]), nil
		default:
			key := rdma.NewRemoteKey(1)
			s.p.regions[key] = n
			encoded, err := key.AppendBinary(nil)
			if err != nil {
				return nil, err
			}
			answer.Regions = []*wire.Region{{Id: 7, Key: encoded}}
			answer.Extents = []*wire.Extent{{FileOffset: m.Offset, Length: to - m.Offset, Region: 7, Offset: m.Offset}}
			answer.Pin = 1
			n.pins++
		}
	default:
		return nil, fmt.Errorf("%v is not asked", typ)
	}
	return nil, nil
}

// file is a file that lies in all places.
func file(size int) (*places, bb.Entry) {
	content := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(content)
	e := bb.Entry{Name: "f", Type: bb.TypeFile, File: 1, Generation: 5, Size: int64(size), Checksum: checksum.Sum(content), Holders: []bb.NodeID{"n1", "n2"}}
	e.Flushed.Generation = 5
	p := &places{
		entry: e, objects: map[string][]byte{"f": content}, former: map[string][]string{},
		nodes: map[bb.NodeID]*node{}, regions: map[rdma.RemoteKey]*node{},
	}
	for _, name := range e.Holders {
		p.nodes[name] = &node{name: name, content: content, n: 5, oneSided: true}
	}
	return p, e
}

func (p *places) owner(t *testing.T, e bb.Entry) *Owner {
	t.Helper()
	w, _, err := p.sources(t).Open(t.Context(), &e, "f")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (p *places) object(t *testing.T, e bb.Entry) *Object {
	return &Object{Of: p.sources(t), Entry: &e}
}

// origins are all kinds, each of its own file.
var origins = map[string]func(t *testing.T, size int) (Origin, *places){
	"object": func(t *testing.T, size int) (Origin, *places) {
		p, e := file(size)
		return p.object(t, e), p
	},
	"owner": func(t *testing.T, size int) (Origin, *places) {
		p, e := file(size)
		return p.owner(t, e), p
	},
	"owner that answers with bytes": func(t *testing.T, size int) (Origin, *places) {
		p, e := file(size)
		p.nodes["n1"].oneSided, p.nodes["n2"].oneSided = false, false
		return p.owner(t, e), p
	},
	"owner, inline": func(t *testing.T, size int) (Origin, *places) {
		p, e := file(size)
		return p.owner(t, e).Inline(), p
	},
	"fallback": func(t *testing.T, size int) (Origin, *places) {
		p, e := file(size)
		return &Fallback{p.owner(t, e), &e, p.object(t, e)}, p
	},
	"fallback from an owner that is gone": func(t *testing.T, size int) (Origin, *places) {
		p, e := file(size)
		w := p.owner(t, e)
		p.nodes["n1"].down, p.nodes["n2"].down = bb.Unavailable, bb.Unavailable
		return &Fallback{w, &e, p.object(t, e)}, p
	},
}

// forAll runs a test for each kind of origin.
func forAll(t *testing.T, size int, test func(t *testing.T, o Origin, content []byte)) {
	for name, make := range origins {
		t.Run(name, func(t *testing.T) {
			o, p := make(t, size)
			test(t, o, p.objects["f"])
			o.Close()
			for _, n := range p.nodes {
				if n.pins != 0 || n.closed != n.opens && n.down == nil {
					t.Errorf("%s: %d pins are left, and %d of %d handles closed", n.name, n.pins, n.closed, n.opens)
				}
			}
		})
	}
}

// collected is a Place that keeps its bytes, in pieces of some size.
type collected struct {
	sync.Mutex
	piece int
	runs  map[Run][]byte
}

func (c *collected) place(_ context.Context, r Run, from io.Reader) error {
	var all []byte
	for p := make([]byte, c.piece); ; {
		n, err := io.ReadFull(from, p)
		all = append(all, p[:n]...)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
	}
	c.Lock()
	defer c.Unlock()
	if _, ok := c.runs[r]; ok {
		return fmt.Errorf("run %v came twice", r)
	}
	c.runs[r] = all
	return nil
}

func wantRuns(t *testing.T, o Origin, content []byte, piece int, runs ...Run) {
	t.Helper()
	c := &collected{piece: piece, runs: map[Run][]byte{}}
	if err := o.Read(t.Context(), runs, c.place); err != nil {
		t.Error(err)
		return
	}
	for _, r := range runs {
		if got, ok := c.runs[r]; !ok || !bytes.Equal(got, content[r.From:r.To]) {
			t.Errorf("%v: %d bytes, or others", r, len(got))
		}
	}
}

// TestRead reads runs with and without gaps, in one piece and in many, forwards, again, and after a Close.
func TestRead(t *testing.T) {
	const size = 3*window + 12_345
	forAll(t, size, func(t *testing.T, o Origin, content []byte) {
		wantRuns(t, o, content, size, Run{0, size})
		wantRuns(t, o, content, 1<<20, Run{0, size})
		wantRuns(t, o, content, 1000, Run{7, 9}, Run{9, 70_000}, Run{window, window + 1}, Run{2*window - 5, 2*window + 5}, Run{size - 1, size})
		o.Close()
		wantRuns(t, o, content, 4096, Run{size / 2, size/2 + 200_000})
		wantRuns(t, o, content, 4096, Run{0, 1})
		var many []Run
		for at := int64(0); at < size; at += 1 << 20 {
			many = append(many, Run{at, min(at+1<<20, size)})
		}
		wantRuns(t, o, content, 1<<20, many...)
	})
}

// TestReadConcurrently reads the same from several goroutines.
func TestReadConcurrently(t *testing.T) {
	const size = 2 << 20
	forAll(t, size, func(t *testing.T, o Origin, content []byte) {
		var group sync.WaitGroup
		for i := range int64(8) {
			group.Go(func() { wantRuns(t, o, content, 10_000, Run{i * 1000, i*1000 + 300_000}, Run{size - 1 - i, size}) })
		}
		group.Wait()
	})
}

// TestPlaceFails: the error of place ends the read, and is returned. Bytes that are not the file's may be
// read once more, not for ever.
func TestPlaceFails(t *testing.T) {
	for _, failure := range []error{bb.NoSpace, bb.Checksum, errors.New("other")} {
		forAll(t, 1<<20, func(t *testing.T, o Origin, _ []byte) {
			calls := 0
			err := o.Read(t.Context(), []Run{{0, 10}, {10, 20}}, func(_ context.Context, r Run, _ io.Reader) error {
				calls++
				return failure
			})
			most := 1
			if failure == bb.Checksum {
				most = 2
			}
			if !errors.Is(err, failure) || calls > most {
				t.Errorf("%v after %d calls", err, calls)
			}
		})
	}
}

// TestCancelled: a read that is cancelled ends with the reason, and the next one is not.
func TestCancelled(t *testing.T) {
	forAll(t, 1<<20, func(t *testing.T, o Origin, content []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		err := o.Read(ctx, []Run{{0, 1000}, {1000, 2000}}, func(_ context.Context, r Run, from io.Reader) error {
			cancel()
			_, err := io.ReadFull(from, make([]byte, r.Size()))
			return errors.Join(err, ctx.Err())
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		wantRuns(t, o, content, 1000, Run{0, 5000})
	})
}
