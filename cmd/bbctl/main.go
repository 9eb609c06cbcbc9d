// Command bbctl is Forebay's command line, for users and operators.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"forebay/client"
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
	out := &output{Writer: os.Stdout}
	a := &app{in: os.Stdin, out: out, err: os.Stderr}
	out.heard = &a.heard
	defer a.close()
	cmd := newCommand(a)
	cmd.SetArgs(args)
	a.json = slices.Contains(args, "--json") // an error of the flags is JSON, too
	err := cmd.ExecuteContext(ctx)
	return a.exit(ctx, err, out.closed)
}

// exit prints the error of a command and returns the exit code. closed: standard output was
// closed by its reader.
func (a *app) exit(ctx context.Context, err error, closed bool) int {
	if err == nil || closed { // the reader of a closed output has had enough
		return exitDone
	}
	if ctx.Err() != nil {
		if a.job == "" {
			fmt.Fprintln(a.err, "bbctl: cancelled")
			a.sayLeft()
		} else {
			fmt.Fprintf(a.err, "bbctl: interrupted; the daemons go on with it (bbctl jobs watch %[1]s, bbctl jobs cancel %[1]s)\n", a.job)
		}
		return exitCancelled
	}
	a.printError(err)
	a.sayLeft()
	return exitCode(err)
}

// sayLeft prints what a removal that did not come to its end has done.
func (a *app) sayLeft() {
	if a.left != "" && !a.json {
		fmt.Fprintln(a.err, "bbctl:", a.left)
	}
}

