package tcp

import (
	"bufio"
	"io"
	"net"
	"sync/atomic"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

const (
	// readAhead is how much is read together with a header, and so the most that is ever copied
	// of a payload.
	readAhead = 2 << 10
	// batchFrames and batchBytes bound one writev. They are large enough to fill it with small
	// frames, and small enough that replies do not wait long behind chunks.
	batchFrames = 32
	batchBytes  = 256 << 10
)

// stream is one data stream. It has a reader and a writer, and between them the replies owed to the
// peer.
type stream struct {
	conn   *conn
	socket socket
	in     *bufio.Reader
	wake   chan struct{}
	window int // unanswered requests that the peer allows

	reading atomic.Pointer[target.Region] // the region into which the reader is reading

	// Guarded by conn.mu.
	idle    bool
	replies ring[reply]
	owed    int // requests of this side that the peer has not answered on this stream
	sending []outgoing

	// The writer's own.
	out     []outgoing
	headers []byte
	parts   [][]byte
	vec     net.Buffers

	head [requestSize]byte // the reader's own
}

// reply is an answer that the writer has yet to send. data is set for a read that was granted.
type reply struct {
	frame  frame
	region *target.Region
	data   []byte
}

// outgoing is one frame of a batch. Its references are released after the batch was written.
type outgoing struct {
	frame   frame
	payload []byte
	region  *target.Region
}

func newStream(c *conn, s socket) *stream {
	st := &stream{
		conn: c, socket: s, in: bufio.NewReaderSize(s, readAhead), wake: make(chan struct{}, 1),
		window: int(c.theirs.window),
		out:    make([]outgoing, 0, batchFrames), headers: make([]byte, 0, batchFrames*requestSize),
		parts: make([][]byte, 0, 2*batchFrames+1),
	}
	st.replies.init(c.opts.Window)
	return st
}

// read is the reader's thread.
func (s *stream) read() {
	for {
		if err := s.readFrame(); err != nil {
			s.conn.fail(s.conn.gone(err))
			return
		}
	}
}

func (s *stream) readFrame() error {
	if _, err := io.ReadFull(s.in, s.head[:baseSize]); err != nil {
		return err
	}
	f, err := decodeBase(s.head[:baseSize], maxChunk)
	if err != nil {
		return err
	}
	if !f.kind.isRequest() {
		return s.readReply(&f)
	}
	if _, err := io.ReadFull(s.in, s.head[baseSize:]); err != nil {
		return err
	}
	if err := f.decodeRequest(s.head[baseSize:]); err != nil {
		return err
	}
	if f.length > s.conn.theirs.chunk {
		return rdma.ErrProtocol
	}
	if f.kind == kindWrite {
		return s.serveWrite(&f)
	}
	return s.serveRead(&f)
}

// serveWrite is the target's side of a write. Bytes go straight from the socket into the region. A
// refused payload is read and thrown away, so that the stream stays in step.
func (s *stream) serveWrite(f *frame) error {
	region, mem, err := s.grant(f)
	if err == nil {
		err = region.Acquire()
	}
	if err != nil {
		if _, err := s.in.Discard(int(f.length)); err != nil {
			return err
		}
		return s.owe(reply{frame: answer(f, kindAck, target.StatusOf(err))})
	}
	s.reading.Store(region)
	err = s.fill(mem)
	s.reading.Store(nil)
	region.Release()
	if err != nil {
		return err
	}
	return s.owe(reply{frame: answer(f, kindAck, target.OK)})
}

// fill reads a payload into memory that may be a region's.
func (s *stream) fill(mem []byte) error {
	return guarded(func() error {
		_, err := io.ReadFull(s.in, mem)
		return err
	})
}

// serveRead is the target's side of a read. The writer acquires the region when it gets there, so
// that a reply which waits does not hold up a revocation.
func (s *stream) serveRead(f *frame) error {
	region, mem, err := s.grant(f)
	if err != nil {
		return s.owe(reply{frame: answer(f, kindAck, target.StatusOf(err))})
	}
	return s.owe(reply{frame: answer(f, kindData, target.OK), region: region, data: mem})
}

func (s *stream) grant(f *frame) (*target.Region, []byte, error) {
	region, err := s.conn.fabric.regions.Find(f.key)
	if err != nil {
		return nil, nil, err
	}
	mem, err := region.Slice(f.kind.opKind(), f.offset, int(f.total))
	if err != nil {
		return nil, nil, err
	}
	return region, mem[f.at : f.at+f.length], nil
}

func answer(f *frame, k kind, status target.Status) frame {
	return frame{kind: k, status: status, length: f.length, tag: f.tag, at: f.at, total: f.total}
}

// owe queues a reply. A peer with more unanswered requests than its window is cut off.
func (s *stream) owe(r reply) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.replies.full() {
		return rdma.ErrProtocol
	}
	s.replies.push(r)
	s.rouse()
	return nil
}

