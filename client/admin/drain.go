package admin

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Drain flushes a buffer and waits until everything in it is on the backing store, for at most
// timeout (0: without limit). It fails unless everything was saved. The report then names the rest.
// Progress, which may be nil, is called from time to time on the calling goroutine.
func Drain(ctx context.Context, c *client.Client, buffer string, timeout time.Duration, progress func(Progress)) (Report, error) {
	return DrainBelow(ctx, c, buffer, "", timeout, progress)
}

// DrainBelow is Drain of the file at a path, or of all that lies below a directory when it begins, and
// of no other dirty file. "" stands for the whole buffer. ErrUnsupported if a daemon is too old.
func DrainBelow(ctx context.Context, c *client.Client, buffer, path string, timeout time.Duration, progress func(Progress)) (Report, error) {
	return drain(ctx, c, &wire.Drain{Buffer: buffer, TimeoutNs: int64(timeout), Below: path}, progress)
}

// Overwrite is DrainBelow that also replaces files on the store, at the path and below it, that the
// buffer did not write: a Report's Conflicts. Only the buffer's owner may call it. A daemon that is
// too old replaces nothing, and reports them again. For the opposite, StageIn of such a file
// replaces the buffer's content with the store's.
func Overwrite(ctx context.Context, c *client.Client, buffer, path string, timeout time.Duration, progress func(Progress)) (Report, error) {
	return drain(ctx, c, &wire.Drain{Buffer: buffer, TimeoutNs: int64(timeout), Below: path, Overwrite: true}, progress)
}

func drain(ctx context.Context, c *client.Client, m *wire.Drain, progress func(Progress)) (Report, error) {
	const op = "drain"
	buffer, path, timeout := m.Buffer, m.Below, time.Duration(m.TimeoutNs)
	at := bb.Address{Buffer: buffer, Path: path}.String()
	clean, err := bb.CheckPath(op, buffer, path)
	if err != nil {
		return Report{}, err
	}
	if timeout < 0 {
		return Report{}, bb.E(bb.Invalid, op, at, fmt.Sprintf("the timeout %v is negative", timeout))
	}
	m.Key, m.Below = rand.Text(), clean
	r, err := work(ctx, c, wire.Type_TYPE_DRAIN, m, nil, progress)
	return r, bb.Wrap(op, at, r.complete(err))
}

// complete returns an error for a report of unfinished work, with its paths.
func (r *Report) complete(err error) error {
	if err != nil {
		return err
	}
	n := max(r.FailedTotal, int64(len(r.Failed)))
	if n == 0 {
		if err := r.unsaved(); err != nil || !r.TimedOut {
			return err
		}
		return bb.E(bb.Cancelled, "", "", "the timeout passed")
	}
	if len(r.Failed) == 0 {
		return bb.E(bb.Internal, "", "", bb.Count(n, "file")+" failed")
	}
	first := r.Failed[0]
	failed := bb.E(first.Kind, "", "", bb.FailedFiles(n, first.Path, first.Reason))
	if first.Kind == bb.Lost {
		return failed.WithRemedy("write lost files again, or remove them: bbctl lost lists them")
	}
	return failed
}

// unsaved returns an error for files that a drain left out on purpose, since they are not on the store either.
func (r *Report) unsaved() error {
	if r.ExcludedTotal == 0 && r.OpenTotal == 0 {
		return nil
	}
	return bb.E(bb.Busy, "", "", fmt.Sprintf("all else is saved, but %s held back by a keep pattern and %s open for writing",
		bb.Count(r.ExcludedTotal, "name is", "names are"), bb.Count(r.OpenTotal, "file is", "files are"))).
		WithRemedy("rename or remove the former, close the latter")
}

// StageIn copies a file or a tree from a store into a buffer, without files that are there
// already and equal. It fails unless everything was copied.
func StageIn(ctx context.Context, c *client.Client, r StageRequest, progress func(Progress)) (Report, error) {
	return stage(ctx, c, "stage-in", wire.Type_TYPE_STAGE_IN, r, progress)
}

// StageOut copies a file or a tree of a buffer to a store.
func StageOut(ctx context.Context, c *client.Client, r StageRequest, progress func(Progress)) (Report, error) {
	return stage(ctx, c, "stage-out", wire.Type_TYPE_STAGE_OUT, r, progress)
}

func stage(ctx context.Context, c *client.Client, op string, typ wire.Type, r StageRequest, progress func(Progress)) (Report, error) {
	path, err := bb.CheckPath(op, r.Buffer, r.Path)
	if err != nil {
		return Report{}, err
	}
	if _, err := bb.ParseBacking(r.URL); err != nil {
		return Report{}, bb.Wrap(op, r.URL, err)
	}
	if r.Parallel < 0 {
		return Report{}, bb.E(bb.Invalid, op, r.URL, fmt.Sprintf("the number of files at the same time is %d", r.Parallel))
	}
	m := &wire.Stage{Buffer: r.Buffer, Path: path, Url: r.URL, DryRun: r.DryRun, Parallel: uint32(r.Parallel), Key: rand.Text()}
	report, err := work(ctx, c, typ, m, nil, progress)
	return report, bb.Wrap(op, bb.Address{Buffer: r.Buffer, Path: path}.String(), report.complete(err))
}
