package conn

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
	"forebay/meta/retry"
)

const (
	codeNoPeers      = 10005
	codeNotClustered = 10074
)

// JetStream returns the stream API, for calls that are not tried again.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// Replicas returns how many copies a new stream gets.
func (c *Conn) Replicas() int { return c.opts.Replicas }

// manageTimeout bounds the wait for an answer of the stream API. After every manageTries the bound is twice as long, up
// to AttemptTimeout. A request before the servers have elected a leader is never answered, and a daemon that starts
// with them, or uses them while one is elected, sends one then.
const (
	manageTimeout = time.Second
	manageTries   = 3
)

// attemptTime returns the bound of a try.
func attemptTime(try int) time.Duration {
	return min(manageTimeout<<min(try/manageTries, 8), AttemptTimeout)
}

// Manage calls an idempotent function of the stream API until the server answers. Its
// subject is a bucket, a queue or a log of a name.
func (c *Conn) Manage(ctx context.Context, what, name string, do func(context.Context, jetstream.JetStream) error) error {
	for try := 0; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, attemptTime(try))
		err := do(attempt, c.js)
		cancel()
		var api jetstream.JetStreamError
		switch {
		case err == nil:
			if try > 0 {
				c.prober.answered(apiName)
			}
			return nil
		case errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == codeNotClustered:
			return bb.E(bb.Invalid, what, name, api.APIError().Error()).WithRemedy("ask for one replica, or use a cluster of servers")
		case errors.As(err, &api) && api.APIError() != nil && final(api.APIError()):
			return bb.E(bb.Internal, what, name, api.APIError().Error())
		}
		if ctx.Err() != nil {
			return c.Unavailable(ctx, what+" "+name, err)
		}
		c.apiSuspected(err)
		retry.Pause(ctx, try)
		if err := c.Again(ctx); err != nil {
			return err
		}
	}
}

// final reports whether another attempt cannot help. For a while, a cluster that is starting has no
// leader, or reports too few servers as up.
func final(err *jetstream.APIError) bool {
	return err.Code < 500 && err.ErrorCode != codeNoPeers
}
