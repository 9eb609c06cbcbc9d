package meta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

const (
	eventSubject   = "forebay.events."
	eventsWaiting  = 8192 // to be sent
	eventsUnread   = 4096 // by one subscriber
	maxEventLength = 64 << 10
	flushTimeout   = 2 * time.Second
)

// publisher sends events without holding up who publishes them.
type publisher struct {
	c        *conn
	counters *counters
	queue    chan bb.Event
	done     chan struct{}
	mu       struct {
		sync.RWMutex
		closed bool
	}
}

func newPublisher(c *conn, n *counters) *publisher {
	p := &publisher{c: c, counters: n, queue: make(chan bb.Event, eventsWaiting), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *publisher) run() {
	defer close(p.done)
	for e := range p.queue {
		data, err := json.Marshal(e)
		if err == nil {
			err = p.c.nc.Publish(eventSubject+e.Buffer+"."+string(e.Kind), data)
		}
		if err != nil {
			p.counters.dropped.Add(1)
		}
	}
}

func (p *publisher) close() {
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.closed = true
	if !closed {
		close(p.queue)
	}
	p.mu.Unlock()
	<-p.done
	if p.c.nc.IsConnected() {
		_ = p.c.nc.FlushTimeout(flushTimeout) // best effort: events are not stored
	}
}

// Publish sends an event to subject forebay.events.BUFFER.KIND as JSON. It never
// waits: an event that cannot be sent is dropped and counted in Stats.
func (m *Meta) Publish(e bb.Event) {
	p := m.events
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.mu.closed || bb.CheckBufferName(e.Buffer) != nil || e.Kind == "" {
		m.counters.dropped.Add(1)
		return
	}
	select {
	case p.queue <- e:
	default:
		m.counters.dropped.Add(1)
	}
}

// MissedError is what Next returns once when events came faster than they were
// read, or while the server was away. Events that follow are complete again.
type MissedError struct {
	Events int // how many at least; 0 if nobody knows
}

// Error says how many events were missed.
func (e *MissedError) Error() string {
	if e.Events == 0 {
		return "events may have been missed while the server was away"
	}
	return fmt.Sprintf("missed %s: they came faster than they were read", bb.Count(e.Events, "event"))
}

// Subscription receives the events of a buffer, or of all.
type Subscription struct {
	c          *conn
	counters   *counters
	sub        *nats.Subscription
	msgs       chan *nats.Msg
	reading    sync.Mutex
	dropped    int
	reconnects uint64
	closed     chan struct{}
	once       sync.Once
}

// Subscribe returns a subscription to the events of a buffer, or of all for "".
// Events published after it returns are received.
func (m *Meta) Subscribe(ctx context.Context, buffer string) (*Subscription, error) {
	subject := eventSubject + ">"
	if buffer != "" {
		if err := bb.CheckBufferName(buffer); err != nil {
			return nil, err
		}
		subject = eventSubject + buffer + ".*"
	}
	s := &Subscription{c: m.conn, counters: &m.counters, msgs: make(chan *nats.Msg, eventsUnread), closed: make(chan struct{})}
	for {
		if err := m.conn.wait(ctx); err != nil {
			return nil, err
		}
		s.reconnects = m.conn.currentStatus().Reconnects
		sub, err := m.conn.nc.ChanSubscribe(subject, s.msgs)
		if err != nil {
			return nil, bb.Wrap("subscribe", subject, err)
		}
		// nats.go flushes only with a deadline; without an answer by then it is asked again.
		flushing, cancel := context.WithTimeout(ctx, attemptTimeout)
		err = m.conn.nc.FlushWithContext(flushing)
		cancel()
		if err == nil {
			s.sub = sub
			return s, nil
		}
		_ = sub.Unsubscribe()
		if ctx.Err() != nil {
			return nil, m.conn.unavailable(ctx, "subscribe", err)
		}
	}
}

// Next waits for the next event. A *MissedError says that some are missing before
// the next one; the subscription goes on. Cancelled after Close, or when ctx ends.
func (s *Subscription) Next(ctx context.Context) (bb.Event, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if missed := s.missed(); missed != nil {
		return bb.Event{}, missed
	}
	for {
		select {
		case msg := <-s.msgs:
			var e bb.Event
			if len(msg.Data) > maxEventLength || json.Unmarshal(msg.Data, &e) != nil {
				s.counters.garbage.Add(1)
				continue
			}
			return e, nil
		case <-s.closed:
			return bb.Event{}, bb.E(bb.Cancelled, "events", "", "the subscription was closed")
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return bb.Event{}, bb.Wrap("events", "", ctx.Err())
			}
			return bb.Event{}, &bb.Error{Kind: bb.Cancelled, Op: "events", Err: ctx.Err()}
		}
	}
}

// missed returns what was missed since it was last called.
func (s *Subscription) missed() error {
	if n, err := s.sub.Dropped(); err == nil && n > s.dropped {
		missed := n - s.dropped
		s.dropped = n
		return &MissedError{Events: missed}
	}
	if n := s.c.currentStatus().Reconnects; n > s.reconnects {
		s.reconnects = n
		return &MissedError{}
	}
	return nil
}

// Close ends the subscription and unblocks Next. It may be called again.
func (s *Subscription) Close() {
	s.once.Do(func() {
		_ = s.sub.Unsubscribe()
		close(s.closed)
	})
}
