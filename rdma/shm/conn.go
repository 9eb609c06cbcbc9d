package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/flow"
	"forebay/rdma/internal/mailbox"
	"forebay/rdma/internal/target"
)

const (
	// mapsAtOnce bounds the unanswered map requests of one side.
	mapsAtOnce = 16
	// queuedPackets bounds what a peer can make this side queue for it.
	queuedPackets = 1 << 16
)

// conn implements rdma.Conn. Two threads: one reads packets and never waits for the peer, one
// writes what is in the outbox. Its states are those of every connection:
//
//	open ──fail(ErrClosed | ErrPeerGone …)──▶ dying ──threads and copies ended──▶ done
type conn struct {
	fabric *Fabric
	socket *net.UnixConn
	peer   string
	theirs packet

	inbox    *mailbox.Box
	credits  *flow.Credits // messages that the peer has room for
	requests *flow.Credits // map requests that may be asked
	wake     chan struct{}

	dying chan struct{}
	done  chan struct{}
	work  sync.WaitGroup // threads, and calls of Post

	mu struct {
		sync.Mutex
		err     error
		outbox  []outgoing
		earned  int // messages received here that the peer does not know of
		unread  int // messages sent that the peer has not said to have received
		last    uint32
		asked   map[uint32]*request
		maps    map[rdma.RemoteKey]*mapping
		granted map[uint64]*region // what the peer has mapped of ours
	}
}

// outgoing is a packet to write. A region's descriptor goes along where region is set.
type outgoing struct {
	packet  packet
	payload []byte
	region  *region
}

// request is a map request waiting for its answer.
type request struct {
	key    rdma.RemoteKey
	answer chan error // capacity 1
}

func newConn(f *Fabric, s *net.UnixConn, theirs packet, peer string) (*conn, error) {
	c := &conn{
		fabric: f, socket: s, peer: peer, theirs: theirs, inbox: mailbox.New(f.opts.Messages),
		credits: flow.NewCredits(int(theirs.b)), requests: flow.NewCredits(mapsAtOnce),
		wake: make(chan struct{}, 1), dying: make(chan struct{}), done: make(chan struct{}),
	}
	c.mu.asked = make(map[uint32]*request)
	c.mu.maps = make(map[rdma.RemoteKey]*mapping)
	c.mu.granted = make(map[uint64]*region)
	if err := f.conns.Add(c); err != nil {
		_ = s.Close()
		return nil, err
	}
	c.work.Go(c.read)
	c.work.Go(c.write)
	go c.bury()
	return c, nil
}

// fail is the only way from open to dying. The first reason stays. It interrupts the threads but
// leaves the socket open: its end tells the peer that this side has no mapping any more.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	first := c.mu.err == nil
	if first {
		c.mu.err = reason
		close(c.dying)
	}
	c.mu.Unlock()
	if first {
		_ = c.socket.SetDeadline(time.Unix(1, 0)) // fails only on a closed socket
	}
}

func (c *conn) gone(err error) error {
	if errors.Is(err, rdma.ErrProtocol) {
		c.fabric.opts.Log.Warn("peer broke the protocol, disconnected", "peer", c.peer)
	}
	return fmt.Errorf("shm %s: %w: %w", c.peer, rdma.ErrPeerGone, err)
}

// bury waits until nobody uses the connection, then lets go of the mappings in both directions:
// ours are unmapped, and a peer whose connection ended unmaps its own.
func (c *conn) bury() {
	<-c.dying
	c.work.Wait()
	c.mu.Lock()
	err, maps, granted := c.mu.err, c.mu.maps, c.mu.granted
	c.mu.maps, c.mu.granted = nil, nil
	c.mu.Unlock()
	for _, m := range maps {
		m.detach()
	}
	_ = c.socket.Close()
	for _, r := range granted {
		r.letGo(c)
	}
	c.inbox.Fail(err, errors.Is(err, rdma.ErrClosed))
	c.fabric.conns.Remove(c)
	close(c.done)
}

func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

func (c *conn) orDying(err error) error {
	if reason := c.reason(); reason != nil {
		return reason
	}
	return err
}

// enter counts a call that uses mappings; it must be followed by work.Done.
func (c *conn) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	c.work.Add(1)
	return nil
}