func (s *stream) rouse() {
	if s.idle {
		s.idle = false
		provider.Wake(s.wake)
	}
}

// readReply is the initiator's side. The payload of a read goes straight to the caller's memory.
func (s *stream) readReply(f *frame) error {
	local, err := s.claim(f)
	if err != nil {
		return err
	}
	if f.kind == kindData {
		if err := s.fill(local); err != nil {
			return err
		}
	}
	c := s.conn
	c.mu.Lock()
	completed := c.mu.table.finish(f.tag, f.status.Err())
	s.rouse() // the window has opened
	c.mu.Unlock()
	if completed {
		c.slots.Give(1)
	}
	return nil
}

func (s *stream) claim(f *frame) ([]byte, error) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.owed == 0 {
		return nil, rdma.ErrProtocol
	}
	s.owed--
	return s.conn.mu.table.claim(f)
}

// write is the writer's thread.
func (s *stream) write() {
	for {
		if !s.gather() {
			select {
			case <-s.wake:
				continue
			case <-s.conn.dying:
				return
			}
		}
		err := guarded(s.flush)
		s.settle()
		if err != nil {
			s.conn.fail(s.conn.gone(err))
			return
		}
	}
}

// gather fills the batch. Replies come first, since the peer's window waits for them, then chunks.
func (s *stream) gather() bool {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 0
	for s.replies.count > 0 && len(s.out) < batchFrames && size < batchBytes {
		out := outgoingReply(s.replies.pop())
		size += len(out.payload)
		s.out = append(s.out, out)
	}
	// One chunk goes along with any number of replies, or a peer that reads much could starve us.
	for first := true; s.owed < s.window && len(s.out) < batchFrames && (first || size < batchBytes); first = false {
		p, ok := c.mu.table.next()
		if !ok {
			break
		}
		s.owed++
		size += len(p.payload)
		s.out = append(s.out, outgoing{frame: p.frame, payload: p.payload})
	}
	if c.mu.table.turn.count > 0 {
		c.wakeIdle(1) // it will wake the next
	}
	s.idle = len(s.out) == 0
	s.sending = s.out
	return !s.idle
}

func outgoingReply(r reply) outgoing {
	if r.region == nil { // an ack
		return outgoing{frame: r.frame}
	}
	if err := r.region.Acquire(); err != nil {
		return outgoing{frame: answer(&r.frame, kindAck, target.StatusOf(err))}
	}
	return outgoing{frame: r.frame, payload: r.data, region: r.region}
}

// flush writes the batch with one writev. Headers that follow each other are one part, and payloads
// are sent from their places.
func (s *stream) flush() error {
	s.headers, s.parts = s.headers[:0], s.parts[:0]
	from := 0
	for i := range s.out {
		s.headers = s.out[i].frame.append(s.headers)
		if len(s.out[i].payload) > 0 {
			s.parts = append(s.parts, s.headers[from:], s.out[i].payload)
			from = len(s.headers)
		}
	}
	if from < len(s.headers) {
		s.parts = append(s.parts, s.headers[from:])
	}
	if len(s.parts) == 1 {
		_, err := s.socket.Write(s.parts[0])
		return err
	}
	s.vec = s.parts
	_, err := s.vec.WriteTo(s.socket.Conn)
	return err
}

// settle releases the references of the batch.
func (s *stream) settle() {
	c := s.conn
	completed := 0
	c.mu.Lock()
	for i := range s.out {
		out := &s.out[i]
		if out.region != nil {
			out.region.Release()
		}
		if out.frame.kind.isRequest() && c.mu.table.written(out.frame.tag) {
			completed++
		}
		*out = outgoing{}
	}
	s.out, s.sending = s.out[:0], nil
	c.mu.Unlock()
	c.slots.Give(completed)
}

// sends reports whether the batch being written holds the region. conn.mu is held.
func (s *stream) sends(r *target.Region) bool {
	for i := range s.sending {
		if s.sending[i].region == r {
			return true
		}
	}
	return false
}
