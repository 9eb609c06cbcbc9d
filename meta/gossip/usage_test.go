package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"forebay/internal/bb"
)

func TestLevels(t *testing.T) {
	for _, capacity := range []int64{1, 1 << 20, 1000 << 20, 8 << 30, 1 << 50} {
		tier := Tier{Capacity: capacity}
		for _, n := range []int64{0, 1, capacity / 3, capacity - 1, capacity, math.MaxInt64} {
			n = min(n, capacity)
			down, up := tier.bytes(tier.level(n, false)), tier.bytes(tier.level(n, true))
			slack := capacity/levels + 1
			if down > n+1 || n-down > slack || up < n-1 || up-n > slack {
				t.Errorf("%d of %d became %d and %d", n, capacity, down, up)
			}
		}
	}
	if l := (Tier{}).level(5, true); l != 0 {
		t.Errorf("level %d of nothing", l)
	}
}

func TestUsageMessage(t *testing.T) {
	all := []usage{{1, 2, [4]byte{3, 4, 5, 6}}, {math.MaxUint64, math.MaxUint32, [4]byte{255, 255, 255, 255}}}
	for _, want := range [][]usage{{}, all} {
		b := encodeUsage(want)
		got, err := decodeUsage(b)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v", got, err)
		}
		for i := range b {
			c := slices.Clone(b)
			c[i] ^= 1
			if _, err := decodeUsage(c); !errors.Is(err, bb.Checksum) {
				t.Errorf("byte %d is wrong: %v", i, err)
			}
			if _, err := decodeUsage(b[:i]); err == nil {
				t.Errorf("%d bytes of %d are read", i, len(b))
			}
		}
	}
}

func FuzzUsage(f *testing.F) {
	f.Add(encodeUsage([]usage{{1, 2, [4]byte{3, 4, 5, 6}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeUsage(b)
		b = binary.BigEndian.AppendUint32(slices.Clone(b), crc32.Checksum(b, castagnoli))
		if all, err := decodeUsage(b); err == nil && !slices.Equal(encodeUsage(all), b) {
			t.Fatalf("%x became %x", b, encodeUsage(all))
		}
	})
}

func TestRumours(t *testing.T) {
	var r rumours
	for i := range 5 {
		r.add(usage{node: uint64(i)})
	}
	sent := map[usage]int{}
	for n := 0; len(r.queue) > 0; n++ {
		if n == 1 {
			r.add(usage{node: 2, at: 9}) // overtakes the other
		}
		turn := r.take(3)
		if len(turn) > 3 {
			t.Fatalf("took %v", turn)
		}
		for _, u := range turn {
			sent[u]++
		}
		if n > 100 {
			t.Fatal("it never ends")
		}
	}
	want := map[usage]int{{node: 0}: passes, {node: 1}: passes, {node: 2}: 1, {node: 2, at: 9}: passes, {node: 3}: passes, {node: 4}: passes}
	if fmt.Sprint(sent) != fmt.Sprint(want) || len(r.left) != 0 {
		t.Errorf("sent %v, want %v; left %v", sent, want, r.left)
	}
}

// Newer usage stays, from either path.
func TestOvertaken(t *testing.T) {
	n := newNetwork()
	a := start(t, 0, in(n, 0))
	b := start(t, 1, in(n, 1), a)
	untilStates(t, "n0=ready n1=ready", a, b)
	free := func() int64 { m, _ := a.Member("n1"); return m.Memory.Free }
	say := func(at uint32, level byte) {
		a.hear(encodeUsage([]usage{{nodeHash("n1"), at, [4]byte{level}}, {12345, at, [4]byte{}}}), true)
	}
	at := now() + 1000
	say(at, 255)
	say(at-1, 100)
	if free() != 8<<30 {
		t.Errorf("older bytes won: %d", free())
	}
	m := member(1)
	m.State = Draining
	if err := b.Update(m); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=ready n1=draining", a)
	if free() != 8<<30 {
		t.Errorf("an older record won: %d", free())
	}
	m.State, m.Instance = Starting, 77 // a new life, with its clock set back
	if err := b.Update(m); err != nil {
		t.Fatal(err)
	}
	untilStates(t, "n0=ready n1=starting", a)
	if free() != 4<<30 {
		t.Errorf("the bytes of a life before won: %d", free())
	}
	a.hear([]byte("garbage"), true)
	if a.Stats().Garbage != 1 {
		t.Errorf("garbage was not counted: %+v", a.Stats())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.rumours.left) > 1 {
		t.Errorf("what is said of strangers is sent on: %v", a.mu.rumours.left)
	}
}

// A member that joins late gets the present usage of the others.
func TestLateJoinerKnowsBytes(t *testing.T) {
	n := newNetwork()
	a := start(t, 0, in(n, 0))
	b := start(t, 1, in(n, 1), a)
	m := member(1)
	m.Memory.Free = 1 << 30
	if err := b.Update(m); err != nil {
		t.Fatal(err)
	}
	near := func(g *Gossip) func() bool {
		return func() bool { m, _ := g.Member("n1"); return m.Memory.Free > 900<<20 && m.Memory.Free <= 1<<30 }
	}
	until(t, a, "n1 has filled up", near(a))
	c := start(t, 2, in(n, 2), a)
	untilStates(t, "n0=ready n1=ready n2=ready", c)
	if m, _ := c.Member("n1"); !near(c)() {
		t.Errorf("it believes %+v", m)
	}
}
