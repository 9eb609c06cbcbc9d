// Package admin manages the state of a cluster of daemons: buffers and their lifetimes, copies between buffers and
// stores, operations that daemons carry out together, nodes, batch jobs. It is for tools. Programs that only read
// and write files need package client alone. It sends requests through a client's connection, and
// must never depend on the state of that connection.
package admin

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/wire"
)

// connection is the part of a client's connection that this package needs. It may be used
// concurrently.
type connection interface {
	// Ask sends a request and waits for its reply. If the connection breaks, it sends the request
	// again in a new one. If the request must not be carried out twice, the error is one of unknown
	// outcome instead.
	Ask(ctx context.Context, typ wire.Type, m, reply proto.Message) error
	// Repeat runs op, and repeats it when connections break under it, for as long as the
	// client's options allow.
	Repeat(ctx context.Context, op func() error) error
	// Stream carries out one request that has many replies, or is long, on a connection of its own.
	// Each is called for every reply, on the calling goroutine. It must not keep the reply, and its
	// error ends the request.
	Stream(ctx context.Context, typ wire.Type, m proto.Message, data []byte, each func(message, data []byte) error) error
}

func of(c *client.Client) connection { return c.Connection() }
