package pages

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// model is a map so simple that it is plainly right.
type model map[string]stored

type stored struct {
	revision uint64
	value    string
}

func check(t *testing.T, m *Map, want model) {
	t.Helper()
	if m.Len() != len(want) {
		t.Fatalf("%d items, want %d", m.Len(), len(want))
	}
	for key, s := range want {
		item, ok := m.Get([]byte(key))
		if !ok || string(item.Key) != key || string(item.Value) != s.value || item.Revision != s.revision {
			t.Fatalf("%q is %q of %d (%v), want %q of %d", key, item.Value, item.Revision, ok, s.value, s.revision)
		}
	}
	seen := 0
	for number := range m.Pages() {
		live := 0
		m.EachIn(number, func(s Slot, item Item) {
			seen++
			live += encodedLen(item.Key, item.Value)
			if m.Find(item.Key) != s {
				t.Fatalf("%q lies in slot %d, and is found in %d", item.Key, s, m.Find(item.Key))
			}
			if item.Revision > m.Newest(number) {
				t.Fatalf("page %d: revision %d is above %d", number, item.Revision, m.Newest(number))
			}
		})
		if live > mostBytes {
			t.Fatalf("page %d has %d bytes of items", number, live)
		}
	}
	if seen != len(want) {
		t.Fatalf("the pages have %d items, want %d", seen, len(want))
	}
}

// TestModel makes random changes to a map and to a model, writes pages that have changed as a
// checkpoint does, and loads them into another map, which must be the same.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 1))
		m, want, written := New(), model{}, map[int][]byte{}
		defer m.Close()
		large := []int{20, 20, 300, 4000, 60000, 100}[seed]
		for step := uint64(1); step <= 30000; step++ {
			key := fmt.Sprint("key", rnd.IntN(10000))
			if rnd.IntN(3) == 0 {
				_, was := want[key]
				if gone := m.Remove([]byte(key), step); was != (gone != NoSlot) {
					t.Fatalf("seed %d: removing %q: %d, there was one: %v", seed, key, gone, was)
				}
				delete(want, key)
				continue
			}
			value := string(bytes.Repeat([]byte{byte(step)}, rnd.IntN(large)))
			if rnd.IntN(1000) > 0 && len(value) > 4000 {
				value = value[:100]
			}
			_, had := want[key]
			_, before, err := m.Put([]byte(key), step, []byte(value), step)
			if err != nil || had != (before != NoSlot) {
				t.Fatalf("seed %d: %q was in %d, there was one: %v (%v)", seed, key, before, had, err)
			}
			want[key] = stored{step, value}
			if step%7000 == 0 {
				check(t, m, want)
				write(m, written)
			}
		}
		check(t, m, want)
		write(m, written)
		check(t, load(t, written), want)
	}
}

func write(m *Map, written map[int][]byte) {
	for number := range m.Pages() {
		if m.Since(number) != 0 {
			written[number] = m.AppendPage(nil, number)
			m.Written(number)
		}
	}
}

func load(t *testing.T, written map[int][]byte) *Map {
	t.Helper()
	m := New()
	t.Cleanup(m.Close)
	for number, items := range written { // in any order
		if err := m.Load(number, items, 1, func(Slot, []byte) {}, func(Slot, Slot) {}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// Of two items of a key, the newer one is kept, and the page of the other has changes, since it
// would bring the item back.
func TestLoadKeepsTheNewer(t *testing.T) {
	t.Parallel()
	older := encode(nil, []byte("k"), 1, []byte("old"))
	newer := encode(encode(nil, []byte("k"), 2, []byte("new")), []byte("other"), 1, nil)
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		m := New()
		defer m.Close()
		for _, number := range order {
			if err := m.Load(number, [][]byte{older, newer}[number], 7, func(Slot, []byte) {}, func(Slot, Slot) {}); err != nil {
				t.Fatal(err)
			}
		}
		check(t, m, model{"k": {2, "new"}, "other": {1, ""}})
		if m.Since(0) != 7 || m.Since(1) != 0 {
			t.Errorf("changes since %d and %d, want 7 and 0", m.Since(0), m.Since(1))
		}
	}
}

func TestLoadGarbage(t *testing.T) {
	t.Parallel()
	whole := encode(nil, []byte("key"), 1, []byte("value"))
	for n := 1; n < len(whole); n++ {
		m := New()
		if err := m.Load(0, whole[:n], 1, func(Slot, []byte) {}, func(Slot, Slot) {}); err == nil {
			t.Errorf("%d of %d bytes were loaded", n, len(whole))
		}
		m.Close()
	}
}
