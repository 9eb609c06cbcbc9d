// Package leaders spreads the leadership of the namespace's streams evenly over its servers. It must
// never know the content of a stream.
package leaders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/meta/conn"
	"forebay/meta/leaders/plan"
)

// Each stream has one leader, which does most of the work for it. The server draws one when the
// stream is made, and another when that stops. A server that comes back gets none. So after a
// rolling restart one server may lead nearly all (up to 23 of 24), and the one that started last
// none. Embedded servers are hard to change by hand, so the daemon whose server leads the cluster
// requests their handovers.

// Server has the further calls of a server in this process.
type Server interface {
	// Leads reports whether it leads its cluster. At most one server does, or for a moment none or
	// two.
	Leads() bool
}

const (
	evenEvery = time.Minute
	// evenAtOnce is how many streams are handed over in one go. Each makes its writers
	// wait until the next leader is in place.
	evenAtOnce = 8
)

// Keep evens out the leaders of the streams that ours selects by their names, while the server in
// this process leads its cluster.
func Keep(ctx context.Context, c *conn.Conn, server Server, ours func(stream string) bool) {
	tick := time.NewTicker(evenEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !server.Leads() {
			continue
		}
		if moved, err := Even(ctx, c, ours); err != nil && ctx.Err() == nil {
			c.Logger().Debug("the leaders of streams were not spread evenly", "moved", moved, "err", err)
		}
	}
}

// Even makes servers that lead more than twice their share of the streams hand some over to others
// that have copies of them, and returns the number of requests. Nothing is lost by that, nor if two
// do it at once.
func Even(ctx context.Context, c *conn.Conn, ours func(stream string) bool) (moved int, err error) {
	var streams []plan.Stream
	list := c.JetStream().ListStreams(ctx)
	for s := range list.Info() {
		if s.Cluster == nil || !ours(s.Config.Name) {
			continue
		}
		streams = append(streams, plan.Stream{Name: s.Config.Name, Leader: s.Cluster.Leader, Able: ableOf(s.Cluster)})
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return 0, conn.Wrap("list streams", "", err)
	}
	for _, h := range plan.HandOvers(streams, evenAtOnce) {
		if err := handOver(ctx, c, h); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

// ableOf returns the servers with copies that lack nothing.
func ableOf(c *jetstream.ClusterInfo) (able []string) {
	for _, p := range c.Replicas {
		if p.Current && !p.Offline {
			able = append(able, p.Name)
		}
	}
	return able
}

func handOver(ctx context.Context, c *conn.Conn, h plan.HandOver) error {
	body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": h.To}})
	if err != nil {
		return err
	}
	answer, err := c.Request(ctx, &nats.Msg{Subject: "$JS.API.STREAM.LEADER.STEPDOWN." + h.Stream, Data: body})
	if err != nil {
		return conn.Wrap("hand over", h.Stream, err)
	}
	var reply struct {
		Error *conn.APIError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &reply); err != nil {
		return conn.Wrap("hand over", h.Stream, err)
	}
	if reply.Error != nil {
		return conn.Wrap("hand over", h.Stream, fmt.Errorf("to %s: %w", h.To, reply.Error))
	}
	c.Logger().Info("a namespace server hands over", "stream", h.Stream, "from", h.From, "to", h.To)
	return nil
}
