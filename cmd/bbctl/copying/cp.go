package copying

import (
	"context"
	"errors"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
)

func newCpCommand(a *app.App) *cobra.Command {
	var o copyOptions
	cmd := &cobra.Command{
		Use: "cp bb://BUFFER/FROM… bb://BUFFER/TO", Short: "Copy files within a buffer or between buffers", Args: cobra.MinimumNArgs(2),
		Long: `Copies files, and with -r directories. If TO is a directory, or ends in a slash, FROM is copied into it.
Missing directories are made. Mode and time of files and directories are kept. A replaced file keeps
its old content for readers until all of the new one is there.

` + app.GlobHelp + "\n\n" + filterHelp,
		Example: "  bbctl cp bb://ckpt/step-100.pt bb://ckpt/best.pt\n  bbctl cp -r bb://ckpt/run1 bb://archive/",
		RunE: func(cmd *cobra.Command, args []string) error {
			return copyAll(cmd.Context(), a, args[:len(args)-1], args[len(args)-1], o)
		},
	}
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "r", false, "directories with everything below them")
	cmd.Flags().BoolVarP(&o.noReplace, "no-clobber", "n", false, "fail if a name is taken")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "only list the files to copy")
	o.flags(cmd)
	cmd.Flags().IntVarP(&o.workers, "jobs", "j", runtime.GOMAXPROCS(0), "files at the same time")
	return cmd
}

type copyOptions struct {
	recursive, noReplace, dryRun bool
	workers                      int
	limits
}

// copyAll copies the files of arguments to a place in a buffer.
func copyAll(ctx context.Context, a *app.App, from []string, to string, o copyOptions) error {
	for _, arg := range slices.Concat(from, []string{to}) {
		switch _, inside, err := a.InBuffer(ctx, arg); {
		case err != nil:
			return err
		case !inside:
			return app.Usage(arg + " is in no buffer; bbctl put and get copy local files")
		}
	}
	b, at, err := a.Buffer(ctx, to)
	if err != nil {
		return err
	}
	t := &copying{transfer: newTransfer(ctx, a, "cp", b, o.workers), target: at, into: at.Path == "" || strings.HasSuffix(to, "/"), recursive: o.recursive}
	t.mode.Exclusive, t.dryRun = o.noReplace, o.dryRun
	if err := o.apply(t.transfer); err != nil {
		return err
	}
	if e, err := b.Stat(ctx, at.Path); err == nil && e.IsDir() {
		t.into = true
	}
	all, err := a.MatchAll(ctx, t.Several, from)
	if err != nil {
		return err
	}
	if len(all) > 1 && !t.into {
		return app.Usage(at.String() + " is not a directory")
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
func (t *copying) copyAny(from app.Found) error {
	e, err := from.Stat(t.ctx, from.At.Path)
	if err != nil {
		return err
	}
	to := t.target.Path
	if t.into && from.At.Path != "" {
		to = path.Join(to, path.Base(from.At.Path))
	}
	switch {
	case from.At.Buffer == t.target.Buffer && (to == from.At.Path || e.IsDir() && app.Below(to, from.At.Path)):
		return &client.Error{Kind: client.ErrInvalid, Op: "cp", Path: from.At.String(), Err: errors.New("it would be copied to itself")}
	case e.IsDir() && !t.recursive:
		return app.Usage(from.At.String() + " is a directory: give -r")
	case !e.IsDir():
		t.copyFile(from.Buffer, &e, to)
		return nil
	}
	wants := t.filter.walker()
	for e, err := range from.Walk(t.ctx, from.At.Path) {
		below := app.BelowOf(e.Path, from.At.Path)
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
		if t.Over() {
			return nil
		}
	}
	return nil
}

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
