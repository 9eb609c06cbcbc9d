package node

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// emptyAtOnce is how many nodes are drained at a time.
const emptyAtOnce = 16

// Empty drains nodes that are about to go, by a list as Slurm writes it (n[1-3],n7). "" means the
// daemon's own. It returns the nodes without unsaved files, and logs the reasons of the others.
// Unsaved files may move to the nodes in to.
func Empty(ctx context.Context, c *Config, d *client.Client, list string, to []admin.NodeID) (empty []string, err error) {
	nodes := []string{string(d.Server().Node)}
	if list != "" {
		text, err := scontrol(ctx, "show", "hostnames", list)
		if err != nil {
			return nil, err
		}
		nodes = strings.Fields(text)
	}
	var mu sync.Mutex // guards empty
	var group errgroup.Group
	group.SetLimit(emptyAtOnce)
	for _, n := range nodes {
		group.Go(func() error {
			_, err := admin.DrainNode(ctx, d, admin.NodeID(n), nil, to...)
			if err != nil {
				c.Log("node %s is not to go yet: %v", n, err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			empty = append(empty, n)
			return nil
		})
	}
	_ = group.Wait()
	if len(empty) < len(nodes) {
		err = bb.E(bb.Busy, "empty", list, "some nodes still hold files that are on no store")
	}
	return empty, err
}
