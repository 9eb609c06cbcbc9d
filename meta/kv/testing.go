package kv

import (
	"context"

	"github.com/nats-io/nats.go"
)

// What tests of the packages above need to lose requests and answers, and to take a bucket
// for one of several copies. No program uses it.

// Message is a request to the server, or an answer.
type Message = nats.Msg

// Intercept puts f before all requests that have one answer; nil: nothing. F passes on
// with deliver what the server is to get.
func (c *Conn) Intercept(f func(context.Context, []*Message) (*Message, error)) { c.intercept = f }

// Reconnected does to what is counted what a new connection does.
func (c *Conn) Reconnected() { c.setUp("") }

// AssumeCopies makes reads go as if the bucket had so many copies.
func (b *Bucket) AssumeCopies(n int32) { b.copies.Store(n) }

// Subjects returns the prefix of the subjects of the bucket's keys.
func (b *Bucket) Subjects() string { return b.subject }
