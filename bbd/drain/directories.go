package drain

import (
	"context"
	"errors"
	"os"

	"forebay/bbd/access"
	"forebay/bbd/flushrule"
	"forebay/bbd/transfer"
	"forebay/bbd/walk"
	"forebay/flusher/backing"
	"forebay/flusher/plan"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A store's directories come with the files in them. The rest is done here: empty
// directories, and the modes and times of all. A directory's time is set after its
// contents, which change it.

// saveDirs makes the directories at the path and below it on the buffer's store, with
// their modes, times and extended attributes. It returns those that could not be made. Where foreign files are kept,
// present directories stay as they are.
func (c scope) saveDirs(ctx context.Context) (*savedDirs, error) {
	for try := 1; ; try++ {
		d := &savedDirs{c: c, steps: c.Rules().Look()}
		err := c.Walk(ctx, access.Daemon(), "drain", c.below, walk.Visitor{
			Enter: func(p string, e *bb.Entry) error { return d.make(ctx, p, e) },
			Leave: func(p string, e *bb.Entry, held int) error { return d.save(ctx, p, e, held) },
			File:  d.count,
		})
		switch {
		case errors.Is(err, errEnough):
			return d, nil
		case bb.KindOf(err) != bb.NotFound:
			return d, err
		case try == walkTries: // directories went while their names were read, or all did
			return d, nil
		}
	}
}

// errEnough ends a walk of directories whose store does not take any.
var errEnough = errors.New("the store does not answer")

// savedDirs is one walk of saveDirs.
type savedDirs struct {
	c      scope
	steps  *flushrule.Look // a series is as large as the buffer, so it is not read for each directory
	to     backing.Store   // nil until there is a directory
	failed []*wire.Failure

	nodeLocal int64 // FIFOs and sockets
}

// count counts an entry that is never flushed.
func (d *savedDirs) count(_ string, e *bb.Entry) error {
	if e.Type == bb.TypeFIFO || e.Type == bb.TypeSocket {
		d.nodeLocal++
	}
	return nil
}

// make makes a directory before those below it, which would make it as one of theirs.
func (d *savedDirs) make(ctx context.Context, p string, e *bb.Entry) error {
	err := d.put(ctx, p, e, backing.DirOptions{Keep: true, Holds: true})
	if bb.KindOf(err) == bb.Unavailable || bb.KindOf(err) == bb.Cancelled {
		return d.note(ctx, p, err)
	}
	return nil // else save returns the error
}

// save sets a directory's mode and time after those below it.
func (d *savedDirs) save(ctx context.Context, p string, e *bb.Entry, held int) error {
	keep := d.c.Spec().Existing.Keeps()
	return d.note(ctx, p, d.put(ctx, p, e, backing.DirOptions{Keep: keep, Holds: held > 0}))
}

func (d *savedDirs) put(ctx context.Context, p string, e *bb.Entry, opts backing.DirOptions) (err error) {
	if _, excluded := plan.Excluded(d.c.Spec().NoFlush, p+"/"); excluded || p == "" {
		return nil
	}
	if superseded, err := d.steps.Superseded(ctx, []string{p + "/"}); err != nil || len(superseded) > 0 {
		return err
	}
	if d.to == nil {
		if d.to, err = d.c.s.o.Store(ctx, d.c.name); err != nil {
			return err
		}
	}
	opts.Attrs = *backing.AttrsOf(e)
	if os.Geteuid() != 0 {
		opts.Attrs.Mode |= 0o700 // the daemon goes on writing there
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

// addDirs makes a drain save directories too, and adds those that it could not, and how many entries no drain saves.
func (c scope) addDirs(ctx context.Context, answer *wire.Progress) error {
	dirs, err := c.saveDirs(ctx)
	if err != nil {
		return err
	}
	failed := dirs.failed
	answer.NodeLocalTotal = dirs.nodeLocal
	answer.FailedTotal += int64(len(failed))
	answer.Failed = append(answer.Failed, failed[:min(len(failed), max(0, transfer.MaxNamed-len(answer.Failed)))]...)
	return nil
}
