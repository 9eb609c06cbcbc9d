package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"

	"forebay/client"
	"forebay/internal/cli"
)

// Exit prints the error of a command and returns the exit code.
func (a *App) Exit(ctx context.Context, err error) int {
	out, ok := a.Out.(*output)
	if err == nil || ok && out.closed { // the reader of a closed output has had enough
		return cli.ExitDone
	}
	if ctx.Err() != nil {
		if a.Job == "" {
			fmt.Fprintln(a.Err, "bbctl: cancelled")
			a.sayLeft()
		} else {
			fmt.Fprintf(a.Err, "bbctl: interrupted; the daemons go on with it (bbctl jobs watch %[1]s, bbctl jobs cancel %[1]s)\n", a.Job)
		}
		return cli.ExitCancelled
	}
	a.printError(err)
	a.sayLeft()
	return ExitCode(err)
}

// sayLeft prints the effect of a removal that did not come to its end.
func (a *App) sayLeft() {
	if a.Left != "" && !a.JSON {
		fmt.Fprintln(a.Err, "bbctl:", a.Left)
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

func (a *App) printError(err error) {
	line := strings.ReplaceAll(err.Error(), "\n", "; ")
	if !a.JSON {
		fmt.Fprintln(a.Err, "bbctl:", line)
		return
	}
	j := errorJSON{Error: line, Kind: client.KindOf(err).String(), Unknown: errors.Is(err, client.ErrUnknownOutcome), Exit: ExitCode(err)}
	var e *client.Error
	if errors.As(err, &e) {
		j.Op, j.Path, j.Node = e.Op, e.Path, string(e.Node)
		_, j.Remedy = e.Why()
	}
	json.NewEncoder(a.Err).Encode(j)
}

// output is standard output, and records whether its reader has closed it. A broken
// connection to a daemon is the same error, and no reason to succeed.
type output struct {
	io.Writer
	closed bool
	heard  *uint32 // set when something is printed; nil: unused
}

func (o *output) Write(p []byte) (int, error) {
	if o.heard != nil {
		atomic.StoreUint32(o.heard, 1)
	}
	n, err := o.Writer.Write(p)
	o.closed = o.closed || errors.Is(err, syscall.EPIPE)
	return n, err
}

// ExitCodesHelp describes the exit codes. They are stable.
const ExitCodesHelp = `Exit codes:
   0  everything requested was done
   1  another error
   2  the command line or a value in it is wrong
   3  not found
   4  no permission
   5  the daemon, the namespace or the store cannot be reached now: try again
   6  bytes are lost, or fail their checksum
   7  a part was done: the rest is listed
   8  cancelled, or the timeout passed
   9  it exists, is busy, not empty, or of the wrong type
  10  no space`

// partly is the error of a command that did a part of its work and listed the rest.
type partly struct{ error }

// Partly makes the error of a command that did a part of its work and printed the rest.
func Partly(err error) error { return partly{err} }

func ExitCode(err error) int {
	var p partly
	if errors.As(err, &p) {
		return cli.ExitPartly
	}
	if strings.HasPrefix(err.Error(), "required flag(s)") {
		return cli.ExitUsage // cobra's own words
	}
	return cli.CodeOf(err)
}

// Usage makes an error of a fault in the command line.
func Usage(why string) error {
	return &client.Error{Kind: client.ErrInvalid, Op: "command line", Err: errors.New(why), Remedy: "see bbctl --help"}
}
