// Package stream is append-only logs over NATS JetStream: messages under subjects, each appended
// only if there was no other append meanwhile, read in their order, and purged from the front. A
// log is no bucket (meta/kv). Its messages stay beside each other, and one fence covers several
// subjects. It must never depend on the meaning of a message.
//
// When the answer to an append was lost, the append is read back and sent again until its outcome
// is certain. While the server is away, calls wait for it until their context ends. A message that
// a server lists and cannot read is an error of kind Lost, without a wait.
package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/retry"
)

const (
	hdrExpected        = "Nats-Expected-Last-Subject-Sequence"
	hdrExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	barrierSubject     = "barrier" // messages without meaning (see Stream.Last)
	refusals           = 8         // of an append by a server without copies, with its newest message at the fence
	// patience bounds the wait of a request to copies, and twice as long the next one, up to conn.AttemptTimeout. One
	// that was on its way to a server that died is never answered. It may be sent again at any time.
	patience = time.Second
	// existsWithin bounds the question whether a stream without a leader is there, since nothing answers it while a
	// leader is elected. After the first try it is asked with every existsEvery-th.
	existsWithin = 300 * time.Millisecond
	existsEvery  = 16
	// deletedWithin bounds the time for which a server goes on with the deletion of a stream after it answers that the
	// stream is gone. Nothing that it answers shows the end.
	deletedWithin = 3 * time.Second
	remakes       = 3
	codeUpdate    = 10069 // of the error of an update that a server cannot store
)

// ErrGone: the stream does not exist.
var ErrGone = errors.New("the log does not exist")

// Moved is the error of an append with a fence that was not where it was expected.
type Moved struct {
	// Last is the newest sequence under the fence's subject. It is above the expected one if
	// another process has appended, and below it if the server has lost acknowledged messages.
	Last uint64
	// Unknown: an earlier try of the append was not answered, and may have been stored.
	Unknown bool
}

// Error describes it.
func (m *Moved) Error() string { return fmt.Sprintf("the log ends at %d", m.Last) }

// Fence is the condition of an append. The newest message under a subject has a sequence.
type Fence struct {
	Subject string
	Last    uint64 // 0: there is none
}

// Message is one message of a stream.
type Message struct {
	Subject string
	Seq     uint64 // 0: there is no such message
	Data    []byte
}

// Stream is a stream of messages under subjects, which callers name without the stream's own
// prefix. It is safe for concurrent use.
type Stream struct {
	c      *conn.Conn
	name   string
	prefix string
	copies int
}

// New returns the stream of a name, which need not exist. A name has neither dots nor spaces.
func New(c *conn.Conn, name string) *Stream {
	return &Stream{c: c, name: name, prefix: name + ".", copies: c.Replicas()}
}

// Ensure makes the stream if it is not there.
func (s *Stream) Ensure(ctx context.Context) error {
	return s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: s.name, Subjects: []string{s.prefix + ">"}, Storage: jetstream.FileStorage, Replicas: s.copies,
			Discard: jetstream.DiscardNew, AllowDirect: true, MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		return err
	})
}

// Remake makes a stream again that was found gone, and may be under deletion yet. A server without copies answers that a
// stream is gone before it moves the stream's directory away. A stream of the same name that is made meanwhile loses its
// files with that. So this waits before and after, and makes the stream once more if its files are gone then.
func (s *Stream) Remake(ctx context.Context) error {
	if s.copies > 1 {
		return s.Ensure(ctx) // a server of a cluster carries it out after the deletion
	}
	retry.Sleep(ctx, deletedWithin/2)
	for range remakes {
		if err := s.Ensure(ctx); err != nil {
			return err
		}
		retry.Sleep(ctx, deletedWithin/2)
		if stored, err := s.stored(ctx); err != nil || stored {
			return err
		}
		if err := s.Destroy(ctx); err != nil {
			return err
		}
	}
	return bb.E(bb.Unavailable, "make again", s.name, "the namespace's server removes its files again and again").
		WithRemedy("see the warnings of the namespace server (nats:), and its disk")
}

// stored reports whether the stream is there with its directory. An update of its configuration, which does not change it,
// writes a file there.
func (s *Stream) stored(ctx context.Context) (is bool, err error) {
	err = s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		found, err := js.Stream(ctx, s.name)
		if err == nil {
			_, err = js.UpdateStream(ctx, found.CachedInfo().Config)
		}
		is = err == nil
		var api jetstream.JetStreamError
		if errors.Is(err, jetstream.ErrStreamNotFound) || errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == codeUpdate {
			return nil
		}
		return err
	})
	return is, err
}

