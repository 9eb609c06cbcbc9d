package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bb"
)

func newTxnCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "txn", Short: "List, show and abort transactions over a buffer's namespace",
		Long: `A transaction makes the output of many tasks part of one directory in one step. Readers see
all of it or nothing. Programs begin and commit transactions. The daemons abort one that
is not renewed. Those that are over are listed for a day.`,
	}
	cmd.AddCommand(newTxnListCommand(a), newTxnShowCommand(a), newTxnAbortCommand(a))
	return cmd
}

func newTxnListCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "list [BUFFER]", Short: "List the transactions of a buffer, or of all, the newest first", Args: cobra.MaximumNArgs(1),
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			if len(args) == 0 {
				buffers, err := admin.Buffers(ctx, c)
				if err != nil {
					return err
				}
				for i := range buffers {
					args = append(args, buffers[i].Name)
				}
			}
			all := []client.TxnInfo{}
			for _, name := range args {
				some, err := c.Buffer(name).Txns(ctx)
				if err != nil {
					return err
				}
				all = append(all, some...)
			}
			return a.Print(all, func() {
				rows := [][]string{{"BUFFER", "ID", "STATE", "DESTINATION", "TASKS", "UID", "BEGUN"}}
				for i := range all {
					t := &all[i]
					rows = append(rows, []string{
						t.Buffer, t.ID, string(t.State), bb.Printable(t.Destination), fmt.Sprint(t.Tasks), fmt.Sprint(t.UID), app.Age(time.Since(t.Created).Seconds()) + " ago",
					})
				}
				a.Table(rows)
			})
		}),
	}
}

func newTxnShowCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "show BUFFER ID", Short: "Show a transaction", Args: cobra.ExactArgs(2),
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := c.Buffer(args[0]).Txn(args[1]).Info(ctx)
			if err != nil {
				return err
			}
			return a.Print(t, func() { printTxn(a, &t) })
		}),
	}
}

func newTxnAbortCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "abort BUFFER ID", Short: "Abort a transaction, and remove the files written under it", Args: cobra.ExactArgs(2),
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			t, err := c.Buffer(args[0]).Txn(args[1]).Abort(ctx)
			if err != nil {
				return err
			}
			return a.Print(t, func() { printTxn(a, &t) })
		}),
	}
}

func printTxn(a *app.App, t *client.TxnInfo) {
	fmt.Fprintf(a.Out, "%s: into bb://%s/%s, by uid %d\n", t.ID, t.Buffer, bb.Printable(t.Destination), t.UID)
	fmt.Fprintf(a.Out, "%s, begun %s ago, %s adopted, lease %s\n", t.State, app.Age(time.Since(t.Created).Seconds()), bb.Count(t.Tasks, "task"), t.Lease)
	if t.Key != "" {
		fmt.Fprintln(a.Out, "key:", t.Key)
	}
	if len(t.Replace) > 0 {
		fmt.Fprintln(a.Out, "replaces:", bb.Printable(strings.Join(t.Replace, " ")))
	}
	if t.Reason != "" {
		fmt.Fprintln(a.Out, "because:", t.Reason)
	}
}
