package client

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// work carries out long work that may safely be done again from the beginning.
func (c *Client) work(ctx context.Context, typ wire.Type, m proto.Message, data []byte, progress func(Progress)) (Report, error) {
	var last Report
	err := c.conn.Repeat(ctx, func() error {
		last = Report{}
		return c.conn.Stream(ctx, typ, m, data, func(message, _ []byte) error {
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