// errorJSON is how an error is printed with --json, on standard error.
type errorJSON struct {
	Error   string `json:"error"` // all of it, in a line
	Kind    string `json:"kind"`
	Op      string `json:"op,omitempty"`
	Path    string `json:"path,omitempty"`
	Node    string `json:"node,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	Unknown bool   `json:"outcome_unknown,omitempty"`
	Exit    int    `json:"exit_code"`
}

func (a *app) printError(err error) {
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	if !a.json {
		fmt.Fprintln(a.err, "bbctl:", line)
		return
	}
	j := errorJSON{Error: line, Kind: client.KindOf(err).String(), Unknown: errors.Is(err, client.ErrUnknownOutcome), Exit: exitCode(err)}
	var e *client.Error
	if errors.As(err, &e) {
		j.Op, j.Path, j.Node = e.Op, e.Path, string(e.Node)
		_, j.Remedy = e.Why()
	}
	json.NewEncoder(a.err).Encode(j)
}

// output is standard output, and knows whether its reader has closed it. A broken
// connection to a daemon is the same error, and no reason to succeed.
type output struct {
	io.Writer
	closed bool
	heard  *uint32 // set when something is printed; nil: nobody asks
}

func (o *output) Write(p []byte) (int, error) {
	if o.heard != nil {
		atomic.StoreUint32(o.heard, 1)
	}
	n, err := o.Writer.Write(p)
	o.closed = o.closed || errors.Is(err, syscall.EPIPE)
	return n, err
}

// The exit codes. They are promised: see exitCodesHelp.
const (
	exitDone        = cli.ExitDone
	exitError       = cli.ExitError
	exitUsage       = cli.ExitUsage
	exitNotFound    = cli.ExitNotFound
	exitPermission  = cli.ExitPermission
	exitUnavailable = cli.ExitUnavailable
	exitDamaged     = cli.ExitDamaged
	exitPartly      = cli.ExitPartly
	exitCancelled   = cli.ExitCancelled
	exitConflict    = cli.ExitConflict
	exitNoSpace     = cli.ExitNoSpace
)

const exitCodesHelp = `Exit codes:
   0  everything that was asked for was done
   1  another error
   2  the command line or a value in it is wrong
   3  not found
   4  no permission
   5  the daemon, the namespace or the store cannot be reached now: try again
   6  bytes are lost, or fail their checksum
   7  a part was done: what was not is listed
   8  cancelled, or the timeout passed
   9  it exists, is busy, not empty, or of the wrong type
  10  no space`

// partly is the error of a command that did a part of its work and said what is left.
type partly struct{ error }

func exitCode(err error) int {
	var p partly
	if errors.As(err, &p) {
		return exitPartly
	}
	if strings.HasPrefix(err.Error(), "required flag(s)") {
		return exitUsage // cobra's own words
	}
	return cli.CodeOf(err)
}

func newCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bbctl",
		Short: "Put files into a Forebay burst buffer, get them, drain and watch it",
		Long: `bbctl works with Forebay buffers. Files in buffers are addressed bb://BUFFER/path.

It talks to the daemon of this node: --socket, else $FOREBAY_SOCKET, else the
well-known places that bbd uses; bbctl context names daemons elsewhere. Errors are one line on standard error, with --json
a JSON object. Names are printed as ls -b prints them, but for spaces.

` + exitCodesHelp,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cli.FlagErrors(cmd, usage)
	cmd.PersistentFlags().StringVar(&a.address, "socket", "", "daemon: path of its socket, unix:///path or tcp://host:port")
	cmd.PersistentFlags().StringVar(&a.context, "context", "", "name of a cluster (see bbctl context)")
	cmd.PersistentFlags().StringVar(&a.keyFile, "key-file", "", "file with the cluster key, for tcp:// (default $FOREBAY_KEY_FILE)")
	cmd.PersistentFlags().StringVar(&a.token, "token-file", "", "file with a token (see bbctl token), for tcp:// (default $FOREBAY_TOKEN_FILE)")
	cmd.PersistentFlags().StringVar(&a.tls.ca, "tls-ca", "", "file with the certificates that sign the daemons', for tcp:// with TLS (default $FOREBAY_TLS_CA)")
	cmd.PersistentFlags().StringVar(&a.tls.cert, "tls-cert", "", "file with a client's certificate (default $FOREBAY_TLS_CERT)")
	cmd.PersistentFlags().StringVar(&a.tls.key, "tls-key", "", "file with its key, readable by its owner only (default $FOREBAY_TLS_KEY)")
	cmd.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON: one value, or a line each of a stream")
	cmd.PersistentFlags().StringVar(&a.progressMode, "progress", "auto", "show the progress of copies: auto (on a terminal), always (elsewhere a line every 10 s), never")
	cmd.PersistentFlags().BoolVar(&a.noGlob, "no-glob", false, "take *, ?, [ and { in paths of buffers as they are")
	cmd.PersistentFlags().DurationVar(&a.timeout, "timeout", 0, "give up after so long, with exit code 8 (default: wait)")
	cmd.AddCommand(
		newBufferCommand(a), newPutCommand(a), newGetCommand(a), newCpCommand(a), newSyncCommand(a), newCatCommand(a), newLsCommand(a), newFindCommand(a), newTreeCommand(a), newStatCommand(a),
		newMvCommand(a), newRmCommand(a), newMkdirCommand(a), newDuCommand(a), newStageInCommand(a), newStageOutCommand(a),
		newDrainCommand(a), newReceiptCommand(a), newVerifyCommand(a), newOrphansCommand(a), newLostCommand(a),
		newNodesCommand(a), newNodeCommand(a), newClusterCommand(a), newTokenCommand(a), newJobsCommand(a), newTxnCommand(a),
		newMountCommand(a), newUmountCommand(a), newStatusCommand(a), newDoctorCommand(a), newEventsCommand(a), newSlurmCommand(a), newPlanCommand(a), newContextCommand(a), newManCommand(a), newVersionCommand(a), newBenchCommand(a),
	)
	a.complete(cmd)
	warnOfBash(cmd)
	a.limitWaits(cmd)
	cli.RefuseUnknown(cmd, usage)
	return cmd
}

// usage makes an error of what is wrong with the command line.
func usage(why string) error {
	return &client.Error{Kind: client.ErrInvalid, Op: "command line", Err: errors.New(why), Remedy: "see bbctl --help"}
}

func newVersionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of bbctl and of the daemon", Args: cobra.NoArgs,
		Example: "  bbctl version --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Bbctl  string `json:"bbctl"`
				Daemon string `json:"daemon,omitempty"`
			}{Bbctl: version}
			a.atOnce = true
			if c, err := a.dial(cmd.Context()); err == nil {
				v.Daemon = c.Server().Version
			}
			return a.print(v, func() {
				fmt.Fprintln(a.out, "bbctl", v.Bbctl)
				if v.Daemon != "" {
					fmt.Fprintln(a.out, v.Daemon)
				}
			})
		},
	}
}
