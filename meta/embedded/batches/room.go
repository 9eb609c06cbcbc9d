package batches

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// Room is how much more a file system takes.
type Room struct {
	Bytes uint64
	Files uint64
}

// roomOf returns the room of a file system, as any user has it. A tmpfs may have no bounds (tmpfs(5)).
func roomOf(s *unix.Statfs_t) Room {
	r := Room{Bytes: s.Bavail * uint64(s.Bsize), Files: s.Ffree}
	if s.Blocks == 0 {
		r.Bytes = math.MaxUint64
	}
	if s.Files == 0 {
		r.Files = math.MaxUint64
	}
	return r
}

func (r Room) has(least Room) bool { return r.Bytes >= least.Bytes && r.Files >= least.Files }

// A batch takes less than 2 MiB, a thousand records, and eight files. Most take some KiB.
var (
	least = Room{Bytes: 4 << 20, Files: 512}  // with less room batches leave memory
	ample = Room{Bytes: 6 << 20, Files: 1024} // with that much they may come back
)

// again is for how long there has to be room before batches come back.
const again = time.Minute

// place is where batches pass.
//
//	           Less than the least room
//	in memory ──────────────────────────▶ on disk
//	           ◀──────────────────────────
//	           Ample room for a minute
type place struct {
	onDisk bool
	since  time.Time // on disk: since when there has been ample room; zero: there is not
}

// next returns the place after a look at the room.
func (p place) next(r Room, now time.Time) place {
	switch {
	case !p.onDisk:
		return place{onDisk: !r.has(least)}
	case !r.has(ample):
		return place{onDisk: true}
	case p.since.IsZero():
		return place{onDisk: true, since: now}
	}
	return place{onDisk: now.Sub(p.since) < again, since: p.since}
}
