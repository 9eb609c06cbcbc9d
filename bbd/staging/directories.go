package staging

import (
	"context"
	"time"

	"forebay/bbd/walk"
	"forebay/flusher/backing"
	"forebay/flusher/stage"
	"forebay/internal/bb"
)

// beginOut makes the directories of a tree that is staged out, so that files can be put into
// them, and returns how many there are, and those in whose place something else lies.
func (s *job) beginOut(ctx context.Context, source, name string, dry bool) (dirs int, odd []stage.Failure, err error) {
	err = s.directories(ctx, source, walk.Visitor{Enter: func(p string, e *bb.Entry) error {
		if p == "" {
			return nil
		}
		if dirs++; dry {
			return nil
		}
		opts := s.dirOptions(e, 1)
		opts.Attrs.Mode |= ownerMay
		opts.Attrs.MTime = time.Time{}
		return s.makeDir(ctx, source, name, p, opts, &odd)
	}})
	return dirs, odd, err
}

// endOut sets the modes and times of the directories of a tree that was staged out. Those in
// whose place something else lies were found at the beginning.
func (s *job) endOut(ctx context.Context, source, name string) error {
	var odd []stage.Failure
	return s.directories(ctx, source, walk.Visitor{Leave: func(p string, e *bb.Entry, held int) error {
		if p == "" {
			return nil
		}
		return s.makeDir(ctx, source, name, p, s.dirOptions(e, held), &odd)
	}})
}

// directories visits a source, if it is a directory.
func (s *job) directories(ctx context.Context, source string, visit walk.Visitor) error {
	return s.b.Walk(ctx, s.cred, "stage-out", source, visit)
}

// dirOptions are those of a directory that holds so many entries. One that is there
// keeps its mode and time if the user may not change those in the buffer either.
func (s *job) dirOptions(e *bb.Entry, held int) backing.DirOptions {
	return backing.DirOptions{Attrs: *backing.AttrsOf(e), Keep: !s.cred.Owns(e.UID), Holds: held > 0}
}

// makeDir makes a directory of a tree, or adds it to odd if something else lies in its place.
func (s *job) makeDir(ctx context.Context, source, name, p string, opts backing.DirOptions, odd *[]stage.Failure) error {
	at := stage.Under(source, name, p)
	if at == "" {
		return nil // the store's own root
	}
	err := s.remote.MakeDir(ctx, at, opts)
	if bb.KindOf(err) == bb.Exists || bb.KindOf(err) == bb.NotDirectory {
		*odd = append(*odd, stage.Failure{Name: p, Err: err})
		return nil
	}
	return err
}

// stageOutHere stages out without a job.
func (s *job) stageOutHere(ctx context.Context, source, name string, opts stage.Options) (stage.Report, error) {
	dirs, odd, err := s.beginOut(ctx, source, name, opts.DryRun)
	if err != nil {
		return stage.Report{}, err
	}
	report, err := stage.Out(ctx, s, source, s.remote, name, opts)
	if dirs > 0 && report.Files == 0 && bb.KindOf(err) == bb.NotFound {
		err = nil // empty directories
	}
	if !opts.DryRun && ctx.Err() == nil {
		if ended := s.endOut(ctx, source, name); err == nil {
			err = ended
		}
	}
	report = withOdd(report, odd)
	if err == nil {
		err = report.Err("stage-out")
	}
	return report, err
}
