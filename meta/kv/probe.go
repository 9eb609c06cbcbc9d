package kv

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/meta/conn"
)

// probe sends the bucket a request with the needs of a change: with copies, a leader that a
// majority follows.
func (b *Bucket) probe(ctx context.Context) error {
	const key = "x." + barrierToken
	if !b.Replicated() {
		_, err := b.c.Deliver(ctx, []*nats.Msg{{Subject: b.get1 + key}}) // that there is no such key is an answer
		return err
	}
	ack, err := b.c.Deliver(ctx, []*nats.Msg{{Subject: b.subject + key, Data: []byte("-")}})
	if err == nil {
		_, err = conn.ParseAck(ack.Data)
	}
	return err
}

// ProbeAlways makes the connection's probe send the bucket a request in every round.
func (b *Bucket) ProbeAlways() { b.c.ProbeAlways("stream KV_"+b.name, b.probe) }

// probeOrGone is probe of a bucket that may have been deleted since. Then it counts as answered.
func (b *Bucket) probeOrGone(ctx context.Context) error {
	err := b.probe(ctx)
	if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, ErrNoBucket) {
		return err
	}
	if errors.Is(b.find(ctx), jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// suspected records that the bucket has left a request without an answer.
func (b *Bucket) suspected(err error) {
	b.c.Suspect("stream KV_"+b.name, err, b.probeOrGone)
}
