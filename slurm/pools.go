package slurm

import (
	"context"
	"encoding/json"
	"path/filepath"

	"forebay/client"
	"forebay/client/admin"
)

// Pool is a pool in Slurm's form: counts of granules.
type Pool struct {
	ID          string `json:"id"`
	Units       string `json:"units"`
	Granularity int64  `json:"granularity"` // bytes
	Quantity    int64  `json:"quantity"`
	Free        int64  `json:"free"`
}

// poolsFile holds the last Pools, for slurm_bb_pools, since it runs inside slurmctld, where
// requests are forbidden.
const poolsFile = "pools.json"

// Pools requests the capacity from the daemons, and writes it where slurm_bb_pools finds it. Bytes
// granted to jobs count as used whether they have written yet or not. Others' bytes in memory count
// too.
func (h *Hooks) Pools(ctx context.Context) ([]Pool, error) {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	nodes, err := admin.Nodes(ctx, c)
	if err != nil {
		return nil, err
	}
	lives, err := admin.Lifetimes(ctx, c, "")
	if err != nil {
		return nil, err
	}
	pools := poolsOf(nodes, grantedOf(lives), &h.Settings)
	text, err := json.Marshal(struct {
		Pools []Pool `json:"pools"`
	}{pools})
	if err != nil {
		return nil, err
	}
	return pools, writeWhole(filepath.Join(h.Settings.Folder, poolsFile), append(text, '\n'), 0o644)
}

// grantedOf counts by pool the bytes granted to jobs with buffers.
func grantedOf(lives []admin.Lifetime) map[string]int64 {
	granted := map[string]int64{}
	for i := range lives {
		if l := &lives[i]; l.SchedulerManaged && l.State != admin.LifetimeGone {
			granted[l.Pool] += l.Granted
		}
	}
	return granted
}

// poolsOf adds up the pools of the daemons that accept writes.
func poolsOf(nodes []admin.Node, granted map[string]int64, s *Settings) []Pool {
	var pools []Pool
	for _, name := range s.Pools {
		var total, used int64
		for i := range nodes {
			n := &nodes[i]
			if n.State != "ready" || n.Refused != "" {
				continue
			}
			tier := n.Memory
			if name == "disk" {
				tier = n.Disk
			}
			total += tier.Capacity
			// Clean memory can be evicted, and is free for Slurm.
			used += tier.Dirty
		}
		quantity := total / s.Granule
		taken := (max(used, granted[name]) + s.Granule - 1) / s.Granule
		pools = append(pools, Pool{ID: name, Units: "bytes", Granularity: s.Granule, Quantity: quantity, Free: max(0, quantity-taken)})
	}
	return pools
}
