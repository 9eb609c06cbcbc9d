package backings

import (
	"time"

	"golang.org/x/time/rate"

	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// All daemons together keep to flush.cluster_limit without messages between them. Each works its
// share out of gossip, every second.
const (
	shareEvery = time.Second
	// A daemon's announcement of this age has reached all others. Gossip spreads the news of dirty
	// bytes within a second, or in large clusters within a hundredth of one for each member. Far
	// apart it takes five times as long, which settleMember allows for (gossip/publish.go). Twice
	// that.
	settleLeast  = 2 * time.Second
	settleMember = 100 * time.Millisecond
	// All daemons together may use the burst of a shared limit.
	shareBurst = 256 << 10
)

// fairShare returns a daemon's share of a limit, in bytes a second. Members are all known members,
// the daemon itself too. busy is how long it has had dirty bytes, as it has announced to the
// others, or 0 if it has none.
//
// A daemon that has nothing to flush, or has had for a moment only, keeps to an equal share, so
// that no more than the limit is used when all begin at once. A daemon that has had dirty bytes
// for long enough to have reached all others has also the share that idle daemons leave.
func fairShare(limit int64, self bb.NodeID, busy time.Duration, members []gossip.Member) int64 {
	all, flushing := int64(1), int64(1) // itself
	for _, m := range members {
		if m.Node == self || !cluster.Serving(m.State) {
			continue
		}
		all++
		if m.Memory.Dirty > 0 || m.Disk.Dirty > 0 {
			flushing++
		}
	}
	if busy < max(settleLeast, time.Duration(all)*settleMember) {
		return max(limit/all, 1)
	}
	return max(limit/flushing, 1)
}

// clusterLimiter returns the limiter of this daemon's share, nil if there is no limit.
func clusterLimiter(limit int64) *rate.Limiter {
	if limit <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(limit), shareBurst)
}

// KeepShare keeps this daemon, node, to its share of the cluster's limit. It sets the share before it
// returns, and anew every second until the pool's context ends. Dirty reports whether there is
// something to flush.
func (s *Pool) KeepShare(node bb.NodeID, members func() []gossip.Member, dirty func() bool) {
	if s.cluster == nil {
		return
	}
	var since time.Time // when this daemon first had dirty bytes at a check
	divide := func() {
		if !dirty() {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		}
		var busy time.Duration
		if !since.IsZero() {
			busy = time.Since(since)
		}
		share := fairShare(s.o.ClusterLimit, node, busy, members())
		s.cluster.SetLimit(rate.Limit(share))
	}
	divide()
	s.o.Go(func() {
		tick := time.NewTicker(shareEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				divide()
			case <-s.ctx.Done():
				return
			}
		}
	})
}
