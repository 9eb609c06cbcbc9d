package kv

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Each stream has one leader, which does most of the work for it. The server draws one
// when the stream is made, and another when that stops; a server that comes back gets
// none. So after a rolling restart one server may lead nearly all (23 of 24 were seen),
// and whoever started last none. Embedded servers can hardly be told otherwise by hand:
// the daemon whose server leads the cluster has them hand leaders over.

// Leads is what a server in this process may be asked besides.
type Leads interface {
	// Leads reports whether it leads its cluster: true of one server at most, or of none
	// or two for a moment.
	Leads() bool
}

const (
	evenEvery = time.Minute
	// evenAtOnce is how many streams are handed over in one go. Each makes its writers
	// wait until the next leader is in place.
	evenAtOnce = 8
)

// KeepEven evens out who leads the streams, of which ours tells by their names, while the
// server in this process leads its cluster.
func (c *Conn) KeepEven(ctx context.Context, server Leads, ours func(stream string) bool) {
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
		if moved, err := c.EvenLeaders(ctx, ours); err != nil && ctx.Err() == nil {
			c.log.Debug("spreading what servers lead", "moved", moved, "err", err)
		}
	}
}

// EvenLeaders has servers that lead more than twice their share of the streams hand some
// over to others that have copies of them, and returns how many it asked for. Nothing is
// lost by that, nor if two do it at once.
func (c *Conn) EvenLeaders(ctx context.Context, ours func(stream string) bool) (moved int, err error) {
	var streams []ledStream
	list := c.admin.ListStreams(ctx)
	for s := range list.Info() {
		if s.Cluster == nil || !ours(s.Config.Name) {
			continue
		}
		led := ledStream{name: s.Config.Name, leader: s.Cluster.Leader}
		for _, p := range s.Cluster.Replicas {
			if p.Current && !p.Offline {
				led.able = append(led.able, p.Name)
			}
		}
		streams = append(streams, led)
	}
	if err := list.Err(); err != nil && !errors.Is(err, jetstream.ErrEndOfData) {
		return 0, Wrap("list streams", "", err)
	}
	for _, h := range evenOut(streams, evenAtOnce) {
		if err := c.handOver(ctx, h); err != nil {
			return moved, err
		}
		moved++
	}
	return moved, nil
}

func (c *Conn) handOver(ctx context.Context, h handOver) error {
	body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": h.to}})
	if err != nil {
		return err
	}
	answer, err := c.request(ctx, &nats.Msg{Subject: "$JS.API.STREAM.LEADER.STEPDOWN." + h.stream, Data: body})
	if err != nil {
		return Wrap("hand over", h.stream, err)
	}
	var reply struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &reply); err != nil {
		return Wrap("hand over", h.stream, err)
	}
	if reply.Error != nil {
		return Wrap("hand over", h.stream, fmt.Errorf("to %s: %w", h.to, reply.Error))
	}
	c.log.Info("a namespace server hands over", "stream", h.stream, "from", h.from, "to", h.to)
	return nil
}

// ledStream is a stream, the server that leads it ("": none does), and those that could.
type ledStream struct {
	name   string
	leader string
	able   []string
}

type handOver struct{ stream, from, to string }

// evenOut returns what to hand over, at most so much. Nobody hands over who leads no more
// than twice their share of the streams, since each costs writers a moment, and those
// that are drawn at random are seldom even. Who does, does so until the one with most
// leads one more than another, as far as that has copies of what the first one leads.
func evenOut(streams []ledStream, most int) (all []handOver) {
	streams = slices.Clone(streams)
	slices.SortFunc(streams, func(a, b ledStream) int { return cmp.Compare(a.name, b.name) })
	count := map[string]int{}
	for _, s := range streams {
		if s.leader != "" {
			count[s.leader]++
		}
		for _, server := range s.able {
			count[server] += 0
		}
	}
	over := map[string]bool{}
	for server, n := range count {
		over[server] = n*len(count) > 2*len(streams)
	}
	for len(all) < most {
		best, to, gain := -1, "", 1
		for i, s := range streams {
			for _, server := range s.able {
				if more := count[s.leader] - count[server]; over[s.leader] && more > gain {
					best, to, gain = i, server, more
				}
			}
		}
		if best < 0 {
			break
		}
		s := &streams[best]
		all = append(all, handOver{s.name, s.leader, to})
		count[s.leader]--
		count[to]++
		s.leader, s.able = to, nil // once is enough
	}
	return all
}
