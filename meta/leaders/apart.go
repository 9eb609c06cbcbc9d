package leaders

import (
	"context"
	"hash/fnv"
	"time"

	"forebay/meta/conn"
	"forebay/meta/leaders/plan"
)

// The owner of a namespace's log has it in memory, and the leader of the log's stream orders its appends. If both are
// on one machine, its death costs the election of a leader first (some seconds), and then the claim of an owner. If they are
// on two, a death costs one of these. So an owner with a server in its process makes that hand the stream over.

const (
	// apartEvery is how often an owner checks which server leads its stream. The check sends nothing.
	apartEvery = 200 * time.Millisecond
	// apartAfter is for how long the server beside an owner that answers calls leads its stream before it hands that
	// over, since the callers wait meanwhile. An owner that answers none yet does not wait.
	apartAfter = 5 * time.Second
	passWithin = 2 * time.Second
)

// Local has the calls of a server in this process about the streams that it leads.
type Local interface {
	// LeadsStream reports whether it leads a stream.
	LeadsStream(name string) bool
}

// Apart makes the server in this process hand a stream over while this process owns it, until the context ends. Owned
// reports whether it does, and whether it answers calls.
func Apart(ctx context.Context, c *conn.Conn, server Local, stream string, owned func() (is, answers bool)) {
	tick := time.NewTicker(apartEvery)
	defer tick.Stop()
	var since time.Time // when the server was found to lead the stream
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		is, answers := owned()
		switch {
		case !is || !server.LeadsStream(stream):
			since = time.Time{}
			continue
		case since.IsZero():
			since = time.Now()
		}
		if answers && time.Since(since) < apartAfter {
			continue
		}
		since = time.Time{}
		if err := pass(ctx, c, stream); err != nil && ctx.Err() == nil {
			c.Logger().Debug("the leader of a log stays beside its owner", "stream", stream, "err", err)
		}
	}
}

// pass makes the leader of a stream hand it over to another server with a copy that lacks nothing. Each stream
// prefers another one of them.
func pass(ctx context.Context, c *conn.Conn, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, passWithin)
	defer cancel()
	s, err := c.JetStream().Stream(ctx, stream)
	if err != nil {
		return conn.Wrap("hand over", stream, err)
	}
	led := s.CachedInfo().Cluster
	if led == nil {
		return nil
	}
	able := ableOf(led)
	if len(able) == 0 || led.Leader == "" {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(stream))
	return handOver(ctx, c, plan.HandOver{Stream: stream, From: led.Leader, To: able[int(h.Sum32()%uint32(len(able)))]})
}
