package copying

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"forebay/client"
	"forebay/cmd/bbctl/app"
)

// transfer is one put or get. Files are copied by several workers.
type transfer struct {
	*app.Several
	a      *app.App
	buffer *client.Buffer
	group  errgroup.Group
	ctx    context.Context
	bar    *app.Progress
	bytes  atomic.Int64
	total  atomic.Int64
	files  atomic.Int64
	found  atomic.Int64       // files to copy
	mode   client.OpenOptions // how targets are opened
	dryRun bool               // only list the files to copy
	filter *filter            // of trees
	limit  *rate.Limiter      // of bytes; nil: none
	dirs   []func() error     // set modes and times of directories, once their entries are there
}

// ownerMay are the rights that a directory has while files are copied into it.
const ownerMay = 0o700

func newTransfer(ctx context.Context, a *app.App, what string, b *client.Buffer, workers int) *transfer {
	t := &transfer{Several: &app.Several{What: what}, a: a, buffer: b, ctx: ctx, bar: a.Progress(what)}
	t.mode, t.filter = client.OpenOptions{Write: true, Create: true, Truncate: true}, new(filter)
	t.group.SetLimit(max(workers, 1))
	return t
}

// note counts one thing. The others are not tried if the daemon does not answer at all.
func (t *transfer) note(err error) {
	t.Several.Note(err)
	switch {
	case t.ctx.Err() != nil:
		t.End(t.ctx.Err())
	case client.KindOf(err) == client.ErrUnavailable && !t.Over():
		if _, away := t.buffer.Stat(t.ctx, ""); client.KindOf(away) == client.ErrUnavailable {
			t.End(away)
		}
	}
}

// start makes a worker do one thing.
func (t *transfer) start(do func() error) {
	t.group.Go(func() error {
		if !t.Over() {
			t.note(do())
		}
		return nil
	})
}

// copyOf counts a file, and has a worker copy it, or lists it in a dry run.
func (t *transfer) copyOf(from, to string, bytes int64, do func() error) {
	if t.dryRun {
		t.note(t.a.Would("copy", from, to, bytes))
		return
	}
	t.total.Add(bytes)
	t.found.Add(1)
	t.start(do)
}

// there is the address of a path in the buffer.
func (t *transfer) there(p string) string {
	return client.Address{Buffer: t.buffer.Name(), Path: p}.String()
}

// Write shows the progress of the bytes that pass through, and delays them if there is a limit.
func (t *transfer) Write(p []byte) (int, error) {
	if err := pass(t.ctx, t.limit, len(p)); err != nil {
		return 0, err
	}
	t.bar.Set(app.Figures{Files: t.files.Load(), FilesTotal: t.found.Load(), Bytes: t.bytes.Add(int64(len(p))), BytesTotal: t.total.Load()})
	return len(p), nil
}

// finish waits for the workers, and prints the totals and the failures.
func (t *transfer) finish() error {
	t.group.Wait()
	for _, dir := range slices.Backward(t.dirs) { // those below first
		if err := dir(); err != nil {
			t.Several.Note(err)
		}
	}
	t.bar.End()
	if err := t.Several.Finish(t.a); err != nil || t.dryRun {
		return err
	}
	sum := struct {
		Files int64 `json:"files"`
		Bytes int64 `json:"bytes"`
	}{t.files.Load(), t.bytes.Load()}
	return t.a.Print(sum, func() {})
}