// Post implements rdma.Conn. What it takes has completed when it returns.
func (c *conn) Post(ctx context.Context, q *rdma.Queue, ops []rdma.Op) (int, error) {
	if len(ops) == 0 {
		return 0, nil
	}
	if err := c.enter(); err != nil {
		return 0, err
	}
	defer c.work.Done()
	room, err := q.Reserve(ctx, c.dying, len(ops))
	if err != nil {
		return 0, c.orDying(err)
	}
	for i := range room {
		if err := c.do(ctx, q, &ops[i]); err != nil {
			q.Unreserve(room - i)
			return i, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return room, nil
}

// do completes an operation, or returns why it could not be posted.
func (c *conn) do(ctx context.Context, q *rdma.Queue, op *rdma.Op) error {
	if err := rdma.CheckOp(op, c.fabric.Limits().MaxOp); err != nil {
		return err
	}
	m, refused, err := c.mapping(ctx, op.Remote.Key)
	if err != nil {
		return err
	}
	if refused == nil {
		refused = m.transfer(op, c.dying, c.reason)
	}
	q.Complete(rdma.Completion{ID: op.ID, Err: refused})
	return nil
}

// mapping finds the region in this process or asks the peer for it. refused is the peer's answer.
func (c *conn) mapping(ctx context.Context, key rdma.RemoteKey) (m *mapping, refused, err error) {
	for range 2 { // a second time if the answer was revoked before we saw it
		c.mu.Lock()
		m, err = c.mu.maps[key], c.mu.err
		c.mu.Unlock()
		if m != nil || err != nil {
			return m, nil, err
		}
		if refused, err = c.ask(ctx, key); refused != nil || err != nil {
			return nil, refused, err
		}
	}
	return nil, rdma.ErrRevoked, nil
}

// ask requests a region; when it returns nil twice, the mapping was there.
func (c *conn) ask(ctx context.Context, key rdma.RemoteKey) (refused, err error) {
	if _, err := c.requests.Take(ctx, c.dying, nil, 1); err != nil {
		return nil, c.orDying(err)
	}
	req := &request{key: key, answer: make(chan error, 1)}
	payload, _ := key.AppendBinary(nil) // cannot fail
	c.mu.Lock()
	c.mu.last++
	id := c.mu.last
	c.mu.asked[id] = req
	c.mu.Unlock()
	if err := c.queue(outgoing{packet: packet{kind: kindMap, request: id}, payload: payload}); err != nil {
		return nil, err
	}
	timer := time.NewTimer(c.fabric.opts.PeerTimeout)
	defer timer.Stop()
	select {
	case refused = <-req.answer:
		return refused, nil
	case <-ctx.Done():
		return nil, ctx.Err() // the answer will still be taken in, for the next operation
	case <-timer.C:
		c.fail(fmt.Errorf("shm %s: no answer in time: %w", c.peer, rdma.ErrPeerGone))
	case <-c.dying:
	}
	return nil, c.reason()
}

// queue appends to the outbox. It never waits; what a peer can cause is bounded.
func (c *conn) queue(out outgoing) error {
	c.mu.Lock()
	err := c.mu.err
	if err == nil && len(c.mu.outbox) >= queuedPackets {
		err = rdma.ErrProtocol
	}
	if err == nil {
		c.mu.outbox = append(c.mu.outbox, out)
	}
	c.mu.Unlock()
	if err == nil {
		flow.Wake(c.wake)
	}
	return err
}

// revoke tells the peer to let go of a region.
func (c *conn) revoke(id uint64) {
	if err := c.queue(outgoing{packet: packet{kind: kindRevoke, a: id}}); err != nil {
		c.fail(c.gone(err))
	}
}

// Send implements rdma.Conn.
func (c *conn) Send(ctx context.Context, msg []byte) error {
	if len(msg) > min(c.fabric.opts.MaxMessage, int(c.theirs.a)) {
		return fmt.Errorf("message of %d bytes: %w", len(msg), rdma.ErrTooLarge)
	}
	if _, err := c.credits.Take(ctx, c.dying, nil, 1); err != nil {
		return c.orDying(err)
	}
	c.mu.Lock()
	c.mu.unread++
	c.mu.Unlock()
	return c.queue(outgoing{packet: packet{kind: kindMessage}, payload: append([]byte(nil), msg...)})
}

// Recv implements rdma.Conn.
func (c *conn) Recv(ctx context.Context, dst []byte) (int, error) {
	n, err := c.inbox.Take(ctx, dst)
	if err != nil {
		return n, err
	}
	c.mu.Lock()
	c.mu.earned++
	due := c.mu.earned > c.fabric.opts.Messages/2
	c.mu.Unlock()
	if due {
		flow.Wake(c.wake)
	}
	return n, nil
}

// Peer implements rdma.Conn.
func (c *conn) Peer() string { return c.peer }

// Close implements rdma.Conn.
func (c *conn) Close() error {
	c.fail(rdma.ErrClosed)
	<-c.done
	return nil
}

// write is the writer's thread.
func (c *conn) write() {
	var batch []outgoing
	buf := make([]byte, 0, headerSize+c.fabric.opts.MaxMessage)
	for {
		select {
		case <-c.wake:
		case <-c.dying:
			return
		}
		c.mu.Lock()
		batch, c.mu.outbox = c.mu.outbox, batch[:0]
		if c.mu.earned > 0 {
			batch = append(batch, outgoing{packet: packet{kind: kindCredit, a: uint64(c.mu.earned)}})
			c.mu.earned = 0
		}
		c.mu.Unlock()
		for i := range batch {
			buf = append(batch[i].packet.append(buf[:0]), batch[i].payload...)
			if err := c.writePacket(buf, batch[i].region); err != nil {
				c.fail(c.gone(err))
				return
			}
		}
		clear(batch)
	}
}

func (c *conn) writePacket(b []byte, r *region) error {
	if r == nil {
		_, err := c.socket.Write(b)
		return err
	}
	_, _, err := c.socket.WriteMsgUnix(b, unix.UnixRights(int(r.file.Fd())), nil)
	return err
}

// read is the reader's thread.
func (c *conn) read() {
	buf := make([]byte, headerSize+c.fabric.opts.MaxMessage+1)
	oob := make([]byte, unix.CmsgSpace(4*4))
	for {
		if err := c.readPacket(buf, oob); err != nil {
			c.fail(c.gone(err))
			return
		}
	}
}

func (c *conn) readPacket(buf, oob []byte) error {
	n, oobn, _, _, err := c.socket.ReadMsgUnix(buf, oob)
	if err != nil {
		return err
	}
	fds, err := descriptors(oob[:oobn])
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("connection closed by peer")
	}
	p, payload, err := decodePacket(buf[:n])
	if err != nil {
		return err
	}
	return c.handle(p, payload, fds)
}

func descriptors(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("ancillary data: %w", rdma.ErrProtocol)
	}
	var all []int
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return all, fmt.Errorf("ancillary data: %w", rdma.ErrProtocol)
		}
		all = append(all, fds...)
	}
	return all, nil
}

