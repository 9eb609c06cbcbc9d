package namespace

import (
	"hash/maphash"
	"sync"
	"time"
)

const (
	cacheShards = 64
	// doubtTime is how long a key is not cached after a change of it whose outcome
	// is unknown: the server might still be about to carry it out.
	doubtTime = time.Minute
)

// cached is what is known of a key: its revision and, if it exists, its value.
type cached[V any] struct {
	value V
	seq   uint64
	live  bool
}

// cache holds the newest known revision of a bounded number of keys, for a process
// that makes all changes itself. A nil cache holds nothing.
//
// Answers of the server arrive here in any order, so what is known only moves
// forward: an older revision never replaces a newer one, nor takes the place of one
// that was forgotten since the request began (that is what a ticket tells).
type cache[K comparable, V any] struct {
	seed   maphash.Seed
	limit  int // keys in one shard
	shards [cacheShards]cacheShard[K, V]
}

type cacheShard[K comparable, V any] struct {
	sync.Mutex
	items     map[K]*item[K, V]
	newest    item[K, V] // ring: newest.next was used last, newest.prev first
	forgotten uint64     // how many were
	highest   uint64     // revision among the forgotten
}

type item[K comparable, V any] struct {
	key        K
	known      cached[V]
	doubt      time.Time // not to be used until then
	prev, next *item[K, V]
}

// ticket is the state of a key's shard when a request about it began.
type ticket uint64

func newCache[K comparable, V any](limit int) *cache[K, V] {
	c := &cache[K, V]{seed: maphash.MakeSeed(), limit: max(limit/cacheShards, 2)}
	for i := range c.shards {
		s := &c.shards[i]
		s.items = map[K]*item[K, V]{}
		s.newest.prev, s.newest.next = &s.newest, &s.newest
	}
	return c
}

func (c *cache[K, V]) shard(key K) *cacheShard[K, V] {
	return &c.shards[maphash.Comparable(c.seed, key)%cacheShards]
}

// get returns what is known of a key, if anything.
func (c *cache[K, V]) get(key K) (cached[V], bool) {
	if c == nil {
		return cached[V]{}, false
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	it := s.items[key]
	if it == nil || !it.doubt.IsZero() {
		return cached[V]{}, false
	}
	s.touch(it)
	return it.known, true
}

// begin is called before the server is asked about a key.
func (c *cache[K, V]) begin(key K) ticket {
	if c == nil {
		return 0
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	if it := s.items[key]; it != nil && !it.doubt.IsZero() && time.Now().After(it.doubt) {
		s.drop(it)
	}
	return ticket(s.forgotten)
}

// store keeps what the server answered to a request that began with t.
func (c *cache[K, V]) store(key K, known cached[V], t ticket) {
	if c == nil {
		return
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	if it := s.items[key]; it != nil {
		if known.seq > it.known.seq && it.doubt.IsZero() {
			it.known = known
		}
		s.touch(it)
		return
	}
	if s.forgotten != uint64(t) && known.seq <= s.highest {
		return
	}
	s.insert(&item[K, V]{key: key, known: known}, c.limit)
}

// doubts forgets a key for a while, since nobody knows what became of a change.
func (c *cache[K, V]) doubts(key K) {
	if c == nil {
		return
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	it := s.items[key]
	if it == nil {
		it = &item[K, V]{key: key}
		s.insert(it, c.limit)
	}
	it.doubt = time.Now().Add(doubtTime)
}

// forget drops a key that turned out not to be as it was known.
func (c *cache[K, V]) forget(key K) {
	if c == nil {
		return
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	if it := s.items[key]; it != nil && it.doubt.IsZero() {
		s.drop(it)
	}
}

// forgetAll drops everything: the server has gone back behind it.
func (c *cache[K, V]) forgetAll() {
	if c == nil {
		return
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for _, it := range s.items {
			if it.doubt.IsZero() {
				s.drop(it)
			}
		}
		s.highest = 0 // revisions begin again from a lower one
		s.Unlock()
	}
}

func (s *cacheShard[K, V]) insert(it *item[K, V], limit int) {
	if len(s.items) >= limit {
		s.drop(s.newest.prev)
	}
	s.items[it.key] = it
	s.link(it)
}

func (s *cacheShard[K, V]) drop(it *item[K, V]) {
	s.forgotten++
	s.highest = max(s.highest, it.known.seq)
	delete(s.items, it.key)
	it.prev.next, it.next.prev = it.next, it.prev
}

func (s *cacheShard[K, V]) touch(it *item[K, V]) {
	if s.newest.next == it {
		return
	}
	it.prev.next, it.next.prev = it.next, it.prev
	s.link(it)
}

func (s *cacheShard[K, V]) link(it *item[K, V]) {
	it.prev, it.next = &s.newest, s.newest.next
	it.next.prev, s.newest.next = it, it
}
