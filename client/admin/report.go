package admin

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Progress is the progress of long work.
type Progress struct {
	FilesTotal   int64
	FilesDone    int64
	FilesSkipped int64 // already there and equal
	BytesTotal   int64
	BytesDone    int64
	// BytesNotCopied are the part of BytesDone of files that were skipped or have failed. An older
	// daemon reports 0.
	BytesNotCopied int64
	LastError      string   // the newest passing failure of the store. The work goes on
	Names          []string // of a dry run: files to copy, those new since the last call
	Job            string   // that goes on when the context ends; "": the work ends with it
}

// Report is the outcome of long work. It is valid beside an error too. It has the amount done, and
// the paths of the rest.
type Report struct {
	Progress
	Failed        []Failure // failed files, at most as many as the daemon names
	FailedTotal   int64
	Excluded      []string // of a drain: names held back by a keep pattern, at most 1,000
	ExcludedTotal int64
	Open          []string // of a drain: names still open for writing, at most 1,000
	OpenTotal     int64
	// Superseded are at most 1,000 steps that a drain has not flushed, and none will, since a newer one of their
	// flush rule is complete. They are no failures.
	Superseded      []string
	SupersededTotal int64
	NodeLocalTotal  int64 // of a drain: FIFOs and sockets, which are names in the buffer alone. They are no failures
	TimedOut        bool  // of a drain: its timeout passed before all was saved
}

// Conflicts returns the failures of a drain for which the store has a file that the buffer did not
// write, and Existing keeps it. The bytes stay in the buffer until Client.Overwrite replaces that
// file, StageIn takes its content, or either of the two gets another name.
func (r *Report) Conflicts() (list []Failure) {
	for _, f := range r.Failed {
		if f.Kind == bb.Exists {
			list = append(list, f)
		}
	}
	return list
}

// Failure names one file that could not be done.
type Failure struct {
	Path   string
	Kind   bb.Kind
	Reason string
	Bytes  int64
}

// StageRequest is a copy between a store and a buffer.
type StageRequest struct {
	Buffer   string
	Path     string // in the buffer; "" is the root
	URL      string // file:///path or s3://bucket/prefix
	DryRun   bool   // only name the files to copy
	Parallel int    // files at the same time; 0: the daemon chooses
}

// work carries out long work that may safely be done again from the beginning.
func work(ctx context.Context, c *client.Client, typ wire.Type, m proto.Message, data []byte, progress func(Progress)) (Report, error) {
	var last Report
	err := of(c).Repeat(ctx, func() error {
		last = Report{}
		return of(c).Stream(ctx, typ, m, data, func(message, _ []byte) error {
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

// update adopts the figures of the newest message.
func (r *Report) update(p *wire.Progress) {
	r.Progress = Progress{
		FilesTotal: p.FilesTotal, FilesDone: p.FilesDone, FilesSkipped: p.FilesSkipped, Job: p.Job,
		BytesTotal: p.BytesTotal, BytesDone: p.BytesDone, BytesNotCopied: p.BytesNotCopied, LastError: p.LastError, Names: p.Names,
	}
	if !p.Done && len(p.Failed) == 0 {
		return
	}
	r.Excluded, r.ExcludedTotal, r.Open, r.OpenTotal = p.Held, p.HeldTotal, p.Open, p.OpenTotal
	r.Superseded, r.SupersededTotal, r.NodeLocalTotal = p.Superseded, p.SupersededTotal, p.NodeLocalTotal
	r.FailedTotal, r.TimedOut = max(r.FailedTotal, p.FailedTotal), p.TimedOut
	for _, f := range p.Failed {
		r.Failed = append(r.Failed, Failure{Path: f.Path, Kind: bb.Kind(f.Kind), Reason: f.Reason, Bytes: f.Bytes})
	}
}
