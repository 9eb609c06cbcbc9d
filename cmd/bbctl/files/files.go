package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

// EntryJSON is how a file or directory is printed with --json. Sizes are bytes.
type EntryJSON struct {
	Path       string    `json:"path"`
	Type       string    `json:"type"`
	Target     string    `json:"target,omitempty"`
	Size       int64     `json:"size"`
	State      string    `json:"state,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Mode       string    `json:"mode"`
	UID        uint32    `json:"uid"`
	GID        uint32    `json:"gid"`
	MTime      time.Time `json:"mtime"`
	Checksum   string    `json:"crc64nvme,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	ETag       string    `json:"etag,omitempty"`
	FlushedAt  time.Time `json:"flushed_at,omitzero"`
	Layout     string    `json:"layout,omitempty"`
}

func DescribeEntry(e *client.Entry) EntryJSON {
	j := EntryJSON{
		Path: e.Path, Type: e.Type.String(), Target: e.Target, Size: e.Size, Reason: e.Reason, Mode: fmt.Sprintf("%04o", e.Mode.Perm()),
		UID: e.UID, GID: e.GID, MTime: e.ModTime, Generation: uint64(e.Generation),
	}
	if !e.IsFile() {
		return j
	}
	j.State = e.State.String()
	if e.State != client.StateOpen {
		j.Checksum = fmt.Sprintf("%016x", e.Checksum)
	}
	if e.Flushed.Generation == e.Generation {
		j.ETag, j.FlushedAt, j.Layout = e.Flushed.ETag, e.Flushed.At, e.Flushed.Layout
	}
	return j
}

func newLsCommand(a *app.App) *cobra.Command {
	var l lister
	cmd := &cobra.Command{
		Use: "ls bb://[BUFFER[/PATH]]…", Short: "List directories, or all buffers", Args: cobra.MinimumNArgs(1),
		Long:    "Lists the entries of directories; bb:// lists the buffers. The size of a file that is open for\nwriting at another node is known there alone: -l names the node, bbctl stat asks it.\n\n" + app.GlobHelp,
		Example: "  bbctl ls bb://\n  bbctl ls -l bb://ckpt/run1\n  bbctl ls -l 'bb://ckpt/run*/step-?.pt'\n  bbctl ls -r bb://ckpt --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == bb.Scheme+"://" {
				return l.buffers(cmd.Context(), a)
			}
			return a.EachMatch(cmd.Context(), "ls", args, func(at app.Found, several bool) error {
				return l.list(cmd.Context(), a, at, several)
			})
		},
	}
	cmd.Flags().BoolVarP(&l.long, "long", "l", false, "with mode, owner, size, state and time")
	cmd.Flags().BoolVarP(&l.recursive, "recursive", "r", false, "with everything below")
	cmd.Flags().BoolVarP(&l.zero, "zero", "0", false, "names as they are, each ended by a NUL byte, for xargs -0")
	cmd.Flags().BoolP("human-readable", "h", false, "sizes with units, as they always are: for those who are used to ls -lh")
	cmd.Flags().Bool("help", false, "help for ls")
	return cmd
}

// buffers lists all buffers as directories.
func (l *lister) buffers(ctx context.Context, a *app.App) error {
	c, err := a.Dial(ctx)
	if err != nil {
		return err
	}
	all, err := admin.Buffers(ctx, c)
	if err != nil {
		return err
	}
	for _, b := range all {
		e := client.Entry{Path: client.Address{Buffer: b.Name}.String(), Name: b.Name, Type: bb.TypeDirectory, Mode: b.Mode, UID: b.UID, GID: b.GID, ModTime: b.Created}
		if err := l.print(a, &e, b.Name); err != nil {
			return err
		}
	}
	return nil
}

// list lists an entry: the entries of a directory, or a file itself. Among several, each is named by
// its address.
func (l *lister) list(ctx context.Context, a *app.App, at app.Found, several bool) error {
	e, err := at.Stat(ctx, at.At.Path)
	if err != nil {
		return err
	}
	entries := at.ReadDir(ctx, at.At.Path)
	switch {
	case !e.IsDir():
		entries = func(yield func(client.Entry, error) bool) { yield(e, nil) }
	case l.recursive:
		entries = at.Walk(ctx, at.At.Path)
	}
	for e, err := range entries {
		if err != nil {
			return err
		}
		if e.Path == at.At.Path && e.IsDir() {
			continue
		}
		name := e.Name
		if l.recursive {
			name = e.Path
		}
		if several {
			name = client.Address{Buffer: at.At.Buffer, Path: e.Path}.String()
		}
		if err := l.print(a, &e, name); err != nil {
			return err
		}
	}
	return nil
}