// Destroy deletes the stream with all that it holds. It may be gone already.
func (s *Stream) Destroy(ctx context.Context) error {
	return s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		err := js.DeleteStream(ctx, s.name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
}

// Append stores a message under a subject and returns its sequence. It returns *Moved if the fence
// is not as expected. No two messages that are appended under one fence, with its own subject, may
// be equal, since that is how an append with a lost answer is recognised.
func (s *Stream) Append(ctx context.Context, subject string, data []byte, f Fence) (uint64, error) {
	header := nats.Header{hdrExpected: {strconv.FormatUint(f.Last, 10)}}
	if f.Subject != subject {
		header[hdrExpectedSubject] = []string{s.prefix + f.Subject}
	}
	lost := false
	for try := 0; ; try++ {
		seq, err := s.attempt(ctx, try, subject, data, header)
		switch {
		case err == nil:
			return seq, nil
		case errors.Is(err, conn.ErrRevision):
			var settled bool
			if seq, settled, err = s.settle(ctx, subject, data, f, lost); settled {
				return seq, err
			}
			if err == nil && s.copies <= 1 && try >= refusals {
				err = s.unreadable(fmt.Sprintf("the newest message under %s, which is above %d", f.Subject, f.Last))
			}
			if err == nil {
				retry.Pause(ctx, try)
				err = s.c.Wait(ctx)
			}
		default:
			lost = lost || errors.Is(err, conn.ErrUncertain)
			err = s.retry(ctx, try, err)
		}
		if err == nil && ctx.Err() != nil {
			err = conn.Wrap("append", s.name, context.Cause(ctx))
		}
		if err != nil && lost {
			err = fmt.Errorf("%w: %w", conn.ErrMaybeDone, err)
		}
		if err != nil {
			return 0, err
		}
	}
}

// attempt is publish that does not wait for long for an answer of a leader.
func (s *Stream) attempt(ctx context.Context, try int, subject string, data []byte, h nats.Header) (uint64, error) {
	once, cancel := s.once(ctx, try)
	defer cancel()
	seq, err := s.publish(once, subject, data, h)
	return seq, unanswered(ctx, once, err)
}

// once returns the context of a request, which may be sent again.
func (s *Stream) once(ctx context.Context, try int) (context.Context, context.CancelFunc) {
	if s.copies <= 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, min(patience<<min(try, 8), conn.AttemptTimeout))
}

// unanswered returns the error of a request whose own context may have ended.
func unanswered(ctx, once context.Context, err error) error {
	if err != nil && once.Err() != nil && ctx.Err() == nil {
		return conn.ErrUncertain
	}
	return err
}

func (s *Stream) publish(ctx context.Context, subject string, data []byte, h nats.Header) (uint64, error) {
	msg := &nats.Msg{Subject: s.prefix + subject, Data: data, Header: h}
	ack, err := s.c.Request(ctx, msg)
	if err != nil {
		return 0, err
	}
	return conn.ParseAck(ack.Data)
}

// settle finds out why an append was refused. An earlier try of it was stored, the fence has moved,
// or neither, since the refusal came from a server that does not lead any more, or since the server
// cannot read the newest message. A message under the fence's own subject can only be stored as the
// next one after the fence.
func (s *Stream) settle(ctx context.Context, subject string, data []byte, f Fence, lost bool) (seq uint64, settled bool, err error) {
	last, err := s.Last(ctx, f.Subject)
	if err != nil || last.Seq == f.Last {
		return 0, false, err
	}
	if last.Seq > f.Last && lost && f.Subject == subject {
		next, err := s.following(ctx, subject, f.Last+1)
		if err != nil {
			return 0, false, err
		}
		if bytes.Equal(next.Data, data) {
			return next.Seq, true, nil
		}
	}
	return 0, true, &Moved{Last: last.Seq, Unknown: lost}
}

// retry returns nil if a request that failed with err should be sent again.
func (s *Stream) retry(ctx context.Context, try int, err error) error {
	switch {
	case bb.KindOf(err) == bb.NoSpace: // no try has an answer until room is freed
		return err
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, conn.ErrUncertain):
		if found, ferr := s.there(ctx, try); ferr != nil {
			return ferr
		} else if !found {
			return ErrGone
		}
	case errors.Is(err, conn.ErrInProcess):
	case !errors.Is(err, conn.ErrNoServer):
		return err
	}
	retry.Pause(ctx, min(try, 5))
	return s.c.Wait(ctx)
}

