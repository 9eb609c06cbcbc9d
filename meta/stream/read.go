package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

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
	read := r.consume
	if s.copies > 1 {
		read = r.batches
	}
	for r.last < to {
		if err := read(ctx); err != nil {
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
	err     error  // of fn, of a batch
}

func (r *reader) take(m Message) error {
	if m.Seq > r.to {
		return bb.E(bb.Internal, "read", r.s.name, fmt.Sprintf("message %d is not there", r.to))
	}
	r.last = m.Seq
	return r.fn(m)
}

// batches reads by direct gets, which any copy answers. A feed needs a consumer, which the servers make only when they
// have a leader of them all. That one may have died with the owner of a log.
func (r *reader) batches(ctx context.Context) error {
	for try := 0; r.last < r.to; try++ {
		was := r.last
		once, cancel := r.s.once(ctx, try)
		found, err := r.batch(once)
		err = unanswered(ctx, once, err)
		cancel()
		if r.last > was {
			try = 0
		}
		switch {
		case r.err != nil:
			return r.err
		case err == nil && !found: // this copy lacks the message, or cannot read it
			m, err := r.s.following(ctx, r.subject, r.last+1)
			if err != nil {
				return err
			}
			if err := r.take(m); err != nil {
				return err
			}
		case err == nil:
		default:
			err = r.s.retry(ctx, try, err)
			if err == nil && ctx.Err() != nil {
				err = conn.Wrap("read", r.s.name, context.Cause(ctx))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// batch is one direct get of several messages, and reports whether the copy had any. Each answer names the one before
// it, and the end names the last one, so that a lost answer shows.
func (r *reader) batch(ctx context.Context) (found bool, err error) {
	body, err := json.Marshal(map[string]any{"seq": r.last + 1, "next_by_subj": r.s.prefix + r.subject, "batch": readAhead})
	if err != nil {
		return false, err
	}
	before := uint64(0)
	msg := &nats.Msg{Subject: "$JS.API.DIRECT.GET." + r.s.name, Data: body}
	err = r.s.c.Answers(ctx, msg, readAhead, func(msg *nats.Msg) (last bool, err error) {
		previous, _ := strconv.ParseUint(msg.Header.Get("Nats-Last-Sequence"), 10, 64)
		switch status := msg.Header.Get("Status"); {
		case status == "404":
			return true, nil
		case status != "" && status != "204":
			return false, bb.E(bb.Internal, "read", r.s.name, "server status "+status)
		case found && previous != before:
			return false, conn.ErrUncertain
		case status == "204":
			return true, nil
		}
		m, err := r.s.message(msg)
		if err != nil {
			return false, err
		}
		found, before = true, m.Seq
		r.err = r.take(m)
		return r.err != nil || r.last >= r.to, nil
	})
	return found, err
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