// lister prints entries as ls does.
type lister struct{ long, recursive, zero bool }

func (l *lister) print(a *app.App, e *client.Entry, name string) error {
	if e.IsDir() {
		name += "/"
	}
	end := "\x00"
	if !l.zero {
		name, end = bb.Printable(name), "\n"
		if l.long && e.Type == client.TypeSymlink {
			name += " -> " + bb.Printable(e.Target)
		}
	}
	return a.Print(DescribeEntry(e), func() {
		if !l.long {
			fmt.Fprint(a.Out, name, end)
			return
		}
		mode, state := e.Mode.Perm(), e.State.String()
		if !e.IsFile() {
			mode, state = mode|e.Type.Mode(), "-"
		}
		fmt.Fprintf(a.Out, "%s %5d %5d %10s  %-7s %s  %s", mode, e.UID, e.GID, app.Size(e.Size), state, e.ModTime.Format("2006-01-02 15:04:05"), name)
		if e.Reason != "" {
			fmt.Fprintf(a.Out, "  (%s)", e.Reason)
		}
		fmt.Fprint(a.Out, end)
	})
}

// usageJSON is how sums of sizes are printed with --json.
type usageJSON struct {
	Path    string           `json:"path"`
	Files   int64            `json:"files"`
	Bytes   int64            `json:"bytes"`
	ByState map[string]int64 `json:"bytes_by_state"`
}

func newDuCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "du bb://BUFFER[/PATH]…", Short: "Add up the sizes below directories, by state", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachMatch(cmd.Context(), "du", args, func(at app.Found, _ bool) error {
				sum := usageJSON{Path: at.At.String(), ByState: map[string]int64{}}
				for e, err := range at.Walk(cmd.Context(), at.At.Path) {
					if err != nil {
						return err
					}
					if e.IsFile() {
						sum.Files++
						sum.Bytes += e.Size
						sum.ByState[e.State.String()] += e.Size
					}
				}
				return printUsage(a, &sum)
			})
		},
	}
}

func printUsage(a *app.App, sum *usageJSON) error {
	return a.Print(sum, func() {
		fmt.Fprintf(a.Out, "%s in %s below %s\n", app.Size(sum.Bytes), bb.Count(sum.Files, "file"), bb.Printable(sum.Path))
		for _, s := range StateNames() {
			if n := sum.ByState[s]; n > 0 {
				fmt.Fprintf(a.Out, "  %-8s %s\n", s, app.Size(n))
			}
		}
	})
}

func newCatCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "cat bb://BUFFER/PATH…", Short: "Write files to standard output", Args: cobra.MinimumNArgs(1),
		Example: "  bbctl cat bb://ckpt/log | tail",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachMatch(cmd.Context(), "cat", args, func(at app.Found, _ bool) error {
				f, err := at.Open(cmd.Context(), at.At.Path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = io.Copy(a.Out, f)
				return err
			})
		},
	}
}

func newMvCommand(a *app.App) *cobra.Command {
	var noReplace, exchange, dryRun bool
	cmd := &cobra.Command{
		Use: "mv bb://BUFFER/FROM… bb://BUFFER/TO", Short: "Rename a file or directory, atomically", Args: cobra.MinimumNArgs(2),
		Long: "Renames a file or directory within a buffer, in one atomic step at any size. If TO is a directory, FROM moves into it.\n" +
			"With --exchange, FROM and TO swap their names instead, files or directories.\n\n" + app.GlobHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, to, err := a.Buffer(cmd.Context(), args[len(args)-1])
			if err != nil {
				return err
			}
			var into bool
			return a.EachMatch(cmd.Context(), "mv", args[:len(args)-1], func(from app.Found, several bool) error {
				if to.Buffer != from.At.Buffer {
					return app.Usage("files are renamed within one buffer; use bbctl cp to copy")
				}
				if exchange {
					return exchangeNames(cmd.Context(), a, from, to, several, dryRun)
				}
				if !into {
					e, err := from.Stat(cmd.Context(), to.Path)
					if into = err == nil && e.IsDir(); several && !into {
						return app.Usage(to.String() + " is not a directory")
					}
				}
				target := to.Path
				if into {
					target = path.Join(to.Path, path.Base(from.At.Path))
				}
				if dryRun {
					e, err := from.Stat(cmd.Context(), from.At.Path)
					if err != nil {
						return err
					}
					return a.Would("move", from.At.String(), client.Address{Buffer: to.Buffer, Path: target}.String(), e.Size)
				}
				if noReplace {
					return from.RenameNoReplace(cmd.Context(), from.At.Path, target)
				}
				return from.Rename(cmd.Context(), from.At.Path, target)
			})
		},
	}
	cmd.Flags().BoolVarP(&noReplace, "no-clobber", "n", false, "fail if the new name is taken")
	cmd.Flags().BoolVar(&exchange, "exchange", false, "swap the names of two files or directories, in one atomic step")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only list the files to move")
	cmd.MarkFlagsMutuallyExclusive("exchange", "no-clobber")
	return cmd
}

