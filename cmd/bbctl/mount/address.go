package mount

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
	"forebay/internal/mounts"
)

func newAddressCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "address PATH…", Short: "Print the addresses, bb://BUFFER/path, of paths below a mount", Args: cobra.MinimumNArgs(1),
		Long: `Prints a line for each path, or file: URL of one: its address, for programs that take addresses alone. Symbolic links on the way are
followed; the last name is, if it ends in a slash. No daemon is needed, and none of the files has to be there.`,
		Example: "  spark-submit job.py \"$(bbctl address /bb/scratch/table)\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return printEach(cmd.Context(), a, "address", args, func(at client.Address) (string, error) { return at.String(), nil })
		},
	}
}

func newPathCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "path bb://BUFFER[/PATH]…", Short: "Print the paths of addresses below a mount of this machine", Args: cobra.MinimumNArgs(1),
		Long: `Prints a line for each address: a path below the mount of its buffer, the newest if there are several. No daemon is
needed, and none of the files has to be there. With --socket, or
$FOREBAY_SOCKET, mounts that were given another daemon are not counted.`,
		Example: "  tar -xf input.tar -C \"$(bbctl path bb://scratch/run1)\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			return printEach(cmd.Context(), a, "path", args, func(at client.Address) (string, error) { return mounts.Path(at, app.DaemonOf(a.Address)) })
		},
	}
}

// local returns the path of a file: URL, as Hadoop and Spark write paths, and anything else as it is.
func local(arg string) string {
	if u, err := url.Parse(arg); err == nil && u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && strings.HasPrefix(u.Path, "/") {
		return u.Path
	}
	return arg
}

// printEach prints something of each address or path.
func printEach(ctx context.Context, a *app.App, what string, args []string, of func(client.Address) (string, error)) error {
	return a.EachArg(ctx, what, args, func(arg string) error {
		at, err := a.Locate(ctx, local(arg))
		if err != nil {
			return err
		}
		text, err := of(at)
		if err != nil {
			return err
		}
		return a.Print(map[string]string{what: text}, func() { fmt.Fprintln(a.Out, bb.Printable(text)) })
	})
}
