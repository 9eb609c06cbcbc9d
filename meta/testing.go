package meta

import (
	"context"

	"github.com/nats-io/nats.go"
)

// What tests of the packages above need to lose requests and answers, and to take a bucket
// for one of several copies. No program uses it.

// Message is a request to the server, or an answer.
type Message = nats.Msg

// interceptBy puts f before all requests that have one answer; nil: nothing. F passes on
// with deliver what the server is to get.
func (c *conn) interceptBy(f func(context.Context, []*Message) (*Message, error)) { c.intercept = f }

// reconnected does to what is counted what a new connection does.
func (c *conn) reconnected() { c.setUp("") }

// assumeCopies makes reads go as if the bucket had so many copies.
func (b *bucket) assumeCopies(n int32) { b.copies.Store(n) }

// subjects returns the prefix of the subjects of the bucket's keys.
func (b *bucket) subjects() string { return b.subject }
