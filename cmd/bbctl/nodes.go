package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"forebay/client"
)

func newNodesCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "List the cluster's daemons, how full they are, since when, which version", Args: cobra.NoArgs,
		Long: `Lists the daemons as the one that is asked knows them. PROTOCOL says which versions of the
protocol each speaks; one that is "refused" has none in common with the daemon that is
asked, is not asked anything, and is named with the reason and what to upgrade.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			nodes, err := c.Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(nodes, func() { a.printNodes(nodes) })
		},
	}
}

func (a *app) printNodes(nodes []client.Node) {
	rows := [][]string{{"NODE", "STATE", "FOR", "MEMORY", "FREE", "DIRTY", "DISK", "FREE", "DIRTY", "VERSION", "PROTOCOL", "ADDRESS"}}
	for _, n := range nodes {
		row := []string{string(n.Name), n.State, age(time.Since(n.Since).Seconds())}
		for _, t := range []client.TierUsage{n.Memory, n.Disk} {
			if t.Capacity == 0 {
				row = append(row, "-", "-", "-")
			} else {
				row = append(row, size(t.Capacity), size(t.Free), size(t.Dirty))
			}
		}
		rows = append(rows, append(row, n.Server, protocol(n), n.Session))
	}
	a.table(rows)
	for _, n := range nodes {
		if n.Refused != "" {
			fmt.Fprintf(a.out, "%s is not asked: %s\n", n.Name, n.Refused)
		}
	}
}

// protocol is the range of versions that a node speaks.
func protocol(n client.Node) string {
	text := fmt.Sprint(n.MinVersion)
	if n.MaxVersion != n.MinVersion {
		text = fmt.Sprintf("%d-%d", n.MinVersion, n.MaxVersion)
	}
	if n.Refused != "" {
		text += " refused"
	}
	return text
}

func newNodeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Take nodes out of the cluster", Args: cobra.NoArgs}
	cmd.AddCommand(newNodeDrainCommand(a), newNodeForgetCommand(a))
	return cmd
}

func newNodeDrainCommand(a *app) *cobra.Command {
	var to []string
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Flush or move everything off a node, so that it can be stopped", Args: cobra.ExactArgs(1),
		Long: `Flushes what the node holds that is not on the store, and moves what cannot be flushed
(buffers without a store, names that are held back) to other nodes. With --to, what those
nodes have room for is moved to them through the fabric, and flushed there. The node takes
nothing in from then on; when this ends with 0, its daemon may be stopped. What could
not be saved is listed, and the exit code says so.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			return a.report("node drain", func(show func(client.Progress)) (client.Report, error) {
				return c.DrainNode(cmd.Context(), client.NodeID(args[0]), show, nodeIDs(to)...)
			})
		},
	}
	cmd.Flags().StringSliceVar(&to, "to", nil, "nodes that are to have what is not on a store")
	return cmd
}

func nodeIDs(names []string) []client.NodeID {
	var ids []client.NodeID
	for _, n := range names {
		ids = append(ids, client.NodeID(n))
	}
	return ids
}

func newNodeForgetCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "forget NODE", Short: "Declare a node dead, and list what was lost with it", Args: cobra.ExactArgs(1),
		Long: `Says that a node will not come back with its memory. Files that it alone held are lost
from then on, and listed; files that are on the store go on without it. Until then they
are unavailable, and come back with the node. A node whose daemon answers is refused.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.dial(cmd.Context())
			if err != nil {
				return err
			}
			f, err := c.ForgetNode(cmd.Context(), client.NodeID(args[0]))
			if err != nil {
				return err
			}
			return a.print(f, func() {
				for _, e := range f.Lost {
					fmt.Fprintf(a.out, "lost: %s, %s\n", e.Path, size(e.Size))
				}
				if more := f.LostTotal - int64(len(f.Lost)); more > 0 {
					fmt.Fprintf(a.out, "and %d more\n", more)
				}
				fmt.Fprintf(a.out, "%d files of %s are lost, %d are kept\n", f.LostTotal, size(f.LostBytes), f.Kept)
			})
		},
	}
}
