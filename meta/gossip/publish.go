package gossip

import (
	"time"
)

// pace says how often bytes are worth a message. Each message goes to every member,
// and each member sends on only so much: with memberlist's LAN settings about five
// different records a second reach everybody, whatever the size of the cluster. So
// all members together publish no more than that.
type pace struct {
	least time.Duration // between two messages of one member
	share time.Duration // for each member of the cluster
}

func newPace(o *Options) pace {
	if o.WAN {
		return pace{least: 5 * time.Second, share: time.Second}
	}
	return pace{least: time.Second, share: 250 * time.Millisecond}
}

// due returns how long after the last message the next one is due, in a cluster of so
// many members; false: there is nothing to say.
func (p pace) due(said, want Member, members int) (time.Duration, bool) {
	gap := max(p.least, time.Duration(members)*p.share)
	words := want
	words.Memory, words.Disk, words.Since = said.Memory, said.Disk, said.Since
	switch {
	case words != said:
		return 0, true
	case want.Memory.far(said.Memory) || want.Disk.far(said.Disk):
		return gap, true
	case want.Memory != said.Memory || want.Disk != said.Disk:
		return 8 * gap, true
	default:
		return 0, false
	}
}

// far reports whether somebody who believes in said would decide otherwise: a change
// by a sixteenth of the capacity, or from or to nothing.
func (t Tier) far(said Tier) bool {
	step := max(t.Capacity/16, mebibyte)
	apart := func(a, b int64) bool { return a-b >= step || b-a >= step || (a == 0) != (b == 0) }
	return t.Capacity != said.Capacity || apart(t.Free, said.Free) || apart(t.Dirty, said.Dirty)
}

// publish spreads what Update sets, in its pace, until Close.
func (g *Gossip) publish() {
	last := time.Now()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		members, _ := g.count()
		g.mu.Lock()
		said, want := g.mu.said, g.mu.self
		g.mu.Unlock()
		wait := time.Hour
		if after, some := g.pace.due(said, want, members); some {
			if wait = time.Until(last.Add(after)); wait <= 0 {
				g.spread(time.Second)
				last = time.Now()
				continue
			}
		}
		timer.Reset(wait)
		select {
		case <-g.ctx.Done():
			return
		case <-g.kick:
		case <-timer.C:
		}
	}
}

// spread broadcasts our record. It returns when it has been sent on, or after a while;
// then it goes on by itself.
func (g *Gossip) spread(patience time.Duration) {
	g.spreading.Lock()
	defer g.spreading.Unlock()
	g.stats.published.Add(1)
	if err := g.list.UpdateNode(patience); err != nil {
		g.log.Debug("gossip: a record waits to be sent", "error", err)
	}
}
