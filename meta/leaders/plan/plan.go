// Package plan plans which servers hand over streams that they lead. It is pure. It must never send a request,
// nor know the content of a stream.
package plan

import (
	"cmp"
	"slices"
)

// Stream is a stream, the server that leads it ("": none does), and those that could.
type Stream struct {
	Name   string
	Leader string
	Able   []string
}

// HandOver is a change of a stream's leader.
type HandOver struct{ Stream, From, To string }

// HandOvers returns the handovers, at most so many. A server that leads no more than twice its
// share of the streams hands none over, since each costs writers a moment, and leaders drawn at
// random are seldom even. Others do so until the one with most leads one more than another, as far
// as that has copies of the first one's streams.
func HandOvers(streams []Stream, most int) (all []HandOver) {
	streams = slices.Clone(streams)
	slices.SortFunc(streams, func(a, b Stream) int { return cmp.Compare(a.Name, b.Name) })
	count := map[string]int{}
	for _, s := range streams {
		if s.Leader != "" {
			count[s.Leader]++
		}
		for _, server := range s.Able {
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
			for _, server := range s.Able {
				if more := count[s.Leader] - count[server]; over[s.Leader] && more > gain {
					best, to, gain = i, server, more
				}
			}
		}
		if best < 0 {
			break
		}
		s := &streams[best]
		all = append(all, HandOver{s.Name, s.Leader, to})
		count[s.Leader]--
		count[to]++
		s.Leader, s.Able = to, nil // once is enough
	}
	return all
}