func (c *conn) handle(p packet, payload []byte, fds []int) error {
	switch p.kind {
	case kindMessage:
		if len(payload) > c.fabric.opts.MaxMessage {
			return rdma.ErrProtocol
		}
		msg := c.inbox.Buffer(len(payload))
		copy(msg, payload)
		if !c.inbox.Put(msg) {
			return rdma.ErrProtocol
		}
		return nil
	case kindCredit:
		return c.credited(p.a)
	case kindMap:
		return c.answer(p, payload)
	case kindMapped:
		return c.answered(p, fds)
	case kindRevoke:
		return c.revoked(p.a)
	case kindRevoked:
		return c.confirmed(p.a)
	}
	return rdma.ErrProtocol
}

// credited takes credits back, but none that were not spent: they bound the outbox.
func (c *conn) credited(number uint64) error {
	c.mu.Lock()
	ok := number <= uint64(c.mu.unread)
	if ok {
		c.mu.unread -= int(number)
	}
	c.mu.Unlock()
	if !ok {
		return rdma.ErrProtocol
	}
	c.credits.Give(int(number))
	return nil
}

// answer is the target's side of a map request.
func (c *conn) answer(p packet, payload []byte) error {
	key, err := rdma.DecodeRemoteKey(payload)
	if err != nil {
		return rdma.ErrProtocol
	}
	r, err := c.fabric.find(key)
	if err == nil {
		err = r.grant(c, func() error { return c.hand(r, p.request) })
	}
	if err == nil || c.reason() != nil {
		return nil
	}
	return c.queue(outgoing{packet: packet{kind: kindMapped, request: p.request, status: target.StatusOf(err)}})
}

func (c *conn) hand(r *region, request uint32) error {
	c.mu.Lock()
	if c.mu.granted != nil {
		c.mu.granted[r.Key().ID()] = r
	}
	c.mu.Unlock()
	return c.queue(outgoing{region: r, packet: packet{
		kind: kindMapped, request: request, access: r.Access(),
		a: uint64(r.offset), b: uint64(len(r.Bytes())),
	}})
}

// answered is the initiator's side. Mapping happens here, so that it is done before a revocation
// that follows is read.
func (c *conn) answered(p packet, fds []int) error {
	c.mu.Lock()
	req := c.mu.asked[p.request]
	delete(c.mu.asked, p.request)
	c.mu.Unlock()
	if req == nil {
		return rdma.ErrProtocol
	}
	c.requests.Give(1)
	if p.status != target.OK {
		req.answer <- p.status.Err()
		return nil
	}
	if len(fds) != 1 {
		return rdma.ErrProtocol
	}
	err := c.take(req.key, p, fds[0])
	req.answer <- err
	return nil
}

func (c *conn) take(key rdma.RemoteKey, p packet, fd int) error {
	c.mu.Lock()
	have := c.mu.maps[key] != nil
	c.mu.Unlock()
	if have { // two operations asked at once; only this thread adds
		return nil
	}
	m, err := c.fabric.atlas.attach(key, p, fd)
	if err != nil {
		return fmt.Errorf("shm %v: %w", key, err)
	}
	c.mu.Lock()
	c.mu.maps[key] = m
	c.mu.Unlock()
	return nil
}

// revoked unmaps, when the copies under way have stopped, and then confirms.
func (c *conn) revoked(id uint64) error {
	c.mu.Lock()
	var m *mapping
	for key, held := range c.mu.maps {
		if key.ID() == id {
			m = held
			delete(c.mu.maps, key)
			break
		}
	}
	c.mu.Unlock()
	confirm := func() { _ = c.queue(outgoing{packet: packet{kind: kindRevoked, a: id}}) } // fails only when dying
	if m == nil {
		confirm()
		return nil
	}
	m.end(confirm)
	return nil
}

func (c *conn) confirmed(id uint64) error {
	c.mu.Lock()
	r := c.mu.granted[id]
	delete(c.mu.granted, id)
	c.mu.Unlock()
	if r == nil {
		return rdma.ErrProtocol
	}
	r.letGo(c)
	return nil
}
