package store

import (
	"forebay/bbd/store/populate"
	"forebay/internal/bb"
)

// Steps is for package populate.
func (r *region) Steps() int { return len(r.steps) }

// PopulateStep is for package populate, too.
func (r *region) PopulateStep(step int) error {
	from := step * populate.Step
	return r.Populate(int64(from), int64(min(from+populate.Step, len(r.Mem))))
}

// populated records that a step is done, and wakes the waiters for Ready.
func (s *Store) populated(r *region, step int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if !s.mu.short { // once, since thousands of steps fail for one reason
			s.mu.short = true
			s.log.Error("populate region: less memory will be used", "region", r.ID, "path", r.Path, "error", err)
		}
		return
	}
	r.steps[step] = true
	for i := r.populated / populate.Step; i < int64(len(r.steps)) && r.steps[i]; i++ {
		r.populated = min((i+1)*populate.Step, int64(len(r.Mem)))
	}
	if !r.Log && r.Tier == bb.TierMemory && r.populated >= 2*Unit && !s.mu.ready {
		s.mu.ready = true
		close(s.ready)
	}
}
