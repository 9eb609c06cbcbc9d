package gossip

import (
	"time"
)

// pace is the time between a member's reports of its usage. Each entry goes to every member,
// and each sends it on a few times. Together they send a hundred times a second at
// most, which costs each of them about ten kilobytes a second.
type pace struct {
	least time.Duration // between two entries of one member
	share time.Duration // for each member of the cluster
}

func newPace(o *Options) pace {
	if o.WAN {
		return pace{least: 5 * time.Second, share: 50 * time.Millisecond}
	}
	return pace{least: time.Second, share: 10 * time.Millisecond}
}

// news is the entries that a member has to spread.
type news uint8

const (
	nothing news = iota
	figures      // how full it is
	words        // a whole record
)

// due returns the record to spread, and the delay after the last time, in a cluster of so many
// members.
func (p pace) due(said, want Member, members int) (news, time.Duration) {
	gap := max(p.least, time.Duration(members)*p.share)
	rest := want
	rest.Since = said.Since
	rest.Memory.Free, rest.Memory.Dirty = said.Memory.Free, said.Memory.Dirty
	rest.Disk.Free, rest.Disk.Dirty = said.Disk.Free, said.Disk.Dirty
	switch {
	case rest != said:
		return words, 0
	case want.Memory.far(said.Memory) || want.Disk.far(said.Disk):
		return figures, gap
	case usageOf(&want, 0) != usageOf(&said, 0):
		return figures, 8 * gap
	default:
		return nothing, 0
	}
}

// far reports whether a reader of the last report would decide otherwise by the present usage: a change
// by a sixteenth of the capacity, or from or to nothing.
func (t Tier) far(said Tier) bool {
	step := max(t.Capacity/16, mebibyte)
	apart := func(a, b int64) bool { return a-b >= step || b-a >= step || (a == 0) != (b == 0) }
	return apart(t.Free, said.Free) || apart(t.Dirty, said.Dirty)
}

// publish spreads the state of Update, in its pace, until Close.
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
		if what, after := g.pace.due(said, want, members); what != nothing {
			if wait = time.Until(last.Add(after)); wait <= 0 {
				g.tell(what)
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

func (g *Gossip) tell(what news) {
	if what == words {
		g.spread(time.Second)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.say()
}

// spread broadcasts our record. It returns when it has been sent on, or after a while. After that, it
// goes on in the background.
func (g *Gossip) spread(patience time.Duration) {
	g.spreading.Lock()
	defer g.spreading.Unlock()
	g.stats.published.Add(1)
	if err := g.list.UpdateNode(patience); err != nil {
		g.log.Debug("gossip: a record waits to be sent", "error", err)
	}
}
