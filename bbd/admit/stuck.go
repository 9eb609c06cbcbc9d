package admit

// A writer may wait for room that only it can make. Its uncommitted writes lie in its own leases,
// which are neither evicted nor spilled, and its open file is not flushed. Where all memory holds
// such bytes of writers that wait, the wait has no end.

// Claim is the memory that the writers of one client and buffer, which wait for room, keep from becoming free.
type Claim struct {
	Request uint64 // the newest of theirs
	Leased  int64  // bytes of memory in segments that they lease
	Open    int64  // bytes of memory with committed bytes of their open files; these can be spilled
	Waiting int    // files that wait for room
	Files   int    // files that are open for writing
	Due     bool   // they have waited for long
	Commits bool   // on request they commit their writes, and send another request after a short wait
	Spent   bool   // they wait for their buffer's capacity …
	Others  int64  // … of which flushing returns so many bytes of other files
}

// blocked reports whether all files of a claim wait. None of them will be closed before there is room.
func (c *Claim) blocked() bool { return c.Due && c.Waiting > 0 && c.Waiting >= c.Files }

// Rest is the room that may become free besides that of claims, in bytes.
type Rest struct {
	Memory    int64 // used by all others
	Spillable int64 // part of it, and of the claims' open files, that can be moved to disk now
	Disk      int64 // used by all others
	DiskFree  int64
	Growing   bool // more memory is about to be there
}

// Verdict is the outcome of a wait.
type Verdict uint8

// The verdicts.
const (
	MayEnd   Verdict = iota
	Commit           // it ends once the client has committed, since then there is something to spill
	NeverEnd         // others cannot make room
)

// Stuck returns the verdicts on requests that may not simply wait. Of several claims that wait for each
// other alone, the newest yields.
func Stuck(r Rest, claims []Claim) map[uint64]Verdict {
	verdicts := make(map[uint64]Verdict)
	last, spillable, all := uint64(0), int64(0), r.Memory == 0 && !r.Growing
	for i := range claims {
		c := &claims[i]
		switch {
		case c.Spent && c.blocked() && c.Others == 0:
			verdicts[c.Request] = NeverEnd
		case c.Leased+c.Open > 0 && (c.Spent || !c.blocked()):
			all = false // it goes on, and returns its memory
		case c.Leased+c.Open > 0:
			last = max(last, c.Request)
		}
		spillable += c.Open
		if c.Commits {
			spillable += c.Leased
		}
		if c.Commits && !c.Spent && c.Leased >= Unit && r.DiskFree >= Unit && r.Spillable < Unit && !r.Growing {
			verdicts[c.Request] = Commit
		}
	}
	if all && last > 0 && len(verdicts) == 0 && (spillable < Unit || r.DiskFree < Unit && r.Disk == 0) {
		verdicts[last] = NeverEnd
	}
	return verdicts
}
