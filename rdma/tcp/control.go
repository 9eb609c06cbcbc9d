package tcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"forebay/rdma"
	"forebay/rdma/internal/flow"
)

// control is the control stream: messages with their credits, and the pings by which each side
// knows that the other lives.
type control struct {
	conn    *conn
	socket  socket
	in      *bufio.Reader
	wake    chan struct{}
	credits *flow.Credits // messages that the peer has room for
	slots   int           // of the peer's mailbox

	mu struct {
		sync.Mutex
		outbox [][]byte // messages to write; as many as there are credits, at most
		spare  [][]byte
		earned int // messages received here that the peer does not know of
		unread int // messages sent that the peer has not said to have received
	}

	// The writer's own.
	batch   [][]byte
	headers []byte
	parts   [][]byte
	vec     net.Buffers
}

func newControl(c *conn, s socket) *control {
	slots := int(c.theirs.mailboxSlots)
	return &control{
		conn: c, socket: s, in: bufio.NewReaderSize(s, readAhead), wake: make(chan struct{}, 1),
		credits: flow.NewCredits(slots), slots: slots,
	}
}

// send copies a message to the outbox.
func (k *control) send(ctx context.Context, msg []byte) error {
	if _, err := k.credits.Take(ctx, k.conn.dying, nil, 1); err != nil {
		return k.conn.orDying(err)
	}
	if err := k.conn.reason(); err != nil {
		return err
	}
	k.mu.Lock()
	k.mu.unread++
	var buf []byte
	if last := len(k.mu.spare) - 1; last >= 0 {
		buf, k.mu.spare = k.mu.spare[last][:0], k.mu.spare[:last]
	}
	k.mu.outbox = append(k.mu.outbox, append(buf, msg...))
	k.mu.Unlock()
	flow.Wake(k.wake)
	return nil
}

// received counts a message that the caller took, and tells the peer now and then.
func (k *control) received() {
	k.mu.Lock()
	k.mu.earned++
	due := k.mu.earned > k.conn.opts.Messages/2
	k.mu.Unlock()
	if due {
		flow.Wake(k.wake)
	}
}

// write is the writer's thread. It ticks three times within the peer's time limit.
func (k *control) write() {
	tick := time.NewTicker(k.conn.opts.PeerTimeout / 3)
	defer tick.Stop()
	for {
		ping := false
		select {
		case <-k.wake:
		case <-tick.C:
			ping = true
		case <-k.conn.dying:
			return
		}
		if err := k.flush(ping); err != nil {
			k.conn.fail(k.conn.gone(err))
			return
		}
	}
}

func (k *control) flush(ping bool) error {
	k.mu.Lock()
	earned := k.mu.earned
	k.mu.earned = 0
	k.batch, k.mu.outbox = k.mu.outbox, k.batch[:0]
	k.mu.Unlock()

	k.encode(earned, ping)
	if len(k.parts) == 0 {
		return nil
	}
	if err := k.socket.SetWriteDeadline(deadlineIn(k.conn.opts.PeerTimeout)); err != nil {
		return err
	}
	k.vec = k.parts
	_, err := k.vec.WriteTo(k.socket.Conn)

	k.mu.Lock()
	k.mu.spare = append(k.mu.spare, k.batch...)
	k.mu.Unlock()
	clear(k.batch)
	return err
}

func (k *control) encode(earned int, ping bool) {
	k.parts = k.parts[:0]
	// The parts point into headers, so it must not move.
	if need := controlSize * (len(k.batch) + 2); cap(k.headers) < need {
		k.headers = make([]byte, 0, need)
	}
	k.headers = k.headers[:0]
	header := func(kind controlKind, number int) {
		from := len(k.headers)
		k.headers = appendControl(k.headers, kind, number)
		k.parts = append(k.parts, k.headers[from:])
	}
	if earned > 0 {
		header(controlCredit, earned)
	}
	if ping {
		header(controlPing, 0)
	}
	for _, msg := range k.batch {
		header(controlMessage, len(msg))
		if len(msg) > 0 {
			k.parts = append(k.parts, msg)
		}
	}
}

// read is the reader's thread.
func (k *control) read() {
	var head [controlSize]byte
	for {
		if err := k.readFrame(head[:]); err != nil {
			k.conn.fail(k.conn.gone(err))
			return
		}
	}
}

func (k *control) readFrame(head []byte) error {
	if err := k.socket.SetReadDeadline(deadlineIn(k.conn.opts.PeerTimeout)); err != nil {
		return err
	}
	if _, err := io.ReadFull(k.in, head); err != nil {
		return err
	}
	kind, number, err := decodeControl(head, k.conn.opts.MaxMessage, k.slots)
	if err != nil {
		return err
	}
	switch kind {
	case controlCredit:
		return k.credited(number)
	case controlMessage:
		msg := k.conn.inbox.Buffer(number)
		if _, err := io.ReadFull(k.in, msg); err != nil {
			return err
		}
		if !k.conn.inbox.Put(msg) {
			return errMailboxFull
		}
	}
	return nil
}

// credited takes credits back, but none that were not spent: they bound the outbox.
func (k *control) credited(number int) error {
	k.mu.Lock()
	spent := k.mu.unread
	if number <= spent {
		k.mu.unread -= number
	}
	k.mu.Unlock()
	if number > spent {
		return rdma.ErrProtocol
	}
	k.credits.Give(number)
	return nil
}

var errMailboxFull = fmt.Errorf("more messages than credits: %w", rdma.ErrProtocol)
