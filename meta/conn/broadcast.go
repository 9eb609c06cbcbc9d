package conn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

// ErrUnsubscribed: the subscription was closed.
var ErrUnsubscribed = errors.New("the subscription was closed")

// Broadcast sends data to all present subscribers of a subject. It is not stored.
func (c *Conn) Broadcast(subject string, data []byte) error { return c.nc.Publish(subject, data) }

// Flush waits until the server has all sent messages, if there is a connection.
func (c *Conn) Flush(timeout time.Duration) {
	if c.nc.IsConnected() {
		_ = c.nc.FlushTimeout(timeout) // best effort, since broadcasts are not stored
	}
}

// Subscription receives the broadcasts to a subject.
type Subscription struct {
	c          *Conn
	sub        *nats.Subscription
	msgs       chan *nats.Msg
	dropped    int
	reconnects uint64
	closed     chan struct{}
	once       sync.Once
}

// Subscribe returns a subscription to a subject that keeps so many messages for its reader.
// Broadcasts after its return are received.
func (c *Conn) Subscribe(ctx context.Context, subject string, unread int) (*Subscription, error) {
	s := &Subscription{c: c, msgs: make(chan *nats.Msg, unread), closed: make(chan struct{})}
	for {
		if err := c.Wait(ctx); err != nil {
			return nil, err
		}
		s.reconnects = c.Status().Reconnects
		sub, err := c.nc.ChanSubscribe(subject, s.msgs)
		if err != nil {
			return nil, bb.Wrap("subscribe", subject, err)
		}
		// nats.go flushes only with a deadline. Without an answer by then, the request is repeated.
		flushing, cancel := context.WithTimeout(ctx, AttemptTimeout)
		err = c.nc.FlushWithContext(flushing)
		cancel()
		if err == nil {
			s.sub = sub
			return s, nil
		}
		_ = sub.Unsubscribe()
		if ctx.Err() != nil {
			return nil, c.Unavailable(ctx, "subscribe", err)
		}
	}
}

// Receive waits for the next message and returns its subject and data. ErrUnsubscribed after close, or
// the error of ctx.
func (s *Subscription) Receive(ctx context.Context) (subject string, data []byte, err error) {
	select {
	case msg := <-s.msgs:
		return msg.Subject, msg.Data, nil
	case <-s.closed:
		return "", nil, ErrUnsubscribed
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
}

// Missed reports whether messages were missed since it was last called, and how many at least, or 0
// if that is unknown. It is called by one goroutine at a time.
func (s *Subscription) Missed() (n int, missed bool) {
	if n := s.Dropped(); n > s.dropped {
		missed := n - s.dropped
		s.dropped = n
		return missed, true
	}
	if n := s.c.Status().Reconnects; n > s.reconnects {
		s.reconnects = n
		return 0, true
	}
	return 0, false
}

// Dropped returns how many messages came faster than they were read.
func (s *Subscription) Dropped() int {
	n, err := s.sub.Dropped()
	if err != nil {
		return 0
	}
	return n
}

// Close ends the subscription and receive. It may be called again.
func (s *Subscription) Close() {
	s.once.Do(func() {
		_ = s.sub.Unsubscribe()
		close(s.closed)
	})
}
