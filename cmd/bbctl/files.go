package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/internal/bb"
)

// entryJSON is how a file or directory is printed with --json. Sizes are bytes.
type entryJSON struct {
	Path       string    `json:"path"`
	Type       string    `json:"type"`
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
}

func describeEntry(e *client.Entry) entryJSON {
	j := entryJSON{
		Path: e.Path, Type: e.Type.String(), Size: e.Size, Reason: e.Reason, Mode: fmt.Sprintf("%04o", e.Mode.Perm()),
		UID: e.UID, GID: e.GID, MTime: e.ModTime, Generation: uint64(e.Generation),
	}
	if e.IsDir() {
		return j
	}
	j.State = e.State.String()
	if e.State != client.StateOpen {
		j.Checksum = fmt.Sprintf("%016x", e.Checksum)
	}
	if e.Flushed.Generation == e.Generation {
		j.ETag, j.FlushedAt = e.Flushed.ETag, e.Flushed.At
	}
	return j
}

func newLsCommand(a *app) *cobra.Command {
	var l lister
	cmd := &cobra.Command{
		Use: "ls bb://BUFFER[/PATH]", Short: "List a directory", Args: cobra.ExactArgs(1),
		Example: "  bbctl ls -l bb://ckpt/run1\n  bbctl ls -r bb://ckpt --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, at, err := a.buffer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			e, err := b.Stat(cmd.Context(), at.Path)
			if err != nil {
				return err
			}
			entries := b.ReadDir(cmd.Context(), at.Path)
			switch {
			case !e.IsDir():
				entries = func(yield func(client.Entry, error) bool) { yield(e, nil) }
			case l.recursive:
				entries = b.Walk(cmd.Context(), at.Path)
			}
			for e, err := range entries {
				if err != nil {
					return err
				}
				if e.Path == at.Path && e.IsDir() {
					continue
				}
				if err := l.print(a, &e); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&l.long, "long", "l", false, "with mode, owner, size, state and time")
	cmd.Flags().BoolVarP(&l.recursive, "recursive", "r", false, "with everything below")
	cmd.Flags().BoolVarP(&l.zero, "zero", "0", false, "names as they are, each ended by a NUL byte, for xargs -0")
	cmd.Flags().BoolP("human-readable", "h", false, "sizes with units, as they always are: for those who are used to ls -lh")
	cmd.Flags().Bool("help", false, "help for ls")
	return cmd
}

// lister prints entries as ls does.
type lister struct{ long, recursive, zero bool }

func (l *lister) print(a *app, e *client.Entry) error {
	name := e.Name
	if l.recursive {
		name = e.Path
	}
	if e.IsDir() {
		name += "/"
	}
	end := "\x00"
	if !l.zero {
		name, end = bb.Printable(name), "\n"
	}
	return a.print(describeEntry(e), func() {
		if !l.long {
			fmt.Fprint(a.out, name, end)
			return
		}
		mode, state := e.Mode.Perm(), e.State.String()
		if e.IsDir() {
			mode, state = mode|fs.ModeDir, "-"
		}
		fmt.Fprintf(a.out, "%s %5d %5d %10s  %-7s %s  %s", mode, e.UID, e.GID, size(e.Size), state, e.ModTime.Format("2006-01-02 15:04:05"), name)
		if e.Reason != "" {
			fmt.Fprintf(a.out, "  (%s)", e.Reason)
		}
		fmt.Fprint(a.out, end)
	})
}

func newStatCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "stat bb://BUFFER/PATH", Short: "Show everything about a file or directory", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, at, err := a.buffer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			e, err := b.Stat(cmd.Context(), at.Path)
			if err != nil {
				return err
			}
			j := describeEntry(&e)
			return a.print(j, func() {
				a.table([][]string{
					{"path", bb.Printable(at.String())},
					{"type", j.Type},
					{"size", strconv.FormatInt(j.Size, 10)},
					{"state", strings.TrimSpace(j.State + " " + j.Reason)},
					{"mode", j.Mode},
					{"owner", fmt.Sprintf("%d:%d", j.UID, j.GID)},
					{"modified", j.MTime.Format(time.RFC3339Nano)},
					{"crc64nvme", j.Checksum},
					{"generation", strconv.FormatUint(j.Generation, 10)},
					{"etag", j.ETag},
				})
			})
		},
	}
}

func newDuCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "du bb://BUFFER[/PATH]", Short: "Add up the sizes below a directory, by state", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, at, err := a.buffer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var sum struct {
				Path    string           `json:"path"`
				Files   int64            `json:"files"`
				Bytes   int64            `json:"bytes"`
				ByState map[string]int64 `json:"bytes_by_state"`
			}
			sum.Path, sum.ByState = at.String(), map[string]int64{}
			for e, err := range b.Walk(cmd.Context(), at.Path) {
				if err != nil {
					return err
				}
				if !e.IsDir() {
					sum.Files++
					sum.Bytes += e.Size
					sum.ByState[e.State.String()] += e.Size
				}
			}
			return a.print(sum, func() {
				fmt.Fprintf(a.out, "%s in %d files below %s\n", size(sum.Bytes), sum.Files, bb.Printable(sum.Path))
				for _, s := range []client.State{client.StateOpen, client.StateDirty, client.StateClean, client.StateEvicted, client.StateLost} {
					if n := sum.ByState[s.String()]; n > 0 {
						fmt.Fprintf(a.out, "  %-8s %s\n", s, size(n))
					}
				}
			})
		},
	}
}

func newCatCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "cat bb://BUFFER/PATH…", Short: "Write files to standard output", Args: cobra.MinimumNArgs(1),
		Example: "  bbctl cat bb://ckpt/log | tail",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachArg(cmd.Context(), "cat", args, func(arg string) error {
				b, at, err := a.buffer(cmd.Context(), arg)
				if err != nil {
					return err
				}
				f, err := b.Open(cmd.Context(), at.Path)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = io.Copy(a.out, f)
				return err
			})
		},
	}
}

func newMvCommand(a *app) *cobra.Command {
	var noReplace bool
	cmd := &cobra.Command{
		Use: "mv bb://BUFFER/FROM bb://BUFFER/TO", Short: "Rename a file or directory, atomically", Args: cobra.ExactArgs(2),
		Long: "Renames a file or directory within a buffer, in one atomic step whatever it holds. If TO is a directory, FROM moves into it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			b, from, err := a.buffer(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			to, err := client.ParseAddress(args[1])
			if err != nil {
				return err
			}
			if to.Buffer != from.Buffer {
				return usage("files are renamed within one buffer; use bbctl cat and put to copy")
			}
			target := to.Path
			if e, err := b.Stat(cmd.Context(), to.Path); err == nil && e.IsDir() {
				target = path.Join(to.Path, path.Base(from.Path))
			}
			if noReplace {
				return b.RenameNoReplace(cmd.Context(), from.Path, target)
			}
			return b.Rename(cmd.Context(), from.Path, target)
		},
	}
	cmd.Flags().BoolVarP(&noReplace, "no-clobber", "n", false, "fail if the new name is taken")
	return cmd
}

func newRmCommand(a *app) *cobra.Command {
	var recursive bool
	cmd := newPathsCommand(a, "rm", "Remove files, and their copies on the store", func(ctx context.Context, b *client.Buffer, p string) error {
		if !recursive {
			return b.Remove(ctx, p)
		}
		if _, err := b.Stat(ctx, p); err != nil {
			return err
		}
		return b.RemoveAll(ctx, p)
	})
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with everything below them")
	return cmd
}

func newMkdirCommand(a *app) *cobra.Command {
	var parents bool
	cmd := newPathsCommand(a, "mkdir", "Make directories", func(ctx context.Context, b *client.Buffer, p string) error {
		if parents {
			return b.MkdirAll(ctx, p, 0o755)
		}
		return b.Mkdir(ctx, p, 0o755)
	})
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "also those above; no error if it exists")
	return cmd
}

// newPathsCommand makes a command that does something to one path after the other. A path
// that fails does not keep the others from being done.
func newPathsCommand(a *app, name, short string, do func(context.Context, *client.Buffer, string) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " bb://BUFFER/PATH…", Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachArg(cmd.Context(), name, args, func(arg string) error {
				b, at, err := a.buffer(cmd.Context(), arg)
				if err != nil {
					return err
				}
				return do(cmd.Context(), b, at.Path)
			})
		},
	}
}

// isStdio reports whether an argument stands for standard input or output.
func isStdio(arg string) bool { return arg == "-" }

// isLocalDir reports whether a local path is a directory.
func isLocalDir(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.IsDir()
}
