package main

import (
	"context"
	"errors"
	"path"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"forebay/client"
)

func newCpCommand(a *app) *cobra.Command {
	var o copyOptions
	cmd := &cobra.Command{
		Use: "cp bb://BUFFER/FROM… bb://BUFFER/TO", Short: "Copy files within a buffer or between buffers", Args: cobra.MinimumNArgs(2),
		Long: `Copies files, and with -r directories. If TO is a directory, or ends in a slash, FROM is copied into it.
Missing directories are made. Mode and time of files and directories are kept. What is copied over keeps
its old content for readers until all of the new one is there.

` + globHelp + "\n\n" + filterHelp,
		Example: "  bbctl cp bb://ckpt/step-100.pt bb://ckpt/best.pt\n  bbctl cp -r bb://ckpt/run1 bb://archive/",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.copyAll(cmd.Context(), args[:len(args)-1], args[len(args)-1], o)
		},
	}
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "r", false, "directories with everything below them")
	cmd.Flags().BoolVarP(&o.noReplace, "no-clobber", "n", false, "fail if a name is taken")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only list what would be copied")
	o.flags(cmd)
	cmd.Flags().IntVarP(&o.workers, "jobs", "j", runtime.GOMAXPROCS(0), "files at the same time")
	return cmd
}

type copyOptions struct {
	recursive, noReplace, dryRun bool
	workers                      int
	limits
}

// copyAll copies what arguments stand for to a place in a buffer.
func (a *app) copyAll(ctx context.Context, from []string, to string, o copyOptions) error {
	for _, arg := range append(from, to) {
		if !strings.HasPrefix(arg, "bb://") {
			return usage(arg + " is no address of a buffer; bbctl put and get copy local files")
		}
	}
	b, at, err := a.buffer(ctx, to)
	if err != nil {
		return err
	}
	t := &copying{transfer: a.transfer(ctx, "cp", b, o.workers), target: at, into: at.Path == "" || strings.HasSuffix(to, "/"), recursive: o.recursive}
	t.mode.Exclusive, t.dryRun = o.noReplace, o.dryRun
	if err := o.apply(t.transfer); err != nil {
		return err
	}
	if e, err := b.Stat(ctx, at.Path); err == nil && e.IsDir() {
		t.into = true
	}
	all, err := a.matchAll(ctx, t.several, from)
	if err != nil {
		return err
	}
	if len(all) > 1 && !t.into {
		return usage(at.String() + " is not a directory")
	}
	for _, source := range all {
		if err := t.copyAny(source); err != nil {
			t.note(err)
		}
	}
	return t.finish()
}

// copying is a transfer from buffers to a place in one.
type copying struct {
	*transfer
	target    client.Address
	into      bool // the target is a directory
	recursive bool
}

// copyAny copies a file or directory.
func (t *copying) copyAny(from found) error {
	e, err := from.Stat(t.ctx, from.at.Path)
	if err != nil {
		return err
	}
	to := t.target.Path
	if t.into && from.at.Path != "" {
		to = path.Join(to, path.Base(from.at.Path))
	}
	switch {
	case from.at.Buffer == t.target.Buffer && (to == from.at.Path || e.IsDir() && below(to, from.at.Path)):
		return &client.Error{Kind: client.ErrInvalid, Op: "cp", Path: from.at.String(), Err: errors.New("it would be copied to itself")}
	case e.IsDir() && !t.recursive:
		return usage(from.at.String() + " is a directory: give -r")
	case !e.IsDir():
		t.copyFile(from.Buffer, &e, to)
		return nil
	}
	wants := t.filter.walker()
	for e, err := range from.Walk(t.ctx, from.at.Path) {
		below := belowOf(e.Path, from.at.Path)
		switch {
		case err != nil:
			t.note(err)
			continue
		case !wants(below, e.IsDir()):
			continue
		}
		there := path.Join(to, below)
		if !e.IsDir() {
			t.copyFile(from.Buffer, &e, there)
		} else if there != "" && e.Path != "" {
			if err := t.putDir(there, e.Mode.Perm(), e.ModTime); err != nil {
				return err
			}
		}
		if t.over() {
			return nil
		}
	}
	return nil
}

// belowOf returns the path below a directory of what lies in it, "" of itself.
func belowOf(p, dir string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
}

// below reports whether a path lies in a directory.
func below(p, dir string) bool { return dir == "" || strings.HasPrefix(p, dir+"/") }

// copyFile copies one file on a worker.
func (t *copying) copyFile(from *client.Buffer, e *client.Entry, target string) {
	source := client.Address{Buffer: from.Name(), Path: e.Path}.String()
	t.copyOf(source, t.there(target), e.Size, func() error {
		f, err := from.Open(t.ctx, e.Path)
		if err != nil {
			return err
		}
		defer f.Close()
		return t.putAs(f, target, e.Mode.Perm(), e.ModTime)
	})
}
