//go:build ofi && cgo

package ofi

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/internal/target"
)

const (
	// asksAtOnce bounds the unanswered questions for regions of one side.
	asksAtOnce = 16
	// queuedFrames bounds what a peer can make this side queue for it.
	queuedFrames = 1 << 16
)

// lifeline is a connection's socket after the handshake. One thread reads frames and never waits
// for the peer, one writes what is queued, and pings.
type lifeline struct {
	conn   *conn
	socket net.Conn
	wake   chan struct{}
	asks   *provider.Credits

	mu struct {
		sync.Mutex
		outbox  []frame
		last    uint32
		asked   map[uint32]chan frame // capacity 1
		granted map[uint64]*region    // what the peer has opened of ours
	}
}

func newLifeline(c *conn) *lifeline {
	l := &lifeline{conn: c, wake: make(chan struct{}, 1), asks: provider.NewCredits(asksAtOnce)}
	l.mu.asked = make(map[uint32]chan frame)
	l.mu.granted = make(map[uint64]*region)
	return l
}

// tell queues a frame.
func (c *conn) tell(f frame) {
	l := c.line
	l.mu.Lock()
	full := len(l.mu.outbox) >= queuedFrames
	if !full {
		l.mu.outbox = append(l.mu.outbox, f)
	}
	l.mu.Unlock()
	if full {
		// Not from here: the caller may hold the connection's lock.
		go c.fail(c.gone(fmt.Errorf("it reads nothing: %w", rdma.ErrProtocol)))
		return
	}
	provider.Wake(l.wake)
}

// write is the writer's thread. It ticks three times within the peer's time limit.
func (l *lifeline) write() {
	limit := l.conn.patience
	tick := time.NewTicker(limit / 3)
	defer tick.Stop()
	var batch []frame
	var b []byte
	for {
		b = b[:0]
		select {
		case <-l.wake:
		case <-tick.C:
			b = (&frame{kind: kindPing}).append(b)
		case <-l.conn.dying:
			return
		}
		l.mu.Lock()
		batch, l.mu.outbox = l.mu.outbox, batch[:0]
		l.mu.Unlock()
		for i := range batch {
			b = batch[i].append(b)
		}
		if len(b) == 0 {
			continue
		}
		_ = l.socket.SetWriteDeadline(time.Now().Add(limit)) // fails only on a closed socket
		if _, err := l.socket.Write(b); err != nil {
			l.conn.fail(l.conn.gone(err))
			return
		}
	}
}

// read is the reader's thread.
func (l *lifeline) read() {
	b := make([]byte, frameSize)
	for {
		_ = l.socket.SetReadDeadline(time.Now().Add(l.conn.patience)) // as above
		f, err := readFrame(l.socket, b)
		if err == nil {
			err = l.handle(f)
		}
		if err != nil {
			l.conn.fail(l.conn.gone(err))
			return
		}
	}
}

func readFrame(r io.Reader, b []byte) (frame, error) {
	if _, err := io.ReadFull(r, b); err != nil {
		return frame{}, err
	}
	return decodeFrame(b)
}

func (l *lifeline) handle(f frame) error {
	switch f.kind {
	case kindPing:
		return nil
	case kindOpen:
		l.open(f)
		return nil
	case kindOpened:
		return l.opened(f)
	case kindRevoke:
		l.conn.revoked(f.key.ID())
		return nil
	case kindRevoked:
		l.letGo(f.key.ID())
		return nil
	}
	return rdma.ErrProtocol
}

// open answers a peer that asks for a region.
func (l *lifeline) open(ask frame) {
	f := l.conn.fabric
	answer := frame{kind: kindOpened, request: ask.request, key: ask.key}
	t, err := f.regions.Find(ask.key)
	if err == nil {
		err = rdma.ErrRevoked // unless it is there, and stays long enough
		if r := f.region(ask.key.ID()); r != nil {
			answer.access, answer.size = t.Access(), uint64(len(t.Bytes()))
			if r.reg != nil {
				answer.addr, answer.rkey = r.reg.base, r.reg.key
			}
			l.mu.Lock()
			l.mu.granted[ask.key.ID()] = r
			l.mu.Unlock()
			if r.grant(l.conn, answer) {
				return
			}
			l.letGo(ask.key.ID())
		}
	}
	answer.status, answer.access, answer.addr, answer.rkey, answer.size = target.StatusOf(err), 0, 0, 0, 0
	l.conn.tell(answer)
}

