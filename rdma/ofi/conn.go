//go:build ofi && cgo

package ofi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/flow"
	"forebay/rdma/internal/mailbox"
)

var errShutdown = errors.New("the fabric's connection was shut down")

// conn implements rdma.Conn.
//
//	made ──open──▶ open ──fail(ErrClosed | ErrPeerGone …)──▶ dying ──endpoint closed, threads
//	  └────────────fail───────────────────────────────────────▲      ended, operations swept──▶ done
type conn struct {
	fabric   *Fabric
	id       uint32   // in the tags of its operations
	raw      net.Conn // under the lifeline
	peer     string
	by       *Admission // nil: for good
	log      *slog.Logger
	patience time.Duration // with a silent peer: Options.PeerTimeout
	theirs   hello
	token    uint64 // in every message

	contexts contexts // of libfabric's, for what it holds of this connection

	line    *lifeline
	inbox   *mailbox.Box
	slots   *flow.Credits // operations
	credits *flow.Credits // messages that the peer has room for
	buffers *flow.Credits // free buffers for messages to send

	connected chan struct{} // closed when the fabric says so
	joinOnce  sync.Once
	dying     chan struct{}
	done      chan struct{}
	work      sync.WaitGroup // threads of the lifeline

	mu struct {
		sync.Mutex
		err      error
		endpoint *endpoint // nil before it is attached, and after it is closed
		posts    posts
		messages messages
		grants   grants
	}
}

// newConn makes a connection around a socket, which it owns: the connection must be opened or
// failed.
func newConn(f *Fabric, raw net.Conn, by *Admission, own *Dialer) (*conn, error) {
	c := &conn{
		fabric: f, id: f.lastConn.Add(1), raw: raw, peer: raw.RemoteAddr().String(), by: by,
		log: own.Log, patience: own.PeerTimeout,
		inbox: mailbox.New(f.opts.Messages), slots: flow.NewCredits(f.opts.Depth),
		connected: make(chan struct{}), dying: make(chan struct{}), done: make(chan struct{}),
	}
	c.mu.grants.init()
	c.line = newLifeline(c)
	if err := f.conns.Add(c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	go c.bury()
	// From here on whoever ends the admission finds the connection, and waits for it.
	if err := by.Admit(c); err != nil {
		return nil, c.abandon(err)
	}
	return c, nil
}

// abandon ends a connection whose handshake failed.
func (c *conn) abandon(err error) error {
	c.fail(err)
	<-c.done
	return err
}

// attach makes the endpoint, posts its receives, and has the loop know it.
func (c *conn) attach(make func() (*endpoint, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	e, err := make()
	c.mu.endpoint = e // whatever there is of it, the loop closes
	if err != nil {
		return err
	}
	c.mu.posts.init(c.fabric)
	c.mu.messages.first = c.mu.posts.contexts()
	if err := c.mu.messages.open(c.fabric); err != nil {
		return err
	}
	c.contexts = newContexts(c.id, c.mu.posts.contexts()+c.mu.messages.contexts())
	e.contexts = c.contexts
	c.fabric.loop.route(c, e)
	return c.mu.messages.receiveAll(e)
}

// with runs something on the endpoint.
func (c *conn) with(f func(e *endpoint) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	return f(c.mu.endpoint)
}

// meet takes in what the peer said of itself. It comes before the peer may use the endpoint.
func (c *conn) meet(theirs hello, token [tokenSize]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.theirs, c.token = theirs, binary.LittleEndian.Uint64(token[:])
	c.credits = flow.NewCredits(int(theirs.messages))
	c.buffers = flow.NewCredits(c.fabric.opts.Messages)
}

// open starts the connection after its handshake.
func (c *conn) open(socket net.Conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return c.mu.err
	}
	c.mu.posts.opened = true
	c.line.socket = socket
	c.work.Go(c.line.read)
	c.work.Go(c.line.write)
	return nil
}

// joined is told that the fabric has connected the endpoint.
func (c *conn) joined() { c.joinOnce.Do(func() { close(c.connected) }) }

// fail is the only way to dying. The first reason stays.
func (c *conn) fail(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(reason)
}

func (c *conn) failLocked(reason error) {
	if c.mu.err != nil {
		return
	}
	c.mu.err = reason
	close(c.dying)
	_ = c.raw.Close() // without a farewell, which could block
}

// gone translates an error of the lifeline or the fabric.
func (c *conn) gone(err error) error {
	if errors.Is(err, rdma.ErrProtocol) {
		c.log.Warn("peer broke the protocol, disconnected", "peer", c.peer)
	}
	return fmt.Errorf("ofi %s: %w: %w", c.peer, rdma.ErrPeerGone, err)
}

// bury waits until nobody touches the caller's memory any more, then ends what is left.
func (c *conn) bury() {
	<-c.dying
	c.fabric.loop.detach(c)
	c.work.Wait()
	c.mu.Lock()
	err := c.mu.err
	c.mu.posts.sweep(c, err)
	c.mu.messages.close()
	c.mu.Unlock()
	c.contexts.release()
	for _, r := range c.line.held() {
		r.letGo(c)
	}
	c.inbox.Fail(err, errors.Is(err, rdma.ErrClosed))
	c.by.Leave(c)
	c.fabric.conns.Remove(c)
	close(c.done)
}

func (c *conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.err
}

// orDying prefers the reason why the connection ended over the consequence.
func (c *conn) orDying(err error) error {
	if reason := c.reason(); reason != nil {
		return reason
	}
	return err
}

// Peer implements rdma.Conn.
func (c *conn) Peer() string { return c.peer }

// Close implements rdma.Conn.
func (c *conn) Close() error {
	c.fail(rdma.ErrClosed)
	<-c.done
	return nil
}

// Send implements rdma.Conn.
func (c *conn) Send(ctx context.Context, msg []byte) error {
	if len(msg) > min(c.fabric.opts.MaxMessage, int(c.theirs.maxMessage)) {
		return fmt.Errorf("message of %d bytes: %w", len(msg), rdma.ErrTooLarge)
	}
	if _, err := c.credits.Take(ctx, c.dying, nil, 1); err != nil {
		return c.orDying(err)
	}
	if _, err := c.buffers.Take(ctx, c.dying, nil, 1); err != nil {
		c.credits.Give(1)
		return c.orDying(err)
	}
	c.mu.Lock()
	err := c.mu.err
	if err == nil {
		c.mu.messages.enqueue(msg)
		c.advanceLocked()
	}
	c.mu.Unlock()
	c.fabric.loop.wake()
	return err
}

// Recv implements rdma.Conn.
func (c *conn) Recv(ctx context.Context, dst []byte) (int, error) {
	n, err := c.inbox.Take(ctx, dst)
	if err != nil {
		return n, err
	}
	c.mu.Lock()
	due := c.mu.messages.received()
	if due && c.mu.err == nil {
		c.advanceLocked()
	}
	c.mu.Unlock()
	if due {
		c.fabric.loop.wake()
	}
	return n, nil
}

// advance posts what there is to post.
func (c *conn) advance() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advanceLocked()
}