// exchangeNames swaps two names.
func exchangeNames(ctx context.Context, a *app.App, from app.Found, to client.Address, several, dryRun bool) error {
	if several {
		return app.Usage("--exchange swaps two names: name one file or directory, and another one")
	}
	if !dryRun {
		return from.Exchange(ctx, from.At.Path, to.Path)
	}
	for _, move := range [][2]string{{from.At.Path, to.Path}, {to.Path, from.At.Path}} {
		e, err := from.Stat(ctx, move[0])
		if err != nil {
			return err
		}
		if err := a.Would("move", client.Address{Buffer: to.Buffer, Path: move[0]}.String(), client.Address{Buffer: to.Buffer, Path: move[1]}.String(), e.Size); err != nil {
			return err
		}
	}
	return nil
}

func newRmCommand(a *app.App) *cobra.Command {
	var recursive, dryRun, yes bool
	cmd := &cobra.Command{
		Use: "rm bb://BUFFER/PATH…", Short: "Remove files, and their copies on the store", Args: cobra.MinimumNArgs(1),
		Long: "Removes files, and with -r directories. On a terminal, -r asks before it removes files that are not on the store.\n" +
			"If -r is interrupted, it ends after at most a thousand entries more, and reports how many are gone.\n\n" + app.GlobHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachMatch(cmd.Context(), "rm", args, func(at app.Found, _ bool) error {
				switch {
				case dryRun:
					return wouldRemove(cmd.Context(), a, at, recursive)
				case !recursive:
					return at.Remove(cmd.Context(), at.At.Path)
				}
				if _, err := at.Stat(cmd.Context(), at.At.Path); err != nil {
					return err
				}
				if !yes {
					if err := a.ConfirmUnsaved(cmd.Context(), "rm", at); err != nil {
						return err
					}
				}
				return removeTree(cmd.Context(), a, at.Buffer, at.At.Path)
			})
		},
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only list the files to remove")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before files are removed that are not on the store")
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with everything below them")
	return cmd
}

// removeTree removes a tree and shows the progress.
func removeTree(ctx context.Context, a *app.App, b *client.Buffer, p string) error {
	bar := a.Progress("rm")
	defer bar.End()
	gone, err := b.RemoveTree(ctx, p, func(now client.Removed) { bar.Set(app.Figures{Files: now.Files}) })
	if err != nil && gone != (client.Removed{}) {
		least := "at least "
		if client.KindOf(err) == client.ErrCancelled && !errors.Is(err, client.ErrUnknownOutcome) {
			least = "" // it ended between two pages
		}
		at := client.Address{Buffer: b.Name(), Path: p}.String()
		a.Left = fmt.Sprintf("of %s, %s%s and %s are removed, the rest is still there", bb.Printable(at), least,
			bb.Count(gone.Files, "file"), bb.Count(gone.Directories, "directory", "directories"))
	}
	return err
}

// wouldRemove lists the files that rm would remove.
func wouldRemove(ctx context.Context, a *app.App, at app.Found, recursive bool) error {
	for e, err := range at.Walk(ctx, at.At.Path) {
		switch {
		case err != nil:
			return err
		case e.IsDir() && !recursive:
			return app.Usage(at.At.String() + " is a directory: give -r")
		}
		if err := a.Would("remove", client.Address{Buffer: at.At.Buffer, Path: e.Path}.String(), "", e.Size); err != nil {
			return err
		}
	}
	return nil
}

func newMkdirCommand(a *app.App) *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use: "mkdir bb://BUFFER/PATH…", Short: "Make directories", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.EachArg(cmd.Context(), "mkdir", args, func(arg string) error {
				b, at, err := a.Buffer(cmd.Context(), arg)
				switch {
				case err != nil:
					return err
				case parents:
					return b.MkdirAll(cmd.Context(), at.Path, 0o755)
				}
				return b.Mkdir(cmd.Context(), at.Path, 0o755)
			})
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "also those above; no error if it exists")
	return cmd
}
