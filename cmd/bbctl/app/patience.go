package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/internal/bb"
)

// LimitWaits applies to cmd and every command below it. When --timeout has passed, the command ends.
// When its work has shown no progress for saysAfter, it prints the reason of its wait.
func (a *App) LimitWaits(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.LimitWaits(c)
	}
	work := cmd.RunE
	if work == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.Timeout < 0 {
			return Usage("--timeout is negative")
		}
		if err := checkProgress(a.ProgressMode); err != nil {
			return err
		}
		a.Slurm = strings.HasPrefix(cmd.CommandPath(), "bbctl slurm")
		named := args
		if backing := cmd.Flags().Lookup("backing"); backing != nil {
			named = append(slices.Clone(args), backing.Value.String())
		}
		defer a.printWait(waitLine(cmd.CommandPath(), named))()
		if a.Timeout == 0 {
			return work(cmd, args)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), a.Timeout)
		defer cancel()
		cmd.SetContext(ctx)
		err := work(cmd, args)
		if err != nil && ctx.Err() == context.DeadlineExceeded {
			return timedOut(cmd, a.Timeout, err)
		}
		return err
	}
}

// timedOut is the error of a command that --timeout ended.
func timedOut(cmd *cobra.Command, limit time.Duration, err error) error {
	return &client.Error{
		Kind: client.ErrCancelled, Op: strings.TrimPrefix(cmd.CommandPath(), "bbctl "),
		Err:    fmt.Errorf("the timeout of %v passed: %w", limit, err),
		Remedy: "check the daemon and the store, then try again or wait longer",
	}
}

// printWait prints line if the command is still without output or progress after SaysAfter,
// once. The function that it returns ends that.
func (a *App) printWait(line string) (stop func()) {
	if line == "" || a.JSON {
		return func() {}
	}
	printed := make(chan struct{})
	timer := time.AfterFunc(SaysAfter, func() {
		defer close(printed)
		if atomic.CompareAndSwapUint32(&a.heard, 0, 1) {
			if atomic.LoadUint32(&a.starting) == 1 {
				line = a.startingLine()
			}
			fmt.Fprintln(a.Err, line)
		}
	})
	return func() {
		if !timer.Stop() {
			<-printed
		}
	}
}

// quietCommands wait for something else than an answer, or report by themselves.
var quietCommands = []string{"bbctl bench", "bbctl slurm", "bbctl events", "bbctl jobs watch", "bbctl doctor", "bbctl completion", "bbctl man"}

// waitLine is the line for a command whose answer does not come, or "" if there is none.
func waitLine(path string, args []string) string {
	for _, quiet := range quietCommands {
		if path == quiet || strings.HasPrefix(path, quiet+" ") {
			return ""
		}
	}
	on := "the daemon, which may wait for a store or another node"
	for _, arg := range args {
		switch scheme, _, _ := strings.Cut(arg, "://"); {
		case arg == "-":
			return "" // standard input may be the slow part
		case scheme != arg && scheme != "bb":
			on = "the daemon, which uses " + bb.Printable(arg)
		}
	}
	return fmt.Sprintf("%s: no answer after %v: waiting for %s (--timeout limits it)", path, SaysAfter, on)
}
