// Package events sends events to all present subscribers, and receives them. It must never depend on
// what an event is about, and never hold up its publisher.
package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
)

const (
	subjects       = "forebay.events."
	eventsWaiting  = 8192 // to be sent
	eventsUnread   = 4096 // by one subscriber
	maxEventLength = 64 << 10
	flushTimeout   = 2 * time.Second
	announceAgain  = time.Second // after an announcement that the connection did not accept
)

// Publisher sends events without blocking their publishers. When events of a buffer were dropped, its subscribers get one
// of kind bb.EventMissed as soon as there is room.
type Publisher struct {
	c       *conn.Conn
	dropped atomic.Uint64
	queue   chan bb.Event
	done    chan struct{}
	mu      struct {
		sync.RWMutex
		closed bool
	}
	missed struct {
		sync.Mutex
		events map[string]int // dropped and not announced, by buffer
	}
}

// NewPublisher returns a publisher over a connection. It has to be closed.
func NewPublisher(c *conn.Conn) *Publisher {
	p := &Publisher{c: c, queue: make(chan bb.Event, eventsWaiting), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *Publisher) run() {
	defer close(p.done)
	var again <-chan time.Time
	for {
		select {
		case e, ok := <-p.queue:
			if !ok {
				p.announce()
				return
			}
			if p.broadcast(e) != nil {
				p.dropped.Add(1)
				p.drop(e.Buffer, 1)
			}
		case <-again:
		}
		again = nil
		if len(p.queue) <= cap(p.queue)/2 && !p.announce() {
			again = time.After(announceAgain)
		}
	}
}

func (p *Publisher) broadcast(e bb.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return p.c.Broadcast(subjects+e.Buffer+"."+string(e.Kind), data)
}

// drop counts events that are not sent.
func (p *Publisher) drop(buffer string, n int) {
	p.missed.Lock()
	defer p.missed.Unlock()
	if p.missed.events == nil {
		p.missed.events = map[string]int{}
	}
	p.missed.events[buffer] += n
}

// announce reports dropped events to the subscribers of their buffers. It returns false if some could not be reported.
func (p *Publisher) announce() (all bool) {
	p.missed.Lock()
	missed := p.missed.events
	p.missed.events = nil
	p.missed.Unlock()
	all = true
	for buffer, n := range missed {
		e := bb.Event{Time: time.Now(), Kind: bb.EventMissed, Buffer: buffer}
		e.Reason = bb.Count(n, "event") + " dropped: they came faster than the namespace's server accepted them"
		if p.broadcast(e) != nil {
			p.drop(buffer, n)
			all = false
		}
	}
	return all
}

// Close sends waiting events and ends the publisher. It may be called again.
func (p *Publisher) Close() {
	p.mu.Lock()
	closed := p.mu.closed
	p.mu.closed = true
	if !closed {
		close(p.queue)
	}
	p.mu.Unlock()
	<-p.done
	p.c.Flush(flushTimeout)
}

// Publish sends an event to subject forebay.events.BUFFER.KIND as JSON. It never waits. An event
// that cannot be sent is dropped and counted, and the buffer's subscribers hear of that.
func (p *Publisher) Publish(e bb.Event) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.mu.closed || bb.CheckBufferName(e.Buffer) != nil || e.Kind == "" {
		p.dropped.Add(1)
		return
	}
	select {
	case p.queue <- e:
	default:
		p.dropped.Add(1)
		p.drop(e.Buffer, 1)
	}
}

// Dropped returns how many events could not be sent.
func (p *Publisher) Dropped() uint64 { return p.dropped.Load() }

// MissedError is the error that Next returns once when events came faster than they were read, or
// while the server was away. Events that follow are complete again.
type MissedError struct {
	Events int // how many at least; 0 if unknown
}

// Error has the number of missed events.
func (e *MissedError) Error() string {
	if e.Events == 0 {
		return "events may have been missed while the server was away"
	}
	return fmt.Sprintf("missed %s: they came faster than they were read", bb.Count(e.Events, "event"))
}

// Subscription receives the events of a buffer, or of all.
type Subscription struct {
	c       *conn.Conn
	sub     *conn.Subscription
	reading sync.Mutex
}

// Subscribe returns a subscription to the events of a buffer, or of all for "".
// Events published after it returns are received.
func Subscribe(ctx context.Context, c *conn.Conn, buffer string) (*Subscription, error) {
	subject := subjects + ">"
	if buffer != "" {
		if err := bb.CheckBufferName(buffer); err != nil {
			return nil, err
		}
		subject = subjects + buffer + ".*"
	}
	sub, err := c.Subscribe(ctx, subject, eventsUnread)
	if err != nil {
		return nil, err
	}
	return &Subscription{c: c, sub: sub}, nil
}

// Received is an event as it was sent, by its subject. Subscribers pass most on without a look at the rest.
type Received struct {
	Buffer string
	Kind   bb.EventKind
	JSON   []byte // a bb.Event
}

// Next waits for the next event. *MissedError means that some are missing before the next one, and
// the subscription goes on. After Close, or when ctx ends, it is Cancelled.
func (s *Subscription) Next(ctx context.Context) (Received, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if n, missed := s.sub.Missed(); missed {
		return Received{}, &MissedError{Events: n}
	}
	for {
		subject, data, err := s.sub.Receive(ctx)
		switch {
		case errors.Is(err, conn.ErrUnsubscribed):
			return Received{}, bb.E(bb.Cancelled, "events", "", "the subscription was closed")
		case errors.Is(err, context.DeadlineExceeded):
			return Received{}, bb.Wrap("events", "", err)
		case err != nil:
			return Received{}, &bb.Error{Kind: bb.Cancelled, Op: "events", Err: err}
		}
		buffer, kind, _ := strings.Cut(strings.TrimPrefix(subject, subjects), ".")
		if len(data) > maxEventLength || !json.Valid(data) {
			s.c.CountUnreadable()
			continue
		}
		return Received{buffer, bb.EventKind(kind), data}, nil
	}
}

// Close ends the subscription and unblocks Next. It may be called again.
func (s *Subscription) Close() { s.sub.Close() }
