package admit

import (
	"maps"
	"testing"
)

func TestStuck(t *testing.T) {
	const mib = 1 << 20
	// one is a file that fills memory, and waits. Its client commits on demand.
	one := func(change ...func(*Claim)) Claim {
		c := Claim{Request: 1, Leased: 60 * mib, Waiting: 1, Files: 1, Due: true, Commits: true}
		for _, f := range change {
			f(&c)
		}
		return c
	}
	second := func(c *Claim) { c.Request = 2 }
	stubborn := func(c *Claim) { c.Commits = false }
	spent := func(others int64) func(*Claim) {
		return func(c *Claim) { c.Spent, c.Leased, c.Open, c.Others = true, 0, 8*mib, others }
	}
	open := func(c *Claim) { c.Open, c.Leased, c.Commits = c.Leased, 0, false }
	never, commit := map[uint64]Verdict{1: NeverEnd}, map[uint64]Verdict{1: Commit}
	for name, c := range map[string]struct {
		rest   Rest
		claims []Claim
		want   map[uint64]Verdict
	}{
		"nobody waits":                           {Rest{}, nil, nil},
		"a file fills memory":                    {Rest{}, []Claim{one()}, never},
		"not for long":                           {Rest{}, []Claim{one(func(c *Claim) { c.Due = false })}, nil},
		"others have memory":                     {Rest{Memory: 1}, []Claim{one()}, nil},
		"memory is populated":                    {Rest{Growing: true}, []Claim{one()}, nil},
		"another file of the client is written":  {Rest{}, []Claim{one(func(c *Claim) { c.Files = 2 })}, nil},
		"all files of the client wait":           {Rest{}, []Claim{one(func(c *Claim) { c.Files, c.Waiting = 4, 4 })}, never},
		"an ask ahead":                           {Rest{}, []Claim{one(func(c *Claim) { c.Waiting = 0 })}, nil},
		"a disk with room":                       {Rest{DiskFree: mib}, []Claim{one()}, commit},
		"a disk with room, and others":           {Rest{DiskFree: mib, Memory: 9 * mib}, []Claim{one()}, commit},
		"a disk with room, not for long":         {Rest{DiskFree: mib}, []Claim{one(func(c *Claim) { c.Due = false })}, commit},
		"a disk with room, and bytes for it":     {Rest{DiskFree: mib, Memory: mib, Spillable: mib}, []Claim{one()}, nil},
		"a disk with room, and more memory soon": {Rest{DiskFree: mib, Growing: true}, []Claim{one()}, nil},
		"a disk that others fill":                {Rest{Disk: mib}, []Claim{one()}, nil},
		"a disk that the file fills":             {Rest{}, []Claim{one(open)}, never},
		"a disk, and a client that never":        {Rest{DiskFree: mib}, []Claim{one(stubborn)}, never},
		"committed bytes that can be spilled":    {Rest{DiskFree: mib}, []Claim{one(open)}, nil},
		"committed bytes, and a disk of others":  {Rest{Disk: mib}, []Claim{one(open)}, nil},
		"committed bytes, and no disk":           {Rest{}, []Claim{one(open)}, never},
		"two that wait for each other":           {Rest{}, []Claim{one(), one(second)}, map[uint64]Verdict{2: NeverEnd}},
		"two, one of which goes on":              {Rest{}, []Claim{one(func(c *Claim) { c.Files = 2 }), one(second)}, nil},
		"two, one of which has nothing":          {Rest{}, []Claim{one(), one(second, func(c *Claim) { c.Leased = 0 })}, never},
		"two on a disk with room":                {Rest{DiskFree: mib}, []Claim{one(), one(second)}, map[uint64]Verdict{1: Commit, 2: Commit}},
		"the capacity, filled by the file":       {Rest{Memory: 9 * mib}, []Claim{one(spent(0))}, never},
		"the capacity, filled by others too":     {Rest{Memory: 9 * mib}, []Claim{one(spent(1))}, nil},
		"the capacity, which flushing gives":     {Rest{}, []Claim{one(spent(1)), one(second)}, nil},
		"the capacity, with a file that goes on": {Rest{}, []Claim{one(spent(0), func(c *Claim) { c.Files = 2 })}, nil},
	} {
		if got := Stuck(c.rest, c.claims); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
