package buffers

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

func newBufferRebuildCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "rebuild NAME", Short: "Rebuild the namespace of a buffer whose log is gone or damaged", Args: cobra.ExactArgs(1),
		Long: `Rebuilds the namespace of a buffer that the daemon has set aside, since its log is gone or
damaged, from memory and the disk tier. If there is a copy of the namespace server's folder,
put that back instead: it has all names.

Each file whose bytes are here gets its entry again: path, size, generation, mode, owner. It counts as
dirty: the store may have it under an older name. The readable part of the damaged log has the
modes and owners of its directories. Without that a directory has the buffer's owner and mode.
Files that the store alone has are named if memory has a record of them: bbctl stage-in brings them back.
Symbolic links, FIFOs and sockets are in the log alone: those that cannot be read are gone. A committed
transaction whose files have yet to get their places goes on, if its record can be read.
In a cluster all daemons restore their files, and the buffer is used when they have.
The command changes nothing if the log can be read, or if the namespace's server does not answer. It
may be repeated.`,
		Example: "  bbctl buffer rebuild ckpt",
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			r, err := admin.RebuildBuffer(ctx, c, args[0])
			if err != nil {
				return err
			}
			if err := a.Print(describeRebuilt(args[0], &r), func() { printRebuilt(a, args[0], &r) }); err != nil || r.Lost == 0 {
				return err
			}
			return &client.Error{
				Kind: client.ErrLost, Op: "buffer rebuild", Path: args[0], Err: fmt.Errorf("something is missing of %s", app.Count(r.Lost, "file", "files")),
				Remedy: "see bbctl lost " + args[0] + "; the store may have a file that is named here under its name from before a rename",
			}
		}),
	}
}

type rebuilt struct {
	Buffer      string        `json:"buffer"`
	Served      bool          `json:"served"` // already: nothing was done
	Files       int64         `json:"files"`
	Directories int64         `json:"directories"`
	Read        int64         `json:"read"`
	Aside       int64         `json:"aside"`
	Kept        int64         `json:"kept"`
	OnStore     int64         `json:"on_store"`
	Lost        int64         `json:"lost"`
	Links       int64         `json:"links"`
	Committed   int64         `json:"committed"`
	Found       []rebuiltFile `json:"found"`
}

type rebuiltFile struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Became string `json:"became"`
	Reason string `json:"reason,omitempty"`
}

func describeRebuilt(name string, r *admin.Rebuilt) rebuilt {
	all := rebuilt{
		Buffer: name, Served: r.Served, Files: r.Files, Directories: r.Directories, Read: r.Read, Aside: r.Aside, Kept: r.Kept, OnStore: r.OnStore, Lost: r.Lost,
		Links: r.Links, Committed: r.Committed,
		Found: []rebuiltFile{},
	}
	for _, f := range r.Found {
		all.Found = append(all.Found, rebuiltFile(f))
	}
	return all
}

func printRebuilt(a *app.App, name string, r *admin.Rebuilt) {
	if r.Served {
		fmt.Fprintf(a.Out, "%s is served: there is nothing to rebuild\n", name)
		return
	}
	rows := [][]string{
		{"directories read of the damaged log", strconv.FormatInt(r.Directories, 10)},
		{"files read of it that memory still has", strconv.FormatInt(r.Read, 10)},
		{"symbolic links, FIFOs and sockets read of it", strconv.FormatInt(r.Links, 10)},
		{"files that only memory has, or has newer", strconv.FormatInt(r.Files, 10)},
	}
	for _, row := range []struct {
		what string
		n    int64
	}{
		{"committed transactions that go on", r.Committed},
		{"files below " + bb.LostDir + ", as their names are not free", r.Aside},
		{"files that stay in memory without an entry", r.Kept},
		{"files that only the store has (bbctl stage-in)", r.OnStore},
		{"files that miss something (bbctl lost)", r.Lost},
	} {
		if row.n > 0 {
			rows = append(rows, []string{row.what, strconv.FormatInt(row.n, 10)})
		}
	}
	a.Table(rows)
	for _, f := range r.Found {
		fmt.Fprintf(a.Out, "%s  %s  %s  %s\n", f.Became, bb.Printable(f.Path), app.Size(f.Bytes), bb.Printable(f.Reason))
	}
	if more := r.Aside + r.Kept + r.OnStore + r.Lost - int64(len(r.Found)); more > 0 {
		fmt.Fprintf(a.Out, "and %s more, which the daemon's log names\n", app.Count(more, "file", "files"))
	}
}