// letGo takes a peer's word that it does not use a region any more.
func (l *lifeline) letGo(id uint64) {
	l.mu.Lock()
	r := l.mu.granted[id]
	delete(l.mu.granted, id)
	l.mu.Unlock()
	if r != nil {
		r.letGo(l.conn)
	}
}

// held is what the peer has opened and not let go of.
func (l *lifeline) held() []*region {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*region, 0, len(l.mu.granted))
	for _, r := range l.mu.granted {
		all = append(all, r)
	}
	return all
}

// ask requests a region. refused is the peer's answer; when both are nil, there is a grant, or
// there was.
func (c *conn) ask(ctx context.Context, key rdma.RemoteKey) (refused, err error) {
	l := c.line
	if _, err := l.asks.Take(ctx, c.dying, 1); err != nil {
		return nil, c.orDying(err)
	}
	answer := make(chan frame, 1)
	l.mu.Lock()
	l.mu.last++
	id := l.mu.last
	l.mu.asked[id] = answer
	l.mu.Unlock()
	c.tell(frame{kind: kindOpen, request: id, key: key})
	select {
	case f := <-answer:
		return f.status.Err(), nil
	case <-ctx.Done():
		return nil, ctx.Err() // the answer will still be taken in, for the next operation
	case <-c.dying:
		return nil, c.reason()
	}
}

// opened takes the answer in.
func (l *lifeline) opened(f frame) error {
	l.mu.Lock()
	answer := l.mu.asked[f.request]
	delete(l.mu.asked, f.request)
	l.mu.Unlock()
	if answer == nil || f.status == target.OK && f.size > 1<<62 {
		return fmt.Errorf("an answer that nobody asked for, or out of range: %w", rdma.ErrProtocol)
	}
	if f.status == target.OK {
		c := l.conn
		c.mu.Lock()
		c.mu.grants.add(f)
		c.mu.Unlock()
	}
	l.asks.Give(1)
	answer <- f // has room
	return nil
}

// grant is the right to use a region of the peer's, in the fabric's own terms.
type grant struct {
	key        rdma.RemoteKey
	access     rdma.Access
	size       int
	addr, rkey uint64
	users      int // operations
	revoked    bool
}

// grants of a connection, guarded by its lock.
type grants struct {
	byKey map[rdma.RemoteKey]*grant
	byID  map[uint64]*grant
	last  *grant // found last: mostly it is the next as well
}

func (g *grants) init() {
	g.byKey = make(map[rdma.RemoteKey]*grant)
	g.byID = make(map[uint64]*grant)
}

func (g *grants) find(key rdma.RemoteKey) *grant {
	if g.last == nil || g.last.key != key {
		g.last = g.byKey[key]
	}
	return g.last
}

func (g *grants) add(f frame) {
	if g.byID[f.key.ID()] == nil {
		got := &grant{key: f.key, access: f.access, size: int(f.size), addr: f.addr, rkey: f.rkey}
		g.byKey[f.key], g.byID[f.key.ID()] = got, got
	}
}

// revoked ends the use of a region: nothing of it is begun any more, and the peer is told when
// what is under way has ended.
func (c *conn) revoked(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.mu.grants.byID[id]
	if got == nil {
		c.tell(frame{kind: kindRevoked, key: keyOf(id)})
		return
	}
	got.revoked = true
	delete(c.mu.grants.byID, id)
	delete(c.mu.grants.byKey, got.key)
	c.mu.grants.last = nil
	got.users++ // so that it is settled once, here or later
	c.mu.posts.abort(c, got)
	got.users--
	c.mu.grants.settle(c, got)
}

// settle tells the peer that its region is not used any more, if it waits for that.
func (g *grants) settle(c *conn, got *grant) {
	if got.revoked && got.users == 0 {
		c.tell(frame{kind: kindRevoked, key: keyOf(got.key.ID())})
	}
}

// keyOf is a key with an id alone, in frames where nothing else counts.
func keyOf(id uint64) rdma.RemoteKey {
	b := make([]byte, rdma.RemoteKeySize)
	for i := range 8 {
		b[i] = byte(id >> (56 - 8*i))
	}
	k, _ := rdma.DecodeRemoteKey(b) // has the right length
	return k
}
