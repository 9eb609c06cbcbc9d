package stream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/retry"
)

const (
	readAhead = 256         // messages that the server sends before they are taken
	silence   = time.Second // of a feed, after which its next message is requested from the server
	silences  = 5           // in a row, each twice as long, after which there is another feed
	laggards  = 20          // copies that may lack a message, queried one after the other
)

// errUnreadable is in the chain of the errors of reads of messages that a server lists and cannot read.
var errUnreadable = errors.New("the server cannot read it")

func (s *Stream) unreadable(what string) error {
	return &bb.Error{
		Kind: bb.Lost, Op: "read", Path: s.name, Err: fmt.Errorf("%s: %w", what, errUnreadable),
		Remedy: "see the errors of the namespace server (nats:) in its log, and of its disk; put a copy of the namespace server's folder back",
	}
}

// At returns the message of a sequence, if it is there and the server can read it.
func (s *Stream) At(ctx context.Context, seq uint64) (Message, error) {
	return s.ask(ctx, func(ctx context.Context) (Message, error) { return s.direct(ctx, map[string]any{"seq": seq}) })
}

// Read calls fn with the messages under a subject, from a sequence on up to another, which
// must be that of one of them, in their order. Fn may keep the data.
func (s *Stream) Read(ctx context.Context, subject string, from, to uint64, fn func(Message) error) error {
	r := reader{s: s, subject: subject, to: to, fn: fn, last: max(from, 1) - 1}
	for r.last < to {
		if err := r.consume(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ReadAll calls fn with all messages that the server can read, up to a sequence, which must be that
// of one of them, in their order. Fn may keep the data.
func (s *Stream) ReadAll(ctx context.Context, to uint64, fn func(Message) error) error {
	r := reader{s: s, subject: ">", to: to, fn: fn}
	for r.last < to {
		err := r.consume(ctx)
		if errors.Is(err, errUnreadable) {
			err = r.skip(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reader is a read that is under way.
type reader struct {
	s       *Stream
	subject string
	to      uint64
	fn      func(Message) error
	last    uint64 // sequence that fn was called with last
}

func (r *reader) take(m Message) error {
	if m.Seq > r.to {
		return bb.E(bb.Internal, "read", r.s.name, fmt.Sprintf("message %d is not there", r.to))
	}
	r.last = m.Seq
	return r.fn(m)
}

// consume reads through a feed, up to the end, or until that has a gap, or has been silent for
// long. A server's consumers wait at an unreadable message. So the next one is requested by itself,
// which is answered. The ordered consumers of nats.go would not do. Without its consumer, such a
// reader makes another, for ever and even after the end of ctx.
func (r *reader) consume(ctx context.Context) error {
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := make(chan conn.Fed, readAhead)
	feed, err := r.s.c.Feed(ctx, r.s.name, r.s.prefix+r.subject, conn.From(r.last+1), func(m conn.Fed) {
		select {
		case messages <- m:
		case <-feeding.Done():
		}
	})
	if errors.Is(err, conn.ErrNoStream) {
		return ErrGone
	}
	if err != nil {
		return err
	}
	defer feed.Stop(ctx)
	defer cancel() // first: the feed waits in its function, perhaps
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for silent := 0; r.last < r.to; {
		select {
		case m := <-messages:
			if m.Seq == 0 {
				return bb.E(bb.Internal, "read", r.s.name, "the server's message is malformed")
			}
			silent = 0
			if err := r.take(Message{Subject: strings.TrimPrefix(m.Subject, r.s.prefix), Seq: m.Seq, Data: m.Data}); err != nil {
				return err
			}
		case <-timer.C:
			m, err := r.s.following(ctx, r.subject, r.last+1)
			if err != nil {
				return err
			}
			if silent++; silent == silences || feed.Gap() {
				return r.take(m)
			}
		case <-ctx.Done():
			return conn.Wrap("read", r.s.name, context.Cause(ctx))
		}
		timer.Reset(silence << silent)
	}
	return nil
}

// following returns the first message under a subject from a sequence on, of which there is one.
func (s *Stream) following(ctx context.Context, subject string, from uint64) (m Message, err error) {
	tries := 1
	if s.copies > 1 {
		tries = laggards
	}
	for try := range tries {
		if try > 0 {
			retry.Pause(ctx, try)
		}
		if m, err = s.after(ctx, subject, from); err != nil || m.Seq != 0 {
			return m, err
		}
	}
	return m, s.unreadable(fmt.Sprintf("the message under %s that follows %d", subject, from-1))
}

// after returns the first message under a subject from a sequence on, if there is one and the
// server can read it.
func (s *Stream) after(ctx context.Context, subject string, from uint64) (Message, error) {
	return s.ask(ctx, func(ctx context.Context) (Message, error) {
		return s.direct(ctx, map[string]any{"seq": from, "next_by_subj": s.prefix + subject})
	})
}

// skip calls fn with the first message that was found above those that the server cannot read. It
// searches at growing distances, and then between the last two, since beyond a block of messages
// all can be read again.
func (r *reader) skip(ctx context.Context) error {
	bad := r.last + 1 // from here on, the first message cannot be read
	var found Message
	good := bad
	for step := uint64(1); found.Seq == 0; step *= 2 {
		if good == r.to {
			return r.s.unreadable(fmt.Sprintf("message %d", r.to))
		}
		bad, good = good, min(good+step, r.to)
		m, err := r.s.after(ctx, r.subject, good)
		if err != nil {
			return err
		}
		found = m
	}
	for good-bad > 1 {
		middle := bad + (good-bad)/2
		m, err := r.s.after(ctx, r.subject, middle)
		switch {
		case err != nil:
			return err
		case m.Seq == 0:
			bad = middle
		default:
			good, found = middle, m
		}
	}
	return r.take(found)
}
