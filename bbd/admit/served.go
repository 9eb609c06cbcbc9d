package admit

import (
	"cmp"
	"maps"
)

// Served records how many bytes each user, buffer and client has received, on which turns depend.
// The zero value is ready. Decide returns a new one and does not change its argument.
//
// It is start-time fair queueing (Goyal, Vin and Cheng, 1996) with equal weights, among users,
// among the buffers of each and among the clients of these. A tag counts the bytes received, the
// lowest tag is next, and one that comes back after a pause starts at the virtual time, the tag of
// the last one served, if that is later than its old tag. So a pause earns nothing and costs
// nothing.
type Served struct {
	users   turns
	buffers map[string]turns // by user
	clients map[string]turns // by buffer
}

// maxTags bounds the tags that are kept of those that do not wait now. Beyond it all start level
// again.
const maxTags = 4096

type turns struct {
	virtual int64
	tags    map[string]int64 // only those later than virtual
}

func (t turns) tag(name string) int64 { return max(t.virtual, t.tags[name]) }

// add adds bytes to the tag of name. t.tags must not be nil.
func (t *turns) add(name string, bytes int64) {
	start := t.tag(name)
	t.virtual = start
	t.tags[name] = start + bytes
}

func (t turns) copy() turns {
	c := turns{t.virtual, make(map[string]int64, len(t.tags))}
	if len(t.tags) > maxTags {
		return c
	}
	for name, tag := range t.tags {
		if tag > t.virtual {
			c.tags[name] = tag
		}
	}
	return c
}

// copy returns a copy to work on, or an empty one when no request waits. Then there is nothing to
// be fair about.
func (v Served) copy(waiting bool) Served {
	if !waiting || len(v.clients) > maxTags || len(v.buffers) > maxTags {
		return Served{turns{tags: map[string]int64{}}, map[string]turns{}, map[string]turns{}}
	}
	return Served{v.users.copy(), maps.Clone(v.buffers), maps.Clone(v.clients)}
}

// next returns the one that has the turn.
func (v Served) next(queue []Request) int {
	best := 0
	for i := range queue {
		if v.compare(&queue[i], &queue[best]) < 0 {
			best = i
		}
	}
	return best
}

func (v Served) compare(a, b *Request) int {
	return cmp.Or(
		cmp.Compare(v.users.tag(a.User), v.users.tag(b.User)),
		cmp.Compare(a.User, b.User),
		cmp.Compare(v.buffers[a.User].tag(a.Buffer), v.buffers[b.User].tag(b.Buffer)),
		cmp.Compare(a.Buffer, b.Buffer),
		cmp.Compare(v.clients[a.Buffer].tag(a.Client), v.clients[b.Buffer].tag(b.Client)),
		cmp.Compare(a.Client, b.Client),
		cmp.Compare(b.Age, a.Age), // oldest first
		cmp.Compare(a.ID, b.ID),
	)
}

func (v *Served) add(r Request, bytes int64) {
	v.users.add(r.User, bytes)
	buffers := v.buffers[r.User].copy()
	buffers.add(r.Buffer, bytes)
	if v.buffers == nil {
		v.buffers = map[string]turns{}
	}
	v.buffers[r.User] = buffers
	clients := v.clients[r.Buffer].copy()
	clients.add(r.Client, bytes)
	if v.clients == nil {
		v.clients = map[string]turns{}
	}
	v.clients[r.Buffer] = clients
}