// there is Exists of a stream that does not serve a request. If copies have no leader, nothing may answer. The next
// try finds the next leader soon, so the wait for this answer is short, and no answer counts as yes.
func (s *Stream) there(ctx context.Context, try int) (bool, error) {
	if s.copies <= 1 {
		return s.Exists(ctx)
	}
	if try%existsEvery != 0 {
		return true, nil
	}
	once, cancel := context.WithTimeout(ctx, existsWithin)
	defer cancel()
	found, err := s.Exists(once)
	if err != nil && once.Err() != nil && ctx.Err() == nil {
		s.c.Suspect("stream "+s.name, err, func(ctx context.Context) error {
			_, err := s.c.JetStream().Stream(ctx, s.name)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil
			}
			return err
		})
		return true, nil
	}
	return found, err
}

// Exists reports whether the server has the stream.
func (s *Stream) Exists(ctx context.Context) (bool, error) {
	found := true
	err := s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.Stream(ctx, s.name)
		if found = err == nil; errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
	return found, err
}

// Created returns when the stream was made.
func (s *Stream) Created(ctx context.Context) (at time.Time, found bool, err error) {
	err = s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		made, err := js.Stream(ctx, s.name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err == nil {
			at, found = made.CachedInfo().Created, true
		}
		return err
	})
	return at, found, err
}

// Unused reports whether the stream is there and nothing was ever stored in it.
func (s *Stream) Unused(ctx context.Context) (unused bool, err error) {
	err = s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		found, err := js.Stream(ctx, s.name)
		if unused = err == nil && found.CachedInfo().State.LastSeq == 0; errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		return err
	})
	return unused, err
}

// Names returns the names of the streams that begin with a prefix.
func Names(ctx context.Context, c *conn.Conn, prefix string) (found []string, err error) {
	err = c.Manage(ctx, "logs", prefix, func(ctx context.Context, js jetstream.JetStream) error {
		found = nil
		list := js.StreamNames(ctx)
		for name := range list.Name() {
			if strings.HasPrefix(name, prefix) {
				found = append(found, name)
			}
		}
		if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
			return err
		}
		return nil
	})
	return found, err
}

// Last returns the newest message under a subject, never an older one than was acknowledged to any
// client before the call. Where there are several copies, the one that answers may lack some. So
// its answer is confirmed by a message without meaning, fenced by its sequence, which only a leader
// stores that a majority of the copies follows.
func (s *Stream) Last(ctx context.Context, subject string) (Message, error) {
	return s.ask(ctx, func(ctx context.Context) (Message, error) {
		m, err := s.direct(ctx, map[string]any{"last_by_subj": s.prefix + subject})
		if err != nil || s.copies <= 1 {
			return m, err
		}
		_, err = s.publish(ctx, barrierSubject, []byte("-"), nats.Header{
			hdrExpected: {strconv.FormatUint(m.Seq, 10)}, hdrExpectedSubject: {s.prefix + subject},
		})
		return m, err
	})
}

// ask repeats a request until a copy that lacks nothing answers it.
func (s *Stream) ask(ctx context.Context, question func(context.Context) (Message, error)) (Message, error) {
	for try := 0; ; try++ {
		once, cancel := s.once(ctx, try)
		m, err := question(once)
		err = unanswered(ctx, once, err)
		cancel()
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, conn.ErrRevision):
			retry.Pause(ctx, try)
			err = s.c.Wait(ctx)
		default:
			err = s.retry(ctx, try, err)
		}
		if err == nil && ctx.Err() != nil {
			err = conn.Wrap("read", s.name, context.Cause(ctx))
		}
		if err != nil {
			return Message{}, err
		}
	}
}

func (s *Stream) direct(ctx context.Context, query map[string]any) (Message, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return Message{}, err
	}
	msg, err := s.c.Request(ctx, &nats.Msg{Subject: "$JS.API.DIRECT.GET." + s.name, Data: body})
	if err != nil {
		return Message{}, err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
	case "404":
		return Message{}, nil
	default:
		return Message{}, bb.E(bb.Internal, "read", s.name, "server status "+status)
	}
	return s.message(msg)
}

// message reads an answer to a direct get.
func (s *Stream) message(msg *nats.Msg) (Message, error) {
	seq, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
	subject, ok := strings.CutPrefix(msg.Header.Get("Nats-Subject"), s.prefix)
	if err != nil || !ok {
		return Message{}, bb.E(bb.Internal, "read", s.name, "the server's answer is malformed")
	}
	return Message{Subject: subject, Seq: seq, Data: msg.Data}, nil
}

// PurgeBelow drops the messages whose subjects match a filter and whose sequences are below
// one. It is repeated by the caller if it fails.
func (s *Stream) PurgeBelow(ctx context.Context, filter string, seq uint64) error {
	return s.c.Manage(ctx, "log", s.name, func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, s.name)
		if err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(s.prefix+filter), jetstream.WithPurgeSequence(seq))
	})
}
