package conn

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	feedHeartbeat = 5 * time.Second // of the server, while it has nothing to send
	feedSilence   = 2 * feedHeartbeat

	hdrStatus       = "Status"
	hdrLastConsumer = "Nats-Last-Consumer"
	hdrStalled      = "Nats-Consumer-Stalled"
)

// Feed passes on the messages of a stream under a subject, each as it is stored, in their order. It never
// skips one. Where one is missing, it passes on nothing more (see Gap). It costs a consumer on the server.
//
// The ordered consumers of nats.go do the same and begin anew by themselves, but neither of its two kinds
// fits. One belongs to its older API, the other cannot be stopped while the server is away.
type Feed struct {
	c        *Conn
	stream   string
	consumer string
	sub      *nats.Subscription
	handle   func(Fed)
	lose     func(Fed) bool
	next     uint64 // message of the consumer; the subscription's goroutine alone has it
	gap      atomic.Bool
	heard    atomic.Int64 // when the server last sent something, in nanoseconds since 1970
}

// Fed is one message of a feed.
type Fed struct {
	Subject string
	Header  nats.Header
	Data    []byte
	Seq     uint64 // 0: the server's message is malformed
	Pending uint64 // messages that the server has yet to send, by its own count
}

// From is the beginning of a feed: a sequence, or the next stored message.
type From uint64

// FromNow is after all that is stored.
const FromNow From = 0

// Feed begins a feed. It waits for the server until ctx ends. Handle is called by one goroutine at a time, and
// may block. The server sends no faster than it returns. It may be called once more after Stop has returned. The
// error is ErrNoStream if there is no such stream.
func (c *Conn) Feed(ctx context.Context, stream, subject string, from From, handle func(Fed)) (*Feed, error) {
	for try := 0; ; try++ {
		f, err := c.feedOnce(ctx, attemptTime(try), stream, subject, from, handle)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return nil, ErrNoStream
		case ctx.Err() != nil:
			return nil, c.Unavailable(ctx, "list", err)
		}
		if err := c.Again(ctx); err != nil {
			return nil, err
		}
	}
}

func (c *Conn) feedOnce(ctx context.Context, within time.Duration, stream, subject string, from From, handle func(Fed)) (*Feed, error) {
	f := &Feed{c: c, stream: stream, handle: handle, lose: c.lose, next: 1}
	f.hear()
	inbox := c.nc.NewInbox()
	sub, err := c.nc.Subscribe(inbox, f.receive)
	if err != nil {
		return nil, err
	}
	cfg := jetstream.ConsumerConfig{
		DeliverSubject: inbox, FilterSubject: subject, DeliverPolicy: jetstream.DeliverNewPolicy,
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, FlowControl: true, IdleHeartbeat: feedHeartbeat,
		MemoryStorage: true, Replicas: 1,
	}
	if from != FromNow {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, uint64(from)
	}
	attempt, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	consumer, err := c.js.CreatePushConsumer(attempt, stream, cfg)
	if err != nil {
		_ = sub.Unsubscribe() // if the consumer was made all the same, the server drops it by itself
		return nil, err
	}
	f.sub, f.consumer = sub, consumer.CachedInfo().Name
	return f, nil
}

// Gap reports whether a message is missing. Nothing that follows it is passed on.
func (f *Feed) Gap() bool { return f.gap.Load() }

// Silent reports whether the server has sent nothing for so long, no heartbeat either, that the consumer must be gone.
func (f *Feed) Silent() bool { return time.Now().UnixNano()-f.heard.Load() > int64(feedSilence) }

// Stop ends the feed. It may be called after ctx has ended.
func (f *Feed) Stop(ctx context.Context) {
	_ = f.sub.Unsubscribe()
	if !f.c.nc.IsConnected() {
		return // the server drops a consumer without a listener
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AttemptTimeout)
	defer cancel()
	_ = f.c.js.DeleteConsumer(ctx, f.stream, f.consumer)
}

func (f *Feed) hear() { f.heard.Store(time.Now().UnixNano()) }

// receive runs on the subscription's goroutine.
func (f *Feed) receive(msg *nats.Msg) {
	f.hear()
	if len(msg.Data) == 0 && msg.Header.Get(hdrStatus) == "100" {
		f.control(msg)
		return
	}
	m, n, ok := fed(msg)
	if f.lose != nil && f.lose(m) {
		return
	}
	if ok && n != f.next {
		f.gap.Store(true)
	}
	if !f.gap.Load() {
		f.next++
		f.handle(m)
	}
	f.hear()
}

// control answers a request of the server's flow control. It comes after the messages that it is about, so that
// these have been passed on by now. A heartbeat has the server's position, and whether it waits for such an answer.
func (f *Feed) control(msg *nats.Msg) {
	if msg.Reply != "" {
		_ = f.c.nc.Publish(msg.Reply, nil) // a heartbeat requests them again
		return
	}
	// Fewer than have come belong to another consumer of this name, since a server that lost it
	// with its memory made it anew.
	if last, err := strconv.ParseUint(msg.Header.Get(hdrLastConsumer), 10, 64); err == nil && last+1 != f.next {
		f.gap.Store(true)
	}
	if stalled := msg.Header.Get(hdrStalled); stalled != "" {
		_ = f.c.nc.Publish(stalled, nil)
	}
}

// fed reads a consumer's message, whose reply subject has its sequence in the stream, and its number in the consumer:
//
//	$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.SEQUENCE.N.TIME.PENDING[.RANDOM]
func fed(msg *nats.Msg) (m Fed, n uint64, ok bool) {
	m = Fed{Subject: msg.Subject, Header: msg.Header, Data: msg.Data}
	tokens := strings.Split(msg.Reply, ".")
	at := 2
	if len(tokens) >= 11 {
		at = 4
	}
	if len(tokens) < at+7 {
		return m, 0, false
	}
	seq, err := strconv.ParseUint(tokens[at+3], 10, 64)
	n, nerr := strconv.ParseUint(tokens[at+4], 10, 64)
	pending, perr := strconv.ParseUint(tokens[at+6], 10, 64)
	if err != nil || nerr != nil || perr != nil {
		return m, 0, false
	}
	m.Seq, m.Pending = seq, pending
	return m, n, true
}
