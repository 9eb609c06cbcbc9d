package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/cmd/bbctl/jobs"
	"forebay/internal/bb"
)

func newNodesCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "List the cluster's daemons, how full they are, since when, which version", Args: cobra.NoArgs,
		Long: `Lists the daemons from the view of one of them. PROTOCOL has the versions of the protocol
of each. One that is "refused" has none in common with the answering daemon, gets no
request, and is named with the reason and the side to upgrade.`,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, _ []string) error {
			nodes, err := admin.Nodes(ctx, c)
			if err != nil {
				return err
			}
			return a.Print(nodes, func() { printNodes(a, nodes) })
		}),
	}
}

func printNodes(a *app.App, nodes []admin.Node) {
	rows := [][]string{{"NODE", "STATE", "FOR", "MEMORY", "FREE", "DIRTY", "DISK", "FREE", "DIRTY", "VERSION", "PROTOCOL", "ADDRESS"}}
	for _, n := range nodes {
		row := []string{string(n.Name), n.State, app.Age(time.Since(n.Since).Seconds())}
		for _, t := range []admin.TierUsage{n.Memory, n.Disk} {
			if t.Capacity == 0 {
				row = append(row, "-", "-", "-")
			} else {
				row = append(row, app.Size(t.Capacity), app.Size(t.Free), app.Size(t.Dirty))
			}
		}
		rows = append(rows, append(row, n.Server, protocol(n), n.Session))
	}
	a.Table(rows)
	for _, n := range nodes {
		if n.Refused != "" {
			fmt.Fprintf(a.Out, "%s is not asked: %s\n", n.Name, n.Refused)
		}
	}
}

// protocol is the range of a node's protocol versions.
func protocol(n admin.Node) string {
	text := fmt.Sprint(n.MinVersion)
	if n.MaxVersion != n.MinVersion {
		text = fmt.Sprintf("%d-%d", n.MinVersion, n.MaxVersion)
	}
	if n.Refused != "" {
		text += " refused"
	}
	return text
}

func newNodeCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Take nodes out of the cluster, and in again", Args: cobra.NoArgs}
	cmd.AddCommand(newNodeDrainCommand(a), newNodeUndrainCommand(a), newNodeForgetCommand(a))
	return cmd
}

func newNodeDrainCommand(a *app.App) *cobra.Command {
	var to []string
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Flush or move everything off a node, so that it can be stopped", Args: cobra.ExactArgs(1),
		Long: `Flushes the node's files that are not on the store, and moves those that cannot be flushed
(buffers without a store, names that are held back) to other nodes. With --to, the files that
fit there are moved to those nodes through the fabric, and flushed there. The node takes
nothing in from then on (bbctl node undrain ends that). When this ends with 0, its daemon
may be stopped. Unsaved files are listed, and change the exit code.`,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			return jobs.Report(a, "node drain", func(show func(admin.Progress)) (admin.Report, error) {
				return admin.DrainNode(ctx, c, admin.NodeID(args[0]), show, app.NodeIDs(to)...)
			})
		}),
	}
	cmd.Flags().StringSliceVar(&to, "to", nil, "nodes that are to receive files that are not on a store")
	return cmd
}

func newNodeUndrainCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "undrain NODE", Short: "Let a node that was drained take files in again", Args: cobra.ExactArgs(1),
		Long: `Undoes bbctl node drain: the node takes files in again. Files that were flushed or moved off it stay where
they are. A restart of its daemon does the same.`,
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			if err := admin.UndrainNode(ctx, c, admin.NodeID(args[0])); err != nil {
				return err
			}
			return a.Print(map[string]string{"undrained": args[0]}, func() { fmt.Fprintln(a.Out, args[0], "takes files in again") })
		}),
	}
}

func newNodeForgetCommand(a *app.App) *cobra.Command {
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "forget NODE", Short: "Declare a node dead, and list the files lost with it", Args: cobra.ExactArgs(1),
		Long: `Declares that a node will not come back with its memory. Files that it alone held are lost
from then on, and listed. Files that are on the store continue without it. Until then they
are unavailable, and come back with the node. A node whose daemon answers is refused.

On a terminal it lists the files that would be lost, and asks. Without a terminal it is refused if
something would be lost, unless --yes is given. The exit code is 6 if something was lost.`,
		Example: "  bbctl node forget n7 --dry-run\n  bbctl node forget n7 --yes",
		RunE: a.WithDaemon(func(ctx context.Context, c *client.Client, args []string) error {
			node := admin.NodeID(args[0])
			if !yes || dryRun {
				loss, err := admin.NodeLoss(ctx, c, node)
				if err != nil {
					return err
				}
				if dryRun {
					return a.Print(loss, func() { printForgotten(a, &loss, "would be lost", "would be kept") })
				}
				if err := mayLose(a, node, &loss); err != nil {
					return err
				}
			}
			f, err := admin.ForgetNode(ctx, c, node)
			if err != nil {
				return err
			}
			if err := a.Print(f, func() { printForgotten(a, &f, "lost", "kept") }); err != nil {
				return err
			}
			return lossOf(node, &f)
		}),
	}
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only list the files that would be lost")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask, even if files are lost")
	return cmd
}

func printForgotten(a *app.App, f *admin.Forgotten, lost, kept string) {
	for _, e := range f.Lost {
		fmt.Fprintf(a.Out, "%s: %s, %s\n", lost, bb.Printable(e.Address), app.Size(e.Size))
	}
	if more := f.LostTotal - int64(len(f.Lost)); more > 0 {
		fmt.Fprintf(a.Out, "and %d more\n", more)
	}
	fmt.Fprintf(a.Out, "%s: %s of %s; %s: %d\n", lost, bb.Count(f.LostTotal, "file"), app.Size(f.LostBytes), kept, f.Kept)
}

// lossOf is the error of a node that took files along, or nil if it took none.
func lossOf(node admin.NodeID, f *admin.Forgotten) error {
	if f.LostTotal == 0 {
		return nil
	}
	return &client.Error{
		Kind: client.ErrLost, Op: "node forget", Path: string(node), Err: fmt.Errorf("%s lost, of %s", bb.Count(f.LostTotal, "file is", "files are"), app.Size(f.LostBytes)),
		Remedy: "write them again, or remove them: bbctl lost BUFFER lists them",
	}
}

// mayLose asks the user whether a node may be declared dead with its files. Without a terminal, it
// may if nothing is lost.
func mayLose(a *app.App, node admin.NodeID, loss *admin.Forgotten) error {
	if !a.Interactive() {
		if loss.LostTotal == 0 {
			return nil
		}
		return &client.Error{
			Kind: client.ErrBusy, Op: "node forget", Path: string(node),
			Err:    fmt.Errorf("%s of %s would be lost", bb.Count(loss.LostTotal, "file"), app.Size(loss.LostBytes)),
			Remedy: "--dry-run lists them, --yes loses them; they come back if the node does",
		}
	}
	return confirmLoss(a, node, loss)
}

// confirmLoss lists the files that would be lost, and asks the user.
func confirmLoss(a *app.App, node admin.NodeID, loss *admin.Forgotten) error {
	printForgotten(a, loss, "would be lost", "would be kept")
	if !a.Ask(fmt.Sprintf("Declare %s dead?", node)) {
		return app.Refused("node forget", string(node))
	}
	return nil
}