func (c *conn) advanceLocked() {
	if c.mu.endpoint == nil || c.mu.err != nil || !c.mu.posts.opened {
		return
	}
	err := c.mu.messages.post(c)
	if err == nil {
		err = c.mu.posts.post(c)
	}
	switch {
	case err == nil:
	case retry(err):
		c.fabric.loop.stall(c)
	default:
		c.failLocked(c.gone(err))
	}
}

// complete takes one completion, and reports whether something may be posted now.
func (c *conn) complete(context int, d *completion) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failure error
	if d.err != 0 {
		failure = c.fabric.dev.failure(d)
		defer func() { c.failLocked(c.gone(failure)) }() // what it was may say why first
	}
	if context < c.mu.posts.contexts() {
		c.mu.posts.complete(c, context, failure)
		return true
	}
	if err := c.mu.messages.complete(c, context, int(d.len), failure); err != nil {
		c.failLocked(c.gone(err))
	}
	return true
}

// messages is a connection's traffic of messages on its endpoint. The connection's lock guards it.
//
// Contexts, from first on: receives, then buffers to send, then the one for credits.
type messages struct {
	first   int
	mem     []byte // all buffers
	reg     *registration
	size    int // of a buffer
	recvs   int
	sends   int
	free    []int // buffers to send that are free
	outbox  []outgoing
	earned  int  // messages received here that the peer does not know of
	limit   int  // how many may be earned before the peer is told
	unread  int  // messages sent that the peer has not said to have received
	telling bool // a message with credits alone is under way
}

type outgoing struct {
	buffer, length int
}

// extraReceives are for messages with credits alone: a side sends one for every half of the
// mailbox at most.
const extraReceives = 4

func (m *messages) contexts() int { return m.recvs + m.sends + 1 }

