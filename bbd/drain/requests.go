package drain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/transfer"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Drain flushes a buffer on all daemons, waits, and reports the files that could not be saved.
func (s *Service) Drain(ctx context.Context, r call.Request, m *wire.Drain) (proto.Message, error) {
	c, err := s.scopeFor(ctx, r, m)
	if err != nil {
		return nil, err
	}
	timed := ctx // ends when the drain's time is over. ctx ends when its caller stops waiting
	if m.TimeoutNs > 0 {
		var cancel context.CancelFunc
		timed, cancel = context.WithTimeout(ctx, time.Duration(m.TimeoutNs))
		defer cancel()
	}
	if !m.Local {
		if err := c.materialize(timed); err != nil {
			return nil, bb.Wrap("drain", c.address(c.below), err)
		}
	}
	var (
		answer *wire.Progress
		left   rest
	)
	switch {
	case m.Local:
		answer, err = c.share(timed, m, transfer.ProgressTo(r))
	case s.o.Cluster == nil:
		answer, left, err = c.alone(ctx, timed, r, m)
	default:
		answer, left, err = c.everywhere(ctx, timed, r, m)
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, bb.Wrap("drain", c.address(c.below), err)
	}
	answer.TimedOut = !transfer.Saved(answer) && errors.Is(timed.Err(), context.DeadlineExceeded)
	if m.Local {
		return answer, nil
	}
	if err := c.finish(timed, answer, left); err != nil {
		return nil, err
	}
	return answer, nil
}

// scopeFor returns the scope of a request, if its caller may drain that.
func (s *Service) scopeFor(ctx context.Context, r call.Request, m *wire.Drain) (scope, error) {
	b, err := s.o.Enter(ctx, r, "drain", m.Buffer)
	if err != nil {
		return scope{}, err
	}
	spec, c := b.Spec(), s.scope(b, "")
	if spec.Backing == "" {
		return scope{}, bb.E(bb.Invalid, "drain", c.address(""), "the buffer has no backing store").WithRemedy("use bbctl stage-out")
	}
	if m.Below, err = bb.CleanPath(m.Below); err != nil {
		return scope{}, bb.Wrap("drain", m.Below, err)
	}
	if c.below = m.Below; m.Overwrite && !r.Caller().Owns(spec.UID) {
		return scope{}, access.Denied("drain", c.address(m.Below), "replace files on this buffer's store")
	}
	return c, nil
}

// finish completes the store after files have been flushed: renames and removals,
// directories, and the receipt. It adds lost files, and those that could not be put there, to the answer.
func (c scope) finish(timed context.Context, answer *wire.Progress, left rest) error {
	flushed := transfer.Saved(answer)
	if flushed {
		if err := c.carriedOut(timed); err != nil {
			return bb.Wrap("drain", c.address(c.below), err)
		}
	}
	if err := c.addDirs(timed, answer); err != nil && (flushed || timed.Err() == nil) {
		return bb.Wrap("drain", c.address(c.below), err)
	}
	flushed = transfer.Saved(answer)
	left.addLost(answer)
	left.addSuperseded(answer)
	if c.below != "" || !flushed {
		return nil
	}
	c.publishSuperseded(left.superseded)
	if transfer.Saved(answer) {
		c.s.o.Emit(bb.Event{Kind: bb.EventDrained, Buffer: c.name, Bytes: answer.BytesDone})
	}
	if c.Spec().Receipt { // also where files are lost, since it proves the store's content of the others
		if err := c.keepReceipt(timed); err != nil {
			return bb.Wrap("receipt", c.address(""), err)
		}
	}
	return nil
}

// publishSuperseded publishes which steps a drain has left out.
func (c scope) publishSuperseded(steps map[string]string) {
	for _, step := range slices.Sorted(maps.Keys(steps)) {
		c.s.o.Emit(bb.Event{Kind: bb.EventSuperseded, Buffer: c.name, Path: step, Reason: "a drain did not flush it: " + steps[step] + " is complete"})
	}
}

// alone flushes at a daemon that is alone, until timed ends. The namespace decides about a whole
// buffer, so a file that is closed and not yet queued is waited for too.
func (c scope) alone(ctx, timed context.Context, r call.Request, m *wire.Drain) (*wire.Progress, rest, error) {
	steps, err := c.Rules().Drain(timed, c.below) // from the first check to the last
	if err != nil {
		return nil, rest{}, err
	}
	defer steps.End()
	p := transfer.ProgressTo(r)
	answer, err := c.share(timed, m, p)
	if err != nil {
		return nil, rest{}, err
	}
	left, err := c.rest(ctx)
	if err != nil || c.below != "" || !transfer.Saved(answer) || len(left.dirty) == 0 {
		return answer, left, err
	}
	again, err := c.flushFiles(timed, steps, p)
	if err != nil {
		return nil, rest{}, err
	}
	again.FilesTotal, again.FilesDone = again.FilesTotal+answer.FilesTotal, again.FilesDone+answer.FilesDone
	again.BytesTotal, again.BytesDone = again.BytesTotal+answer.BytesTotal, again.BytesDone+answer.BytesDone
	left, err = c.rest(ctx)
	return again, left, err
}

// Materialize ends a buffer's transactions that are decided.
func (s *Service) Materialize(ctx context.Context, b Buffer) error {
	return s.scope(b, "").materialize(ctx)
}

// Finish completes the store after all files of a buffer were flushed by their daemons. It
// waits for renames and removals no longer than patience. bb.Busy if a file is dirty.
func (s *Service) Finish(ctx context.Context, b Buffer, patience time.Duration) error {
	c := s.scope(b, "")
	left, err := c.rest(ctx) // lost files are reported elsewhere
	if err != nil {
		return err
	}
	c.publishSuperseded(left.superseded)
	for _, path := range left.dirty {
		return bb.E(bb.Busy, "drain", c.address(path), "it went from node to node meanwhile")
	}
	// A directory without files is no data. That the store refuses it does not hold up the end.
	if dirs, err := c.saveDirs(ctx); err != nil || len(dirs.failed) > 0 {
		s.o.Log.Warn("not all directories are on the store", "buffer", c.name, "failed", len(dirs.failed), "err", err)
	}
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.carriedOut(brief); err != nil {
		return err
	}
	if c.Spec().Receipt {
		return c.keepReceipt(ctx)
	}
	return nil
}
