package meta

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

// errUnsubscribed: the subscription was closed.
var errUnsubscribed = errors.New("the subscription was closed")

// broadcast sends data to all who subscribe to a subject now. It is not stored.
func (c *conn) broadcast(subject string, data []byte) error { return c.nc.Publish(subject, data) }

// flush waits until the server has what was sent, if there is a connection.
func (c *conn) flush(timeout time.Duration) {
	if c.nc.IsConnected() {
		_ = c.nc.FlushTimeout(timeout) // best effort: broadcasts are not stored
	}
}

// subscription receives what is broadcast to a subject.
type subscription struct {
	c          *conn
	sub        *nats.Subscription
	msgs       chan *nats.Msg
	dropped    int
	reconnects uint64
	closed     chan struct{}
	once       sync.Once
}

// subscribe returns a subscription to a subject that keeps so many messages for its reader.
// What is broadcast after it returns is received.
func (c *conn) subscribe(ctx context.Context, subject string, unread int) (*subscription, error) {
	s := &subscription{c: c, msgs: make(chan *nats.Msg, unread), closed: make(chan struct{})}
	for {
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
		s.reconnects = c.currentStatus().Reconnects
		sub, err := c.nc.ChanSubscribe(subject, s.msgs)
		if err != nil {
			return nil, bb.Wrap("subscribe", subject, err)
		}
		// nats.go flushes only with a deadline; without an answer by then it is asked again.
		flushing, cancel := context.WithTimeout(ctx, attemptTimeout)
		err = c.nc.FlushWithContext(flushing)
		cancel()
		if err == nil {
			s.sub = sub
			return s, nil
		}
		_ = sub.Unsubscribe()
		if ctx.Err() != nil {
			return nil, c.unavailable(ctx, "subscribe", err)
		}
	}
}

// receive waits for the next message and returns its data. errUnsubscribed after close, or
// the error of ctx.
func (s *subscription) receive(ctx context.Context) ([]byte, error) {
	select {
	case msg := <-s.msgs:
		return msg.Data, nil
	case <-s.closed:
		return nil, errUnsubscribed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// missed reports whether messages were missed since it was last called, and how many at
// least; 0 if nobody knows. It is called by one goroutine at a time.
func (s *subscription) missed() (n int, missed bool) {
	if n := s.lost(); n > s.dropped {
		missed := n - s.dropped
		s.dropped = n
		return missed, true
	}
	if n := s.c.currentStatus().Reconnects; n > s.reconnects {
		s.reconnects = n
		return 0, true
	}
	return 0, false
}

// lost returns how many messages came faster than they were read.
func (s *subscription) lost() int {
	n, err := s.sub.Dropped()
	if err != nil {
		return 0
	}
	return n
}

// unsubscribe ends the subscription and receive. It may be called again.
func (s *subscription) unsubscribe() {
	s.once.Do(func() {
		_ = s.sub.Unsubscribe()
		close(s.closed)
	})
}