// open allocates the buffers.
func (m *messages) open(f *Fabric) error {
	opts := &f.opts
	m.size = messageHeader + opts.MaxMessage
	m.recvs, m.sends = opts.Messages+extraReceives, opts.Messages
	m.limit = opts.Messages / 2
	total := (m.recvs+m.sends+1)*m.size + scratchSize
	mem, err := unix.Mmap(-1, 0, total, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map buffers: %w", err)
	}
	m.mem, m.reg = mem, &registration{}
	if f.dev.local {
		if m.reg, err = f.dev.register(mem, rdma.AccessLocal); err != nil {
			m.mem = nil
			return errors.Join(fmt.Errorf("buffers for messages: %w", err), unix.Munmap(mem))
		}
	}
	for i := range m.sends {
		m.free = append(m.free, i)
	}
	return nil
}

// scratch is where the read behind writes goes.
func (m *messages) scratch() []byte { return m.mem[len(m.mem)-scratchSize:] }

const scratchSize = 64

func (m *messages) buffer(i int) []byte { return m.mem[i*m.size : (i+1)*m.size : (i+1)*m.size] }

func (m *messages) sendBuffer(i int) []byte { return m.buffer(m.recvs + i) }

// close gives the memory back, after the endpoint is closed.
func (m *messages) close() {
	if m.mem == nil {
		return
	}
	_ = m.reg.close() // of memory that nobody else knows
	_ = unix.Munmap(m.mem)
	m.mem = nil
}

func (m *messages) receiveAll(e *endpoint) error {
	for i := range m.recvs {
		if err := e.recv(m.buffer(i), m.reg.desc, m.first+i); err != nil {
			return err
		}
	}
	return nil
}

// enqueue copies a message. The caller holds a credit and a buffer.
func (m *messages) enqueue(msg []byte) {
	i := m.free[len(m.free)-1]
	m.free = m.free[:len(m.free)-1]
	n := copy(m.sendBuffer(i)[messageHeader:], msg)
	m.outbox = append(m.outbox, outgoing{buffer: i, length: messageHeader + n})
	m.unread++
}

// received counts a message that the caller took, and reports whether the peer must be told.
func (m *messages) received() bool {
	m.earned++
	return m.earned > m.limit
}

// post sends what is in the outbox, in order, then credits that are due.
func (m *messages) post(c *conn) error {
	e := c.mu.endpoint
	sent := 0
	var err error
	for _, o := range m.outbox {
		b := m.sendBuffer(o.buffer)[:o.length]
		putHeader(b, c.token, messagePayload, m.earned)
		inject := e.injects(len(b))
		if inject {
			err = e.inject(b)
		} else {
			err = e.send(b, m.reg.desc, m.first+m.recvs+o.buffer)
		}
		if err != nil {
			break
		}
		m.earned = 0
		sent++
		if inject {
			m.release(c, o.buffer)
		}
	}
	m.outbox = m.outbox[:copy(m.outbox, m.outbox[sent:])]
	if err != nil || m.earned <= m.limit || m.telling {
		return err
	}
	b := m.sendBuffer(m.sends)[:messageHeader]
	putHeader(b, c.token, messageCredits, m.earned)
	if err = e.send(b, m.reg.desc, m.first+m.recvs+m.sends); err == nil {
		m.earned, m.telling = 0, true
	}
	return err
}

func (m *messages) release(c *conn, buffer int) {
	m.free = append(m.free, buffer)
	c.buffers.Give(1)
}

// complete takes the completion of a receive or a send.
func (m *messages) complete(c *conn, context, length int, failure error) error {
	i := context - m.first
	switch {
	case i == m.recvs+m.sends:
		m.telling = false
		return nil
	case i >= m.recvs:
		m.release(c, i-m.recvs)
		return nil
	case failure != nil:
		return nil
	}
	b := m.buffer(i)
	payload, carries, credits, ours, err := parseMessage(b[:min(length, len(b))], c.token)
	if err == nil && ours {
		err = m.take(c, payload, carries, credits)
	}
	if err != nil || c.mu.endpoint == nil {
		return err
	}
	return c.mu.endpoint.recv(b, m.reg.desc, context)
}

func (m *messages) take(c *conn, payload []byte, carries bool, credits int) error {
	if credits > m.unread {
		return fmt.Errorf("credits for messages that were not sent: %w", rdma.ErrProtocol)
	}
	m.unread -= credits
	c.credits.Give(credits)
	if !carries {
		return nil
	}
	msg := c.inbox.Buffer(len(payload))
	copy(msg, payload)
	if !c.inbox.Put(msg) {
		return fmt.Errorf("more messages than credits: %w", rdma.ErrProtocol)
	}
	return nil
}
