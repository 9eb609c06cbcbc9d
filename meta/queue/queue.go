// Package queue is work queues over NATS JetStream: messages without data, each of which one worker gets at
// a time, until it has been acknowledged. It must never depend on the work.
package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/meta/conn"
)

const (
	pullWait = 4 * time.Second // of one request to the server
	maxPulls = 1 << 14         // workers that wait at a time
	dedup    = 30 * time.Minute
)

// Queue is a work queue: a stream of messages without data, each of which the server gives
// to one worker, and to another if the first is silent for ackWait. A message is gone once
// it was acknowledged.
type Queue struct {
	c       *conn.Conn
	name    string
	subject string // prefix of its subjects
	age     time.Duration
	ackWait time.Duration
	mu      struct {
		sync.Mutex
		consumers map[string]jetstream.Consumer
	}
}

// Options set how long a queue's messages stay, and when another worker gets them.
type Options struct {
	Age     time.Duration // of its oldest message
	AckWait time.Duration
}

// New returns the queue of a name, which need not exist, of subjects with a prefix.
func New(c *conn.Conn, name, prefix string, o Options) *Queue {
	return &Queue{c: c, name: name, subject: prefix, age: o.Age, ackWait: o.AckWait}
}

// Ensure makes the queue if it is not there.
func (q *Queue) Ensure(ctx context.Context) error {
	return q.manage(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: q.name, Subjects: []string{q.subject + ">"}, Storage: jetstream.FileStorage,
			Retention: jetstream.WorkQueuePolicy, Replicas: q.c.Replicas(), MaxAge: q.age, Duplicates: dedup,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		return err
	})
}

func (q *Queue) manage(ctx context.Context, do func(context.Context, jetstream.JetStream) error) error {
	return q.c.Manage(ctx, "queue", q.name, do)
}

// Add puts a message into the queue. One with the same id within half an hour is dropped.
func (q *Queue) Add(ctx context.Context, subject, id string) error {
	return q.manage(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.PublishMsg(ctx, &nats.Msg{Subject: q.subject + subject}, jetstream.WithMsgID(id))
		return err
	})
}

// Purge drops the messages whose subjects match a filter. It does not try again.
func (q *Queue) Purge(ctx context.Context, filter string) error {
	stream, err := q.c.JetStream().Stream(ctx, q.name)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(q.subject+filter))
}

// Next returns a message that matches a filter, which all users of a worker's name share, or nil if
// there was none for a while.
func (q *Queue) Next(ctx context.Context, worker, filter string) (*Delivery, error) {
	from, err := q.consumer(ctx, worker, q.subject+filter)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, pullWait)
	defer cancel()
	batch, err := from.Fetch(1, jetstream.FetchContext(waiting))
	return q.first(batch, err, from)
}

func (q *Queue) first(batch jetstream.MessageBatch, err error, from jetstream.Consumer) (*Delivery, error) {
	if err == nil {
		for msg := range batch.Messages() {
			return &Delivery{msg, q.subject}, nil
		}
		err = batch.Error()
	}
	switch {
	case errors.Is(err, jetstream.ErrNoMessages), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil, nil
	case err != nil: // it may be gone with the server's state
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.mu.consumers, from.CachedInfo().Name)
	}
	return nil, err
}

// consumer returns a consumer of the queue, which is made when first needed. It
// stays, so that how often a message was delivered can be relied on.
func (q *Queue) consumer(ctx context.Context, name, filter string) (jetstream.Consumer, error) {
	q.mu.Lock()
	c := q.mu.consumers[name]
	q.mu.Unlock()
	if c != nil {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, conn.AttemptTimeout)
	defer cancel()
	c, err := q.c.JetStream().CreateOrUpdateConsumer(ctx, q.name, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: q.ackWait,
		MaxAckPending: -1, MaxDeliver: -1, MaxWaiting: maxPulls,
	})
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.consumers == nil {
		q.mu.consumers = map[string]jetstream.Consumer{}
	}
	q.mu.consumers[name] = c
	return c, nil
}

// Delivery is a message of a queue that one worker was given.
type Delivery struct {
	msg    jetstream.Msg
	prefix string
}

// Subject returns the message's subject, without the queue's prefix.
func (d *Delivery) Subject() string { return d.msg.Subject()[len(d.prefix):] }

// Count returns how often the message was delivered, with this one.
func (d *Delivery) Count() uint64 {
	if md, err := d.msg.Metadata(); err == nil {
		return md.NumDelivered
	}
	return 1
}

// Ack takes the message out of the queue. If that is not confirmed, it comes again.
func (d *Delivery) Ack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, conn.AttemptTimeout)
	defer cancel()
	_ = d.msg.DoubleAck(ctx)
}

// Extend begins the time anew after which the message is given to another worker.
func (d *Delivery) Extend() error { return d.msg.InProgress() }

// GiveBack has the message delivered to a worker after a delay.
func (d *Delivery) GiveBack(delay time.Duration) error { return d.msg.NakWithDelay(delay) }

// Drop removes a message from the queue that no worker can decode.
func (d *Delivery) Drop() error { return d.msg.Term() }
