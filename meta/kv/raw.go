package kv

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What follows is for package stream, the only other one that speaks with the server.

// Request sends a message and returns the answer, once: see request.
func (c *Conn) Request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	return c.request(ctx, msg)
}

// Manage calls an idempotent function of the stream API until the server answers.
func (c *Conn) Manage(ctx context.Context, what, name string, do func(context.Context, jetstream.JetStream) error) error {
	return c.manage(ctx, what, name, func(ctx context.Context) error { return do(ctx, c.admin) })
}

// Replicas returns how many copies a new stream gets.
func (c *Conn) Replicas() int { return c.opts.Replicas }

// ParseAck reads the sequence from the acknowledgement of a publish; ErrRevision if its
// expectation was wrong.
func ParseAck(data []byte) (uint64, error) { return parseAck(data) }
