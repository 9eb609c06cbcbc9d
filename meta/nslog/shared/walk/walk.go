// Package walk has the reads of a namespace that take several calls to the owner of its log. It must never depend on the
// way in which a call finds the owner.
package walk

import (
	"context"
	"hash/maphash"

	"forebay/internal/bb"
	"forebay/meta/nslog"
	"forebay/meta/nslog/shared/calls"
)

// maxScans bounds the passes over entries that changed during a scan.
const maxScans = 64

// Ask sends a call until an owner answers, and returns the answer, and its failure as an error.
type Ask func(ctx context.Context, c *calls.Call) (*calls.Answer, error)

// All calls fn with all files and directories of a buffer but the root. An entry that changes
// meanwhile may come again, with a newer revision. It goes over the pages of the owner's table, and
// begins again at another owner, where it recognizes entries that came before by their hashes.
func All(ctx context.Context, buffer string, ask Ask, fn func(bb.Entry) error) error {
	s := scan{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, fn: fn}
	for range maxScans {
		if done, err := s.pass(ctx, ask); done || err != nil {
			return err
		}
	}
	return bb.E(bb.Busy, "scan", buffer, "others keep changing entries").WithRemedy("try again")
}

// scan is one All.
type scan struct {
	owner nslog.Incarnation
	from  uint64 // revision, of which on entries are looked at
	next  uint64 // from which on the next pass does
	seed  maphash.Seed
	seen  map[uint64]struct{} // names with revisions
	fn    func(bb.Entry) error
}

// pass goes over all pages. It is done if nothing has changed since the one before began.
func (s *scan) pass(ctx context.Context, ask Ask) (done bool, err error) {
	for number := 0; ; number++ {
		a, err := ask(ctx, &calls.Call{Op: calls.OpScanPage, Number: number, Revision: s.from})
		switch {
		case err != nil:
			return false, err
		case a.Owner != s.owner && number > 0:
			s.owner, s.from = nslog.Incarnation{}, 0
			return false, nil
		case a.Owner != s.owner:
			if s.from != 0 {
				s.from = 0
				number--
				continue
			}
			s.owner = a.Owner
		}
		if number == 0 {
			if done = s.from != 0 && a.Revision <= s.from; done {
				return true, nil
			}
			s.next = a.Revision
		}
		if !a.Yes {
			s.from = s.next
			return false, nil
		}
		for i := range a.Entries {
			if err := s.came(&a.Entries[i]); err != nil {
				return false, err
			}
		}
	}
}

// came calls fn with an entry, once for each of its revisions.
func (s *scan) came(e *bb.Entry) error {
	h := maphash.Comparable(s.seed, struct {
		dir      bb.DirID
		name     string
		revision uint64
	}{e.Parent, e.Name, e.Revision})
	if _, seen := s.seen[h]; seen {
		return nil
	}
	s.seen[h] = struct{}{}
	return s.fn(*e)
}
