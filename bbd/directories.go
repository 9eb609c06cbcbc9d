package bbd

import (
	"context"
	"errors"
	"os"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/transfer"
	"forebay/flusher/backing"
	"forebay/flusher/plan"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A store's directories come with the files in them. What files do not bring is done here: empty
// directories, and the modes and times of all. A directory gets its time after what lies in it,
// which changes that.

// beginOut makes the directories of a tree that is staged out, so that files can be put into
// them, and returns how many there are, and those in whose place something else lies.
func (s *staging) beginOut(ctx context.Context, source, name string, dry bool) (dirs int, odd []stage.Failure, err error) {
	err = s.directories(ctx, source, visitor{enter: func(p string, e *bb.Entry) error {
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

// endOut gives the directories of a tree that was staged out their modes and times. Those in
// whose place something else lies are known from the beginning.
func (s *staging) endOut(ctx context.Context, source, name string) error {
	var odd []stage.Failure
	return s.directories(ctx, source, visitor{leave: func(p string, e *bb.Entry, held int) error {
		if p == "" {
			return nil
		}
		return s.makeDir(ctx, source, name, p, s.dirOptions(e, held), &odd)
	}})
}

// directories visits a source, if it is a directory.
func (s *staging) directories(ctx context.Context, source string, visit visitor) error {
	e, v, err := s.b.look(ctx, s.cred, "stage-out", source)
	if err != nil || !e.IsDir() {
		return err
	}
	return s.b.walkTree(ctx, s.cred, &e, v, source, visit)
}

// dirOptions are those of a directory that holds so many entries. One that is there
// keeps its mode and time if the user may not change those in the buffer either.
func (s *staging) dirOptions(e *bb.Entry, held int) backing.DirOptions {
	return backing.DirOptions{Attrs: *attrsOf(e), Keep: !s.cred.Owns(e.UID), Holds: held > 0}
}

// makeDir makes a directory of a tree, or adds it to odd if something else lies in its place.
func (s *staging) makeDir(ctx context.Context, source, name, p string, opts backing.DirOptions, odd *[]stage.Failure) error {
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
func (s *staging) stageOutHere(ctx context.Context, source, name string, opts stage.Options) (stage.Report, error) {
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

// saveDirs makes the directories at a path and below it on the buffer's store, and gives them
// their modes and times. It returns those that could not be made. Where foreign files are kept,
// directories that are there stay as they are.
func (b *buffer) saveDirs(ctx context.Context, below string) ([]*wire.Failure, error) {
	system := access.Caller{System: true}
	for try := 1; ; try++ {
		d := &savedDirs{b: b}
		e, v, err := b.look(ctx, system, "drain", below)
		if err == nil && e.IsDir() {
			err = b.walkTree(ctx, system, &e, v, below, visitor{
				enter: func(p string, e *bb.Entry) error { return d.make(ctx, p, e) },
				leave: func(p string, e *bb.Entry, held int) error { return d.save(ctx, p, e, held) },
			})
		}
		switch {
		case errors.Is(err, errEnough):
			return d.failed, nil
		case bb.KindOf(err) != bb.NotFound:
			return d.failed, err
		case try == walkTries: // directories went while their names were read, or all did
			return d.failed, nil
		}
	}
}

// errEnough ends a walk of directories whose store does not take any.
var errEnough = errors.New("the store does not answer")

// savedDirs is one walk of saveDirs.
type savedDirs struct {
	b      *buffer
	to     backing.Store // nil until there is a directory
	failed []*wire.Failure
}

// make makes a directory before those below it, which would make it as one of theirs.
func (d *savedDirs) make(ctx context.Context, p string, e *bb.Entry) error {
	err := d.put(ctx, p, e, backing.DirOptions{Keep: true, Holds: true})
	if bb.KindOf(err) == bb.Unavailable || bb.KindOf(err) == bb.Cancelled {
		return d.note(ctx, p, err)
	}
	return nil // else save says it
}

// save gives a directory its mode and time after those below it.
func (d *savedDirs) save(ctx context.Context, p string, e *bb.Entry, held int) error {
	keep := d.b.Spec().Existing.Keeps()
	return d.note(ctx, p, d.put(ctx, p, e, backing.DirOptions{Keep: keep, Holds: held > 0}))
}

func (d *savedDirs) put(ctx context.Context, p string, e *bb.Entry, opts backing.DirOptions) (err error) {
	if _, kept := plan.Kept(d.b.Spec().Keep, p+"/"); kept || p == "" {
		return nil
	}
	if d.to == nil {
		if d.to, err = d.b.d.stores.Get(ctx, d.b.name); err != nil {
			return err
		}
	}
	opts.Attrs = *attrsOf(e)
	if os.Geteuid() != 0 {
		opts.Attrs.Mode |= ownerMay // the daemon goes on writing there
	}
	return d.to.MakeDir(ctx, p, opts)
}

// note adds a failure, and ends the walk if others would follow.
func (d *savedDirs) note(ctx context.Context, p string, err error) error {
	kind := bb.KindOf(err)
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	d.failed = append(d.failed, &wire.Failure{Path: p, Kind: uint32(kind), Reason: err.Error()})
	if kind == bb.Unavailable {
		return errEnough
	}
	return nil
}

// addDirs makes a drain save directories too, and adds those that it could not.
func (d drained) addDirs(ctx context.Context, answer *wire.Progress) error {
	failed, err := d.b.saveDirs(ctx, d.below)
	if err != nil {
		return err
	}
	answer.FailedTotal += int64(len(failed))
	answer.Failed = append(answer.Failed, failed[:min(len(failed), max(0, transfer.MaxNamed-len(answer.Failed)))]...)
	return nil
}
