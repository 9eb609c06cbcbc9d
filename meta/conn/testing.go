package conn

import (
	"context"

	"github.com/nats-io/nats.go"
)

// For tests of the packages above that lose requests and answers. No program uses it.

// Message is a request to the server, or an answer.
type Message = nats.Msg

// Intercept puts f before all requests that have one answer. nil removes it. F passes requests on
// to the server by deliver.
func (c *Conn) Intercept(f func(context.Context, []*Message) (*Message, error)) { c.intercept = f }

// LoseFed loses the messages of feeds, begun afterwards, for which f reports true.
func (c *Conn) LoseFed(f func(Fed) bool) { c.lose = f }

// Reconnected counts as a new connection.
func (c *Conn) Reconnected() { c.setUp("") }
