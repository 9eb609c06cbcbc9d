package client

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/internal/wire/mux"
)

// stream carries out one request that has many replies, or takes long, on a connection
// of its own: a consumer that is slow, or leaves, holds up nobody else then, and the
// daemon notices at once. Each is called for every reply, on this goroutine; its error
// ends the request. A connection that ends before the last reply has broken.
func (c *Client) stream(ctx context.Context, typ wire.Type, m proto.Message, data []byte, each func(message, data []byte) error) error {
	s, _, err := c.dialer.redial(ctx, time.Now().Add(c.o.RetryFor))
	if err != nil {
		return err
	}
	defer s.fail(net.ErrClosed)
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	err = s.follow(typ, m, data, each)
	if err != nil && ctx.Err() != nil {
		return cancelled(ctx)
	}
	return err
}

// follow sends a request on a session that nobody else uses and reads its replies.
func (s *session) follow(typ wire.Type, m proto.Message, data []byte, each func(message, data []byte) error) error {
	c := &call{done: make(chan struct{})}
	err := s.enter(context.Background(), c, 0, mux.Frame{Type: typ, Message: m, Data: data})
	if b := (*brokenError)(nil); errors.As(err, &b) {
		return &brokenError{Reason: b.Reason, Sent: true}
	}
	if err != nil {
		return err
	}
	for {
		head, message, err := s.in.Next()
		if err != nil {
			return &brokenError{Reason: err, Sent: true}
		}
		if head.Has(wire.FlagError) {
			return wire.DecodeReply(head, message, nil)
		}
		if head.DataLength > 0 {
			message = append([]byte(nil), message...) // ReadData may use the buffer that it lies in
			data = make([]byte, head.DataLength)
			if err := s.in.ReadData(data); err != nil {
				return &brokenError{Reason: err, Sent: true}
			}
		} else {
			data = nil
		}
		if err := each(message, data); err != nil || !head.Has(wire.FlagMore) {
			return err
		}
	}
}

// work carries out long work that may safely be done again from the beginning.
func (c *Client) work(ctx context.Context, typ wire.Type, m proto.Message, data []byte, progress func(Progress)) (Report, error) {
	var last Report
	err := c.retry(ctx, func(*session) error {
		last = Report{}
		return c.stream(ctx, typ, m, data, func(message, _ []byte) error {
			var p wire.Progress
			if err := proto.Unmarshal(message, &p); err != nil {
				return &bb.Error{Kind: bb.Internal, Op: "progress", Err: err}
			}
			last.update(&p)
			if progress != nil {
				progress(last.Progress)
			}
			return nil
		})
	})
	return last, err
}

// update takes over what the newest message says.
func (r *Report) update(p *wire.Progress) {
	r.Progress = Progress{
		FilesTotal: p.FilesTotal, FilesDone: p.FilesDone, FilesSkipped: p.FilesSkipped, Job: p.Job,
		BytesTotal: p.BytesTotal, BytesDone: p.BytesDone, BytesNotCopied: p.BytesNotCopied, LastError: p.LastError, Names: p.Names,
	}
	if !p.Done && len(p.Failed) == 0 {
		return
	}
	r.Held, r.HeldTotal, r.Open, r.OpenTotal = p.Held, p.HeldTotal, p.Open, p.OpenTotal
	r.FailedTotal, r.TimedOut = max(r.FailedTotal, p.FailedTotal), p.TimedOut
	for _, f := range p.Failed {
		r.Failed = append(r.Failed, Failure{Path: f.Path, Kind: Kind(f.Kind), Reason: f.Reason, Bytes: f.Bytes})
	}
}
