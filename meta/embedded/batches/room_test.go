package batches

import (
	"math"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestPlace(t *testing.T) {
	full, some, much := Room{}, Room{Bytes: 5 << 20, Files: 600}, Room{Bytes: 1 << 30, Files: 1 << 20}
	now := time.Now()
	since := func(d time.Duration) place { return place{onDisk: true, since: now.Add(-d)} }
	for name, c := range map[string]struct {
		was  place
		room Room
		want place
	}{
		"in memory with room":                {place{}, much, place{}},
		"in memory with less room":           {place{}, some, place{}},
		"memory is full":                     {place{}, full, place{onDisk: true}},
		"memory takes no more files":         {place{}, Room{Bytes: much.Bytes, Files: 10}, place{onDisk: true}},
		"memory takes no more bytes":         {place{}, Room{Bytes: 1 << 20, Files: much.Files}, place{onDisk: true}},
		"still full":                         {place{onDisk: true}, full, place{onDisk: true}},
		"less room is not enough to be back": {place{onDisk: true}, some, place{onDisk: true}},
		"there is room":                      {place{onDisk: true}, much, since(0)},
		"room for half a minute":             {since(again / 2), much, since(again / 2)},
		"room that went":                     {since(again / 2), some, place{onDisk: true}},
		"room for a minute":                  {since(again), much, place{}},
	} {
		got := c.was.next(c.room, now)
		if got.onDisk != c.want.onDisk || got.onDisk && !got.since.Equal(c.want.since) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestRoomOf(t *testing.T) {
	if r := roomOf(&unix.Statfs_t{Bsize: 4096, Blocks: 10, Bavail: 3, Files: 9, Ffree: 2}); r != (Room{3 * 4096, 2}) {
		t.Errorf("%+v", r)
	}
	if r := roomOf(&unix.Statfs_t{Bsize: 4096}); r != (Room{math.MaxUint64, math.MaxUint64}) {
		t.Errorf("a tmpfs without bounds has %+v", r)
	}
}
