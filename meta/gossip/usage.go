package gossip

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"time"

	"forebay/internal/bb"
)

// The usage of a member changes all the time, and a record of hundreds of bytes that
// goes to all members many times over is too dear for that. So bytes travel apart from
// records, as messages of many short entries, of this node and of others:
//
//	byte 0   format version, now 1
//	entries  16 bytes each: FNV-1a of the node's name (8), the time of the report, in tenths
//	         of a second by its clock (4), free and dirty in memory and on disk, in
//	         255ths of the capacity that its record names, free rounded down and dirty
//	         up (4)
//	4 bytes  CRC-32C of all before
const (
	usageVersion = 1
	usageHead    = 1
	usageEntry   = 16
	usageTail    = 4
	levels       = 255
)

// passes is how often a member sends on an entry that is new to it. If each does so to as many
// others at random, all but e^-5 of them, under one in a hundred, receive it. The rest receive the
// next one, or the member's state in an exchange.
const passes = 5

// usage is one entry.
type usage struct {
	node   uint64
	at     uint32
	levels [4]byte
}

func nodeHash(node bb.NodeID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	return h.Sum64()
}

// newer compares times that wrap around after thirteen years.
func newer(a, b uint32) bool { return int32(a-b) > 0 }

// usageOf returns the usage of a member.
func usageOf(m *Member, at uint32) usage {
	u := usage{node: nodeHash(m.Node), at: at}
	for i, t := range []Tier{m.Memory, m.Disk} {
		u.levels[2*i], u.levels[2*i+1] = t.level(t.Free, false), t.level(t.Dirty, true)
	}
	return u
}

// level is n in 255ths of the capacity.
func (t Tier) level(n int64, up bool) byte {
	if t.Capacity <= 0 || n <= 0 {
		return 0
	}
	l := float64(min(n, t.Capacity)) * levels / float64(t.Capacity)
	if up && float64(int(l)) < l {
		l++
	}
	return byte(min(l, levels))
}

// bytes is the opposite of level.
func (t Tier) bytes(level byte) int64 {
	if level == levels {
		return t.Capacity
	}
	return int64(float64(t.Capacity) * float64(level) / levels)
}

// apply sets the values of u.
func (m *Member) apply(u usage) {
	for i, t := range []*Tier{&m.Memory, &m.Disk} {
		t.Free, t.Dirty = t.bytes(u.levels[2*i]), t.bytes(u.levels[2*i+1])
	}
}

func encodeUsage(all []usage) []byte {
	b := make([]byte, 0, usageHead+len(all)*usageEntry+usageTail)
	b = append(b, usageVersion)
	for _, u := range all {
		b = binary.BigEndian.AppendUint64(b, u.node)
		b = binary.BigEndian.AppendUint32(b, u.at)
		b = append(b, u.levels[:]...)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeUsage returns the entries of a message. It checks everything.
func decodeUsage(b []byte) ([]usage, error) {
	n := len(b) - usageHead - usageTail
	switch {
	case n < 0 || n%usageEntry != 0:
		return nil, bb.E(bb.Invalid, "read gossip", "", "a message of a wrong length")
	case binary.BigEndian.Uint32(b[len(b)-usageTail:]) != crc32.Checksum(b[:len(b)-usageTail], castagnoli):
		return nil, bb.E(bb.Checksum, "read gossip", "", "a message's checksum is wrong")
	case b[0] != usageVersion:
		return nil, bb.E(bb.Unsupported, "read gossip", "", "a message in another format")
	}
	all := make([]usage, n/usageEntry)
	for i := range all {
		e := b[usageHead+i*usageEntry:]
		all[i] = usage{node: binary.BigEndian.Uint64(e), at: binary.BigEndian.Uint32(e[8:])}
		copy(all[i].levels[:], e[12:])
	}
	return all, nil
}

// rumours are the entries that a member has yet to send on, one a node at most, in
// turns.
type rumours struct {
	queue []uint64
	left  map[uint64]*rumour
}

type rumour struct {
	usage
	passes int
}

// add replaces the entry of the node.
func (r *rumours) add(u usage) {
	if old := r.left[u.node]; old != nil {
		old.usage, old.passes = u, passes
		return
	}
	if r.left == nil {
		r.left = map[uint64]*rumour{}
	}
	r.left[u.node] = &rumour{u, passes}
	r.queue = append(r.queue, u.node)
}

// take returns at most n entries to be sent once.
func (r *rumours) take(n int) []usage {
	n = min(n, len(r.queue))
	all := make([]usage, 0, n)
	turn := r.queue[:n]
	r.queue = r.queue[n:]
	for _, node := range turn {
		e := r.left[node]
		all = append(all, e.usage)
		if e.passes--; e.passes > 0 {
			r.queue = append(r.queue, node)
		} else {
			delete(r.left, node)
		}
	}
	return all
}

// now is the time of entries.
func now() uint32 { return uint32(time.Now().UnixMilli() / 100) }

// say spreads this node's usage. g.mu must be held.
func (g *Gossip) say() {
	g.stats.published.Add(1)
	said, self := &g.mu.said, &g.mu.self
	said.Memory.Free, said.Memory.Dirty = self.Memory.Free, self.Memory.Dirty
	said.Disk.Free, said.Disk.Dirty = self.Disk.Free, self.Disk.Dirty
	g.mu.saidAt = g.later()
	g.mu.rumours.add(usageOf(said, g.mu.saidAt))
}

// later is now, but later than the last report. g.mu must be held.
func (g *Gossip) later() uint32 {
	at := now()
	if !newer(at, g.mu.saidAt) {
		at = g.mu.saidAt + 1
	}
	return at
}

// hear adopts received usage of members. on means that it is sent on.
func (g *Gossip) hear(message []byte, on bool) {
	all, err := decodeUsage(message)
	if err != nil {
		g.stats.garbage.Add(1)
		g.log.Debug("gossip: a message is not read", "error", err)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := false
	for _, u := range all {
		s := g.mu.members[g.mu.byHash[u.node]]
		if s == nil || s.readErr || !newer(u.at, s.usage.at) {
			continue
		}
		s.usage, changed = u, true
		s.apply(u)
		if on {
			g.mu.rumours.add(u)
		}
	}
	if changed {
		g.announce()
	}
}

// allUsage is the recorded usage of all members.
func (g *Gossip) allUsage() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := []usage{usageOf(&g.mu.said, g.mu.saidAt)}
	for _, s := range g.mu.members {
		if !s.State.Gone() && !s.readErr {
			all = append(all, s.usage)
		}
	}
	return encodeUsage(all)
}
