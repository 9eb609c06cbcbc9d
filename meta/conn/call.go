package conn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// call is one request that waits for answers. Its channel is only ever written
// under the lock of its shard, and never blocks the writer.
type call struct {
	answers chan *nats.Msg // nil stands for a broken connection
	timer   *time.Timer
}

// dispatch hands an answer to its call. It runs on the subscription's goroutine.
func (c *Conn) dispatch(msg *nats.Msg) {
	id, err := strconv.ParseUint(msg.Subject[len(c.prefix):], 36, 64)
	if err != nil {
		return
	}
	s := &c.shards[id%callShards]
	s.Lock()
	defer s.Unlock()
	if call := s.calls[id]; call != nil {
		call.push(msg)
	}
}

func (c *call) push(msg *nats.Msg) {
	select {
	case c.answers <- msg:
	default: // more than requested
	}
}

// failCalls fails every call in flight, since its answer will not come.
func (c *Conn) failCalls() {
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for _, call := range s.calls {
			call.push(nil)
		}
		s.Unlock()
	}
}

func (c *Conn) register(call *call) uint64 {
	id := c.last.Add(1)
	s := &c.shards[id%callShards]
	s.Lock()
	s.calls[id] = call
	s.Unlock()
	return id
}

func (c *Conn) unregister(id uint64) {
	s := &c.shards[id%callShards]
	s.Lock()
	delete(s.calls, id)
	s.Unlock()
}

func (c *Conn) reply(id uint64) string {
	b := make([]byte, 0, len(c.prefix)+13)
	return string(strconv.AppendUint(append(b, c.prefix...), id, 36))
}

// Request sends messages, of which the last is answered, and returns the answer. It does not try
// again. ErrUncertain means that the server may have acted on it, ErrNoServer that it cannot have,
// nats.ErrNoResponders that there is no listener.
func (c *Conn) Request(ctx context.Context, msgs ...*nats.Msg) (*nats.Msg, error) {
	if c.intercept != nil {
		return c.intercept(ctx, msgs)
	}
	return c.Deliver(ctx, msgs)
}

// Deliver is Request without its preparations.
func (c *Conn) Deliver(ctx context.Context, msgs []*nats.Msg) (*nats.Msg, error) {
	call := c.pool.Get().(*call)
	id := c.register(call)
	defer func() {
		c.unregister(id)
		call.timer.Stop()
		for len(call.answers) > 0 {
			<-call.answers
		}
		c.pool.Put(call)
	}()
	msgs[len(msgs)-1].Reply = c.reply(id)
	for i, msg := range msgs {
		if err := c.nc.PublishMsg(msg); err != nil {
			if i > 0 || !notSent(err) {
				return nil, fmt.Errorf("%w: %w", ErrUncertain, err)
			}
			return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
		}
	}
	patience := AttemptTimeout
	changes := !strings.HasPrefix(msgs[len(msgs)-1].Subject, apiPrefix)
	if changes && c.opts.full() != nil {
		patience = fullPatience
	}
	call.timer.Reset(patience)
	answer, err := c.answer(ctx, call)
	if errors.Is(err, ErrUncertain) && changes {
		if full := c.opts.full(); full != nil {
			err = fmt.Errorf("%w: %w", full, err)
		}
	}
	return answer, err
}

// apiPrefix begins the subjects of requests that no stream stores.
const apiPrefix = "$JS.API."

// fullPatience is the wait for an answer of a server with a full disk, since it has none to a
// change.
const fullPatience = time.Second

// Answers sends a message that has up to n answers, and calls fn with each until fn reports
// the last one, or fails. It does not try again.
func (c *Conn) Answers(ctx context.Context, msg *nats.Msg, n int, fn func(*nats.Msg) (last bool, err error)) error {
	call := &call{answers: make(chan *nats.Msg, n+2), timer: time.NewTimer(AttemptTimeout)}
	defer call.timer.Stop()
	id := c.register(call)
	defer c.unregister(id)
	msg.Reply = c.reply(id)
	if err := c.nc.PublishMsg(msg); err != nil {
		return ErrNoServer
	}
	for {
		answer, err := c.answer(ctx, call)
		if err != nil {
			return err
		}
		if last, err := fn(answer); last || err != nil {
			return err
		}
	}
}

// Send sends a message without waiting for an answer.
func (c *Conn) Send(msg *nats.Msg) { _ = c.nc.PublishMsg(msg) }

// answer waits for the next answer to a call.
func (c *Conn) answer(ctx context.Context, call *call) (*nats.Msg, error) {
	select {
	case msg := <-call.answers:
		if msg == nil {
			return nil, ErrUncertain
		}
		if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
			return nil, nats.ErrNoResponders
		}
		return msg, nil
	case <-call.timer.C:
		return nil, ErrUncertain
	case <-ctx.Done():
		return nil, c.Unavailable(ctx, "namespace server", ErrUncertain)
	}
}

// notSent reports whether an error of Publish means that nothing left the process.
func notSent(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining)
}
