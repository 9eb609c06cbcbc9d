// Package app has the common parts of all commands of bbctl: the connection and its contexts, output and questions, errors
// and exit codes. It must never depend on a command.
package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"forebay/client"
	"forebay/internal/mounts"
)

// Connection is the address of the daemon, from the command line. Empty fields come from a context or the
// environment.
type Connection struct {
	Address string
	Context string // name of one; see contextHelp
	KeyFile string
	Token   string // file
	TLS     struct{ CA, Cert, Key string }
}

// App is the state shared by all commands: outputs, and the connection.
type App struct {
	Connection
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Version string // of bbctl
	JSON    bool
	Timeout time.Duration // of a whole command; 0: none
	NoGlob  bool          // paths are no patterns
	Slurm   bool          // the command is one of bbctl slurm

	ProgressMode string        // of --progress
	Left         string        // work of an unfinished removal; "": there is none
	AtOnce       bool          // an absent daemon is an answer, and is not waited for
	Patience     time.Duration // how long a daemon that is starting is waited for; 0: four seconds
	Job          string        // that the daemons continue when bbctl is interrupted

	heard    uint32 // atomic; 1: of its work, or that it waits, was printed
	starting uint32 // atomic; 1: no daemon answers yet
	chosen   bool   // Address is a context's or a mount's, not the command line's
	client   *client.Client
}

// New returns the app of a process.
func New(in io.Reader, out, errs io.Writer, version string) *App {
	a := &App{In: in, Err: errs, Version: version}
	a.Out = &output{Writer: out, heard: &a.heard}
	return a
}

// SetHeard records that a user has seen a sign of the command's work, so that no line about its wait is
// printed.
func (a *App) SetHeard() { atomic.StoreUint32(&a.heard, 1) }

// A daemon of this machine that was started right before a command is waited for.
const (
	startPause = 50 * time.Millisecond
	startTime  = 4 * time.Second // how long
	SaysAfter  = 2 * time.Second // that it waits
)

// Dial connects when the first command needs it. It waits a little for a daemon of this
// machine that is starting.
func (a *App) Dial(ctx context.Context) (*client.Client, error) {
	if a.client != nil {
		return a.client, nil
	}
	if err := a.UseContext(); err != nil {
		return nil, err
	}
	options := client.Options{
		Address: a.SocketAddress(), KeyFile: a.KeyFile, TokenFile: a.Token, CA: a.TLS.CA, Cert: a.TLS.Cert, Key: a.TLS.Key, Name: "bbctl " + a.Version,
	}
	began := time.Now()
	for {
		c, err := client.Dial(ctx, options)
		if client.KindOf(err) != client.ErrUnavailable || a.AtOnce || !a.local() || time.Since(began) > a.startTime() {
			atomic.StoreUint32(&a.starting, 0)
			a.client = c
			return c, ExplainStart(ctx, err)
		}
		atomic.StoreUint32(&a.starting, 1)
		if !a.JSON && time.Since(began) > SaysAfter && atomic.CompareAndSwapUint32(&a.heard, 0, 1) {
			fmt.Fprintln(a.Err, a.startingLine())
		}
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// WithDaemon returns the RunE of a command that needs the daemon. run has the connection of Dial.
func (a *App) WithDaemon(run func(ctx context.Context, c *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.Dial(cmd.Context())
		if err != nil {
			return err
		}
		return run(cmd.Context(), c, args)
	}
}

func (a *App) startTime() time.Duration { return cmp.Or(a.Patience, startTime) }

func (a *App) startingLine() string {
	return fmt.Sprintf("bbctl: no daemon answers yet: waiting %v for one that is starting", a.startTime())
}

// local reports whether the daemon runs on this machine.
func (a *App) local() bool {
	address := cmp.Or(a.SocketAddress(), os.Getenv("FOREBAY_SOCKET"))
	return !strings.Contains(address, "tcp://")
}

// SocketAddress is the daemon's address as --socket has it, or "" if it was not given.
func (a *App) SocketAddress() string { return mounts.Socket(a.Address) }

func (a *App) Close() {
	if a.client != nil {
		a.client.Close()
	}
}

// Buffer returns the buffer that an address, or a path below a mount, names, and the path in it.
func (a *App) Buffer(ctx context.Context, address string) (*client.Buffer, client.Address, error) {
	at, err := a.Locate(ctx, address)
	if err != nil {
		return nil, at, err
	}
	c, err := a.Dial(ctx)
	if err != nil {
		return nil, at, err
	}
	return c.Buffer(at.Buffer), at, nil
}

// Interactive reports whether a terminal can answer a question.
func (a *App) Interactive() bool {
	in, ok := a.In.(*os.File)
	if !ok || a.JSON || !term.IsTerminal(int(in.Fd())) {
		return false
	}
	out, ok := a.Err.(*os.File)
	return ok && term.IsTerminal(int(out.Fd()))
}

// Print prints v as JSON, or as text.
func (a *App) Print(v any, text func()) error {
	if !a.JSON {
		text()
		return nil
	}
	return json.NewEncoder(a.Out).Encode(v)
}

// Table prints rows in columns.
func (a *App) Table(rows [][]string) {
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	w.Flush()
}
