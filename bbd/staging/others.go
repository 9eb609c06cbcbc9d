package staging

import (
	"context"
	"io/fs"
	"path"
	"strings"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/transfer"
	"forebay/flusher/backing"
	"forebay/flusher/stage"
	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/namespace"
	"forebay/meta/ops"
)

// others calls dir for each directory of a source, with the path that it has in the buffer,
// and odd for objects that a buffer cannot hold.
func (s *job) others(ctx context.Context, name, target string, dir func(string, backing.Other) error, odd func(stage.Failure) error) error {
	below := strings.TrimSuffix(name, "/")
	return s.remote.Others(ctx, below, func(o backing.Other) error {
		at := path.Join(target, strings.TrimPrefix(strings.TrimPrefix(o.Name, below), "/"))
		if o.Name == "." || at == "." {
			at = target
		}
		if o.Mode.IsDir() {
			if _, err := bb.CleanPath(at); err != nil {
				return odd(stage.Failure{Name: at, Err: bb.Wrap("stage-in", o.Name, err)})
			}
			return dir(at, o)
		}
		return odd(stage.Failure{Name: at, Err: bb.E(bb.Unsupported, "stage-in", o.Name, oddReason(o.Mode))})
	})
}

// oddReason returns why an object of a store cannot be held.
func oddReason(mode fs.FileMode) string {
	switch mode.Type() {
	case fs.ModeNamedPipe:
		return "it is a pipe, which is not copied"
	case fs.ModeSocket:
		return "it is a socket, which is not copied"
	}
	return "it is a device, which a buffer cannot hold"
}

// ownerMay are the rights that a directory has while its files are staged in.
const ownerMay = 0o700

// begin makes the directories of a source, and returns how many there are and the objects that
// cannot be held.
func (s *job) begin(ctx context.Context, name, target string, dry bool) (dirs int, odd []stage.Failure, err error) {
	err = s.others(ctx, name, target, func(at string, o backing.Other) error {
		dirs++
		if dry || at == "" {
			return nil
		}
		if err := s.makeDirs(ctx, path.Dir(at)); err != nil {
			return err
		}
		err := s.b.MakeDir(ctx, s.cred, at, uint32(o.Mode.Perm()|ownerMay))
		if bb.KindOf(err) == bb.Exists {
			err = nil
			var e bb.Entry
			if e, err = s.b.Lookup(ctx, s.cred, "stage-in", at); err == nil && !e.IsDir() {
				odd = append(odd, stage.Failure{Name: at, Err: bb.E(bb.Exists, "stage-in", s.address(at), "a file lies where a directory should")})
				return nil
			}
			if err == nil && s.cred.Owns(e.UID) {
				err = s.keep(ctx, at, e.Mode|ownerMay, e.MTime, "")
			}
		}
		if err == nil {
			s.made.Store(at, nil)
		}
		return err
	}, func(f stage.Failure) error {
		odd = append(odd, f)
		return nil
	})
	return dirs, odd, err
}

// end sets the modes and times of the directories of a source, when their files are there.
// Those of other users stay as they are. An older daemon's plan has not made empty ones.
func (s *job) end(ctx context.Context, name, target string) error {
	return s.others(ctx, name, target, func(at string, o backing.Other) error {
		if at == "" || o.Bare {
			return nil
		}
		e, err := s.b.Lookup(ctx, s.cred, "stage-in", at)
		if bb.KindOf(err) == bb.NotFound || err == nil && (!e.IsDir() || !s.cred.Owns(e.UID)) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.keep(ctx, at, o.Mode, o.MTime, o.Xattrs)
	}, func(stage.Failure) error { return nil })
}

// Keep sets a file's mode and time to the object's, for stores that have such things, and adds its extended attributes.
func (s *job) Keep(ctx context.Context, target string, o backing.Object) error {
	if !o.HasMode {
		return nil
	}
	return s.keep(ctx, target, o.Mode, o.MTime, o.Xattrs)
}

// keepMode is Keep of a file that has the extended attributes.
func (s *job) keepMode(ctx context.Context, target string, o backing.Object) error {
	o.Xattrs = ""
	return s.Keep(ctx, target, o)
}

// keep sets a mode and a time, if they are others, and adds extended attributes.
func (s *job) keep(ctx context.Context, at string, mode fs.FileMode, when time.Time, xattrs xattr.List) error {
	e, err := s.b.Lookup(ctx, s.cred, "stage-in", at)
	if err != nil {
		return err
	}
	mode, xattrs = mode.Perm(), xattrs.Without(xattr.List(e.Xattrs))
	same := e.Mode.Perm() == mode && (when.IsZero() || e.MTime.Equal(when))
	if same && xattrs == "" {
		return nil
	}
	if !s.cred.Owns(e.UID) {
		return access.Denied("stage-in", s.address(at), "change the attributes of another user's file")
	}
	if xattrs != "" {
		if err := s.b.AddXattrs(ctx, s.cred, "stage-in", at, xattrs); err != nil || same {
			return err
		}
	}
	attr := namespace.Attr{Mode: &mode}
	if !when.IsZero() {
		attr.MTime = &when
	}
	return s.b.SetAttr(ctx, s.cred, "stage-in", at, attr)
}

// stageInHere stages in without a job.
func (s *job) stageInHere(ctx context.Context, name, target string, opts stage.InOptions) (stage.Report, error) {
	dirs, odd, err := s.begin(ctx, name, target, opts.DryRun)
	if err != nil {
		return stage.Report{}, err
	}
	if only := dirs == 0 && len(odd) > 0; only {
		return withOdd(stage.Report{}, odd), odd[0].Err
	}
	report, err := stage.In(ctx, s.remote, name, s, target, opts)
	if dirs > 0 && report.Files == 0 && bb.KindOf(err) == bb.NotFound {
		err = nil // empty directories
	}
	if !opts.DryRun && ctx.Err() == nil {
		if ended := s.end(ctx, name, target); err == nil {
			err = ended
		}
	}
	report = withOdd(report, odd)
	if err == nil {
		err = report.Err("stage-in")
	}
	return report, err
}

// withOdd adds the objects that cannot be held to a report.
func withOdd(r stage.Report, odd []stage.Failure) stage.Report {
	n := int64(len(odd))
	r.Files, r.FilesDone, r.Failed = r.Files+n, r.FilesDone+n, r.Failed+n
	r.Failures = append(r.Failures, odd...)
	return r
}

// tallyOfOdd is the result of a task that found objects that cannot be held.
func tallyOfOdd(odd []stage.Failure) (t ops.Tally) {
	t.FailedTotal = int64(len(odd))
	for _, f := range odd[:min(len(odd), transfer.MaxNamed)] {
		t.Failed = append(t.Failed, ops.Failure{Path: f.Name, Kind: bb.KindOf(f.Err), Reason: f.Err.Error(), Bytes: f.Bytes})
	}
	return t
}