func newPutCommand(a *app.App) *cobra.Command {
	var recursive, dryRun bool
	var workers int
	var l limits
	cmd := &cobra.Command{
		Use: "put FILE… bb://BUFFER/PATH", Short: "Copy files into a buffer", Args: cobra.MinimumNArgs(2),
		Long: `Copies local files into a buffer. "-" is standard input. If PATH is a directory, or
ends in a slash, files go into it. Directories need -r. Missing directories are made.
Mode and time of files and directories are kept. Links, pipes and devices below a directory are listed, and
make the exit code 7.

` + filterHelp,
		Example: "  bbctl put model.pt bb://ckpt/step-100.pt\n  tar c . | bbctl put - bb://ckpt/x.tar\n  bbctl put -r results bb://out/",
		RunE: func(cmd *cobra.Command, args []string) error {
			sources, target := args[:len(args)-1], args[len(args)-1]
			b, at, err := a.Buffer(cmd.Context(), target)
			if err != nil {
				return err
			}
			into := at.Path == "" || strings.HasSuffix(target, "/")
			if e, err := b.Stat(cmd.Context(), at.Path); err == nil && e.IsDir() {
				into = true
			}
			if len(sources) > 1 && !into {
				return app.Usage(target + " is not a directory")
			}
			t := newTransfer(cmd.Context(), a, "put", b, workers)
			t.dryRun = dryRun
			if err := l.apply(t); err != nil {
				return err
			}
			defer t.watchStall()()
			for _, source := range sources {
				if err := t.putAny(source, at.Path, into, recursive); err != nil {
					t.note(err)
				}
			}
			return t.finish()
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with everything below them")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the files to copy")
	l.flags(cmd)
	cmd.Flags().IntVarP(&workers, "jobs", "j", runtime.GOMAXPROCS(0), "files at the same time")
	return cmd
}

func (t *transfer) putAny(source, target string, into, recursive bool) error {
	if app.IsStdio(source) {
		if into {
			return app.Usage("standard input needs a file name in the buffer")
		}
		if t.dryRun {
			return t.a.Would("copy", "-", t.there(target), 0)
		}
		t.note(t.putFrom(t.a.In, target, 0o644, time.Time{}))
		return nil
	}
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if into {
		target = path.Join(target, filepath.Base(filepath.Clean(source)))
	}
	switch {
	case info.IsDir() && !recursive:
		return app.Usage(source + " is a directory: give -r")
	case info.IsDir():
		return t.putTree(source, target)
	}
	t.put(source, target, info)
	return nil
}

func (t *transfer) putTree(source, target string) error {
	wants := t.filter.walker()
	return filepath.WalkDir(source, func(p string, e fs.DirEntry, err error) error {
		if err != nil { // the directory cannot be read; the others can
			t.note(err)
			return nil
		}
		below, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		if below = filepath.ToSlash(below); below != "." && !wants(below, e.IsDir()) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		to := path.Join(target, below)
		info, err := e.Info()
		switch {
		case err != nil:
			t.note(err)
		case e.IsDir() && to != "":
			if err := t.putDir(to, info.Mode().Perm(), info.ModTime()); err != nil {
				t.note(err)
				return fs.SkipDir
			}
		case info.Mode().IsRegular():
			t.put(p, to, info)
		case !e.IsDir():
			t.note(&client.Error{Kind: client.ErrUnsupported, Op: "put", Path: p, Err: errors.New("it is neither a file nor a directory"), Remedy: "a link's target can be put by its own name"})
		}
		if t.Over() {
			return fs.SkipAll
		}
		return nil
	})
}

// putDir makes a directory, or opens one that is there for its owner. It gets its mode and
// time at the end.
func (t *transfer) putDir(to string, mode fs.FileMode, when time.Time) error {
	if t.dryRun {
		return nil
	}
	e, err := t.buffer.Stat(t.ctx, to)
	there := err == nil
	if err := t.buffer.MkdirAll(t.ctx, to, mode|ownerMay); err != nil {
		return err
	}
	set := func(a client.Attr) error {
		_, err := t.buffer.SetAttr(t.ctx, to, a)
		if there && client.KindOf(err) == client.ErrPermission {
			return nil // another user's keeps its own
		}
		return err
	}
	t.dirs = append(t.dirs, func() error { return set(client.Attr{Mode: &mode, ModTime: &when}) })
	if open := e.Mode.Perm() | ownerMay; there && open != e.Mode.Perm() {
		return set(client.Attr{Mode: &open})
	}
	return nil
}

// put copies one file on a worker.
func (t *transfer) put(source, target string, info fs.FileInfo) {
	t.copyOf(source, t.there(target), info.Size(), func() error {
		f, err := os.Open(source)
		if err != nil {
			return err
		}
		defer f.Close()
		return t.putAs(f, target, info.Mode().Perm(), info.ModTime())
	})
}

// putAs writes a file with a mode, which one that was there has not, and a time.
func (t *transfer) putAs(from io.Reader, target string, mode fs.FileMode, when time.Time) error {
	if err := t.putFrom(from, target, mode, when); err != nil {
		return err
	}
	_, err := t.buffer.SetAttr(t.ctx, target, client.Attr{Mode: &mode, ModTime: &when})
	return err
}

// putFrom writes a file, which has its time from the start, since it may be flushed as soon as it is closed.
func (t *transfer) putFrom(from io.Reader, target string, mode fs.FileMode, when time.Time) error {
	if dir := path.Dir(target); dir != "." {
		if err := t.buffer.MkdirAll(t.ctx, dir, 0o755); err != nil {
			return err
		}
	}
	o := t.mode
	o.Mode, o.ModTime = mode, when
	f, err := t.buffer.OpenFile(t.ctx, target, o)
	if err != nil {
		return err
	}
	defer f.Abort() // does nothing after Close
	if _, err := f.ReadFrom(io.TeeReader(from, t)); err != nil {
		return err
	}
	t.files.Add(1)
	return f.Close()
}

func newGetCommand(a *app.App) *cobra.Command {
	var recursive, dryRun bool
	var workers int
	var l limits
	cmd := &cobra.Command{
		Use: "get bb://BUFFER/PATH… TARGET", Short: "Copy files out of a buffer", Args: cobra.MinimumNArgs(2),
		Long: `Copies files to local ones. "-" is standard output. A file appears under its name
when all of it is there. Directories need -r. Mode and time of files and directories are
kept.

` + app.GlobHelp + "\n\n" + filterHelp,
		Example: "  bbctl get bb://ckpt/step-100.pt .\n  bbctl get -r bb://out/results .",
		RunE: func(cmd *cobra.Command, args []string) error {
			sources, target := args[:len(args)-1], args[len(args)-1]
			if len(sources) > 1 && !app.IsLocalDir(target) {
				return app.Usage(target + " is not a directory")
			}
			t := newTransfer(cmd.Context(), a, "get", nil, workers)
			t.dryRun = dryRun
			if err := l.apply(t); err != nil {
				return err
			}
			all, err := a.MatchAll(cmd.Context(), t.Several, sources)
			if err != nil {
				return err
			}
			if len(all) > 1 && !app.IsLocalDir(target) {
				return app.Usage(target + " is not a directory")
			}
			for _, source := range all {
				if t.buffer == nil || t.buffer.Name() != source.At.Buffer {
					t.group.Wait() // of another buffer
					t.buffer = source.Buffer
				}
				if err := t.getAny(source.At.Path, target, recursive); err != nil {
					t.note(err)
				}
			}
			return t.finish()
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with everything below them")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the files to copy")
	l.flags(cmd)
	cmd.Flags().IntVarP(&workers, "jobs", "j", runtime.GOMAXPROCS(0), "files at the same time")
	return cmd
}

func (t *transfer) getAny(source, target string, recursive bool) error {
	e, err := t.buffer.Stat(t.ctx, source)
	if err != nil {
		return err
	}
	if app.IsStdio(target) && !t.dryRun {
		t.note(t.getTo(t.a.Out, source))
		return nil
	}
	if app.IsLocalDir(target) && source != "" {
		target = filepath.Join(target, path.Base(source))
	}
	switch {
	case e.IsDir() && !recursive:
		return app.Usage(source + " is a directory: give -r")
	case !e.IsDir():
		t.get(&e, target)
		return nil
	}
	wants := t.filter.walker()
	for e, err := range t.buffer.Walk(t.ctx, source) {
		if err != nil {
			return err
		}
		if !wants(app.BelowOf(e.Path, source), e.IsDir()) {
			continue
		}
		to := filepath.Join(target, filepath.FromSlash(strings.TrimPrefix(e.Path, source)))
		if !e.IsDir() {
			t.get(&e, to)
		} else if err := t.getDir(&e, to); err != nil {
			return err
		}
	}
	return nil
}

// getDir makes a directory, or opens one that is there for its owner. It gets its mode and
// time at the end.
func (t *transfer) getDir(e *client.Entry, to string) error {
	mode, when := e.Mode.Perm(), e.ModTime
	if t.dryRun {
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if e.Path == "" {
		return nil // the buffer's own directory was not copied
	}
	if err := os.Chmod(to, mode|ownerMay); errors.Is(err, fs.ErrPermission) {
		return nil // another user's keeps its own
	} else if err != nil {
		return err
	}
	t.dirs = append(t.dirs, func() error {
		err := os.Chtimes(to, when, when)
		if changed := os.Chmod(to, mode); err == nil {
			err = changed
		}
		return err
	})
	return nil
}

// get copies one file on a worker, to a temporary name first.
func (t *transfer) get(e *client.Entry, target string) {
	entry := *e
	t.copyOf(t.there(e.Path), target, e.Size, func() error {
		f, err := os.CreateTemp(filepath.Dir(target), ".bbctl-*.tmp")
		var named *fs.PathError
		if errors.As(err, &named) { // without the temporary name, which is another one each time
			return &fs.PathError{Op: "create", Path: target, Err: named.Err}
		}
		if err != nil {
			return err
		}
		defer os.Remove(f.Name()) // gone after the rename
		err = t.getTo(f, entry.Path)
		if err == nil {
			err = f.Chmod(entry.Mode.Perm())
		}
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err == nil {
			err = os.Chtimes(f.Name(), entry.ModTime, entry.ModTime)
		}
		if err == nil {
			err = os.Rename(f.Name(), target)
		}
		return err
	})
}

func (t *transfer) getTo(to io.Writer, source string) error {
	f, err := t.buffer.Open(t.ctx, source)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteTo(io.MultiWriter(to, t)); err == nil {
		t.files.Add(1)
	}
	return err
}
