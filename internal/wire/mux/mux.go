// Package mux keeps the requests of one connection that are in flight. It numbers and sends them,
// finds the request that a frame answers, and hands all of them out when the connection breaks. It
// must never depend on the content of requests, nor on the reader. Each owner reads frames in its
// own way and finds their requests by Answered.
package mux

import (
	"errors"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Mux is the table of a connection's requests. C is the owner's state of each of them. It may
// be used concurrently, and never waits but for the connection to accept frames.
type Mux[C any] struct {
	out     *wire.Writer
	welcome *wire.Welcome
	broke   func(error)
	broken  atomic.Bool

	mu struct {
		sync.Mutex
		calls map[uint64]C
		last  uint64
		err   error
	}
}

// New returns a table without requests, of a connection on which the handshake is done. Broke is
// called, without locks, when a frame cannot be sent. It calls Break, and closes the connection.
func New[C any](out *wire.Writer, welcome *wire.Welcome, broke func(error)) *Mux[C] {
	m := &Mux[C]{out: out, welcome: welcome, broke: broke}
	m.mu.calls = make(map[uint64]C)
	return m
}

// Frame is a request to send.
type Frame struct {
	Type    wire.Type
	Message proto.Message
	Data    []byte
	Queue   bool // it may leave with the next one, or by Flush
}

// ErrFull: the bound of requests in flight is reached.
var ErrFull = errors.New("too many requests are in flight")

// BrokenError is the error of a connection that ended before the answer to a request came. It is of kind
// unavailable, and of unknown outcome if the request was sent.
type BrokenError struct {
	Reason error
	Sent   bool // the request may have been carried out
}

func (e *BrokenError) Error() string { return "the connection broke: " + e.Reason.Error() }

// Unwrap makes it one of kind unavailable.
func (e *BrokenError) Unwrap() []error { return []error{bb.Unavailable, e.Reason} }

// Is makes one whose request was sent one of unknown outcome.
func (e *BrokenError) Is(target error) bool { return e.Sent && target == bb.ErrUnknownOutcome }

// Supports returns an error of kind unsupported if the other side is too old for a request.
func (m *Mux[C]) Supports(typ wire.Type, msg proto.Message) error {
	return wire.Speakable(m.welcome.Version, m.welcome.Server+" of node "+m.welcome.Node, typ, msg)
}

// Start sends a request and returns its number. It returns ErrFull if limit requests are in flight
// (0: no limit), and a *BrokenError if the connection broke. If that happens while the request is
// sent, the number is not 0, and Break has handed the call out. A *wire.FrameError if no frame
// holds it.
func (m *Mux[C]) Start(call C, limit int, f Frame) (id uint64, err error) {
	if id, err = m.enter(call, limit); err != nil {
		return 0, err
	}
	send := m.out.Send
	if f.Queue {
		send = m.out.Queue
	}
	err = send(f.Type, 0, id, f.Message, f.Data)
	var tooLarge *wire.FrameError
	switch {
	case err == nil:
		return id, nil
	case errors.As(err, &tooLarge):
		m.Forget(id)
		return 0, err
	}
	m.broke(err)
	var unsent *wire.UnsentError
	return id, &BrokenError{Reason: err, Sent: !errors.As(err, &unsent)}
}

func (m *Mux[C]) enter(call C, limit int) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.mu.err != nil:
		return 0, &BrokenError{Reason: m.mu.err}
	case limit > 0 && len(m.mu.calls) >= limit:
		return 0, ErrFull
	}
	m.mu.last++
	m.mu.calls[m.mu.last] = call
	return m.mu.last, nil
}

// Flush sends queued frames. Any fault of the connection is also found by reading.
func (m *Mux[C]) Flush() { _ = m.out.Flush() }

// Answered returns the call that a frame answers. With its last answer it is not in flight any
// more, and the caller's to finish. False: no such request is in flight.
func (m *Mux[C]) Answered(head wire.Header) (call C, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	call, ok = m.mu.calls[head.Request]
	if !head.Has(wire.FlagMore) {
		delete(m.mu.calls, head.Request)
	}
	return call, ok
}

// Forget takes a request out of the table. Its answers are dropped.
func (m *Mux[C]) Forget(id uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.calls, id)
}

// Break ends the connection for a reason, of which the first one counts. No request is started any
// more. It returns the calls that are in flight, which are the caller's to finish.
func (m *Mux[C]) Break(reason error) (calls map[uint64]C) {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls = m.mu.calls
	m.mu.calls = make(map[uint64]C)
	if m.mu.err == nil {
		m.mu.err = reason
	}
	m.broken.Store(true)
	return calls
}

// Broken reports whether the connection has ended.
func (m *Mux[C]) Broken() bool { return m.broken.Load() }

// InFlight is how many requests are.
func (m *Mux[C]) InFlight() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.calls)
}
