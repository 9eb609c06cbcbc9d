// Package cache keeps the newest received revisions of keys, while a server's answers arrive in any
// order. It must never send a request, nor know the meaning of a key.
package cache

import (
	"hash/maphash"
	"sync"
	"time"
)

// UncertainTime is the time for which a key is not cached after a change of it with an unknown outcome.
// The server might still be about to carry it out.
const UncertainTime = time.Minute

const shardCount = 64

// Known is the cached state of a key: its revision and, if it exists, its value.
type Known[V any] struct {
	Value V
	Seq   uint64
	Live  bool
}

// Cache holds the newest received revision of a bounded number of keys, for a process that makes
// all changes itself. A nil cache holds nothing.
//
// Answers of the server arrive here in any order, so the cached state only moves forward. An older
// revision never replaces a newer one, nor a key that was dropped since the request began (the
// ticket shows that).
type Cache[K comparable, V any] struct {
	seed   maphash.Seed
	limit  int // keys in one shard
	shards [shardCount]shard[K, V]
}

type shard[K comparable, V any] struct {
	sync.Mutex
	items     map[K]*item[K, V]
	newest    item[K, V] // ring: newest.next was used last, newest.prev first
	forgotten uint64     // how many were
	highest   uint64     // revision among the dropped
}

type item[K comparable, V any] struct {
	key        K
	known      Known[V]
	uncertain  time.Time // not to be used until then
	prev, next *item[K, V]
}

// Ticket is the state of a key's shard when a request about it began.
type Ticket uint64

// New returns a cache of about limit keys.
func New[K comparable, V any](limit int) *Cache[K, V] {
	c := &Cache[K, V]{seed: maphash.MakeSeed(), limit: max(limit/shardCount, 2)}
	for i := range c.shards {
		s := &c.shards[i]
		s.items = map[K]*item[K, V]{}
		s.newest.prev, s.newest.next = &s.newest, &s.newest
	}
	return c
}

func (c *Cache[K, V]) shard(key K) *shard[K, V] {
	return &c.shards[maphash.Comparable(c.seed, key)%shardCount]
}

// Get returns the cached state of a key, if any.
func (c *Cache[K, V]) Get(key K) (Known[V], bool) {
	if c == nil {
		return Known[V]{}, false
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	it := s.items[key]
	if it == nil || !it.uncertain.IsZero() {
		return Known[V]{}, false
	}
	s.touch(it)
	return it.known, true
}

// Begin is called before a request about a key.
func (c *Cache[K, V]) Begin(key K) Ticket {
	if c == nil {
		return 0
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	if it := s.items[key]; it != nil && !it.uncertain.IsZero() && time.Now().After(it.uncertain) {
		s.drop(it)
	}
	return Ticket(s.forgotten)
}

// Store keeps the server's answer to a request that began with t.
func (c *Cache[K, V]) Store(key K, known Known[V], t Ticket) {
	if c == nil {
		return
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	if it := s.items[key]; it != nil {
		if known.Seq > it.known.Seq && it.uncertain.IsZero() {
			it.known = known
		}
		s.touch(it)
		return
	}
	if s.forgotten != uint64(t) && known.Seq <= s.highest {
		return
	}
	s.insert(&item[K, V]{key: key, known: known}, c.limit)
}

// Invalidate drops a key for a while, since the outcome of a change is unknown.
func (c *Cache[K, V]) Invalidate(key K) {
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
	it.uncertain = time.Now().Add(UncertainTime)
}

// Forget drops a key with a cached state that turned out to be wrong.
func (c *Cache[K, V]) Forget(key K) {
	if c == nil {
		return
	}
	s := c.shard(key)
	s.Lock()
	defer s.Unlock()
	if it := s.items[key]; it != nil && it.uncertain.IsZero() {
		s.drop(it)
	}
}

// ForgetAll drops everything, since the server has gone back behind it.
func (c *Cache[K, V]) ForgetAll() {
	if c == nil {
		return
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.Lock()
		for _, it := range s.items {
			if it.uncertain.IsZero() {
				s.drop(it)
			}
		}
		s.highest = 0 // revisions begin again from a lower one
		s.Unlock()
	}
}

func (s *shard[K, V]) insert(it *item[K, V], limit int) {
	if len(s.items) >= limit {
		s.drop(s.newest.prev)
	}
	s.items[it.key] = it
	s.link(it)
}

func (s *shard[K, V]) drop(it *item[K, V]) {
	s.forgotten++
	s.highest = max(s.highest, it.known.Seq)
	delete(s.items, it.key)
	it.prev.next, it.next.prev = it.next, it.prev
}

func (s *shard[K, V]) touch(it *item[K, V]) {
	if s.newest.next == it {
		return
	}
	it.prev.next, it.next.prev = it.next, it.prev
	s.link(it)
}

func (s *shard[K, V]) link(it *item[K, V]) {
	it.prev, it.next = &s.newest, s.newest.next
	it.next.prev, s.newest.next = it, it
}
