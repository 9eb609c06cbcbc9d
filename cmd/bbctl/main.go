// Command bbctl is Forebay's command line, for users and operators. It must never depend on a daemon's way of
// carrying out its requests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/buffers"
	"forebay/cmd/bbctl/cluster"
	"forebay/cmd/bbctl/copying"
	"forebay/cmd/bbctl/doctor"
	"forebay/cmd/bbctl/files"
	"forebay/cmd/bbctl/jobs"
	"forebay/cmd/bbctl/mount"
	"forebay/cmd/bbctl/slurm"
	"forebay/cmd/bbctl/status"
	"forebay/internal/cli"
)

// version is set when a release is built (see the Makefile).
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:]))
}

// run carries a command line out and returns its exit code.
func run(ctx context.Context, args []string) int {
	return runWithin(ctx, 0, args)
}

// runWithin waits so long for a daemon that is starting. 0 means as long as a user's command does.
func runWithin(ctx context.Context, patience time.Duration, args []string) int {
	a := app.New(os.Stdin, os.Stdout, os.Stderr, version)
	a.Patience = patience
	defer a.Close()
	cmd := newCommand(a)
	cmd.SetArgs(args)
	a.JSON = slices.Contains(args, "--json") // an error of the flags is JSON, too
	err := cmd.ExecuteContext(ctx)
	return a.Exit(ctx, err)
}

func newCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bbctl",
		Short: "Put files into a Forebay burst buffer, get them, drain and watch it",
		Long: `bbctl works with Forebay buffers. ` + app.AddressHelp + `

It uses the daemon of this node: --socket, else $FOREBAY_SOCKET, else the
well-known places that bbd uses; bbctl context names daemons elsewhere. Errors are one line on standard error, with --json
a JSON object. Names are printed as ls -b prints them, but for spaces.

` + app.ExitCodesHelp,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cli.FlagErrors(cmd, app.Usage)
	cmd.PersistentFlags().StringVar(&a.Address, "socket", "", "daemon: path of its socket, unix:///path or tcp://host:port")
	cmd.PersistentFlags().StringVar(&a.Context, "context", "", "name of a cluster (see bbctl context)")
	cmd.PersistentFlags().StringVar(&a.KeyFile, "key-file", "", "file with the cluster key, for tcp:// (default $FOREBAY_KEY_FILE)")
	cmd.PersistentFlags().StringVar(&a.Token, "token-file", "", "file with a token (see bbctl token), for tcp:// (default $FOREBAY_TOKEN_FILE)")
	cmd.PersistentFlags().StringVar(&a.TLS.CA, "tls-ca", "", "file with the certificates that sign the daemons', for tcp:// with TLS (default $FOREBAY_TLS_CA)")
	cmd.PersistentFlags().StringVar(&a.TLS.Cert, "tls-cert", "", "file with a client's certificate (default $FOREBAY_TLS_CERT)")
	cmd.PersistentFlags().StringVar(&a.TLS.Key, "tls-key", "", "file with its key, readable by its owner only (default $FOREBAY_TLS_KEY)")
	cmd.PersistentFlags().BoolVar(&a.JSON, "json", false, "print JSON: one value, or a line each of a stream")
	cmd.PersistentFlags().StringVar(&a.ProgressMode, "progress", "auto", "show the progress of copies: auto (on a terminal), always (elsewhere a line every 10 s), never")
	cmd.PersistentFlags().BoolVar(&a.NoGlob, "no-glob", false, "take *, ?, [ and { in paths of buffers as they are")
	cmd.PersistentFlags().DurationVar(&a.Timeout, "timeout", 0, "give up after so long, with exit code 8 (default: wait)")
	cmd.AddCommand(slices.Concat(
		buffers.Commands(a), files.Commands(a), copying.Commands(a), jobs.Commands(a), cluster.Commands(a), mount.Commands(a), status.Commands(a), doctor.Commands(a), slurm.Commands(a),
		[]*cobra.Command{app.NewContextCommand(a), newManCommand(a), newVersionCommand(a), newBenchCommand(a)},
	)...)
	complete(a, cmd)
	warnOfBash(cmd)
	a.LimitWaits(cmd)
	cli.RefuseUnknown(cmd, app.Usage)
	return cmd
}

func newVersionCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of bbctl and of the daemon", Args: cobra.NoArgs,
		Example: "  bbctl version --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Bbctl  string `json:"bbctl"`
				Daemon string `json:"daemon,omitempty"`
			}{Bbctl: version}
			a.AtOnce = true
			if c, err := a.Dial(cmd.Context()); err == nil {
				v.Daemon = c.Server().Version
			}
			return a.Print(v, func() {
				fmt.Fprintln(a.Out, "bbctl", v.Bbctl)
				if v.Daemon != "" {
					fmt.Fprintln(a.Out, v.Daemon)
				}
			})
		},
	}
}
