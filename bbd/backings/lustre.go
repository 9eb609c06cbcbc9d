package backings

import (
	"context"
	"slices"
	"strings"
	"time"

	"forebay/bbd/lockrank"
	"forebay/flusher/backing/detach"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/lockorder"
)

// Lustre is the daemon's source of facts about Lustre. Tests replace it.
type Lustre struct {
	// Is reports whether the identity of a backing is that of a directory on Lustre. nil means posix.OnLustre.
	Is func(backingID string) bool
	// Check returns the output of "lfs check servers". nil means lustre.CheckServers. It may hang.
	Check func(ctx context.Context) ([]byte, error)
	// Imports returns the targets without a connection, by the kernel's list. nil means lustre.SilentImports.
	Imports func() []string
}

// targets are the Lustre targets that do not answer this node, looked up while a store on Lustre is
// silent. Without an answer of lfs, those are named whose imports can be read and have no
// connection.
type targets struct {
	calls detach.Calls // that hang. While one does, there is no other

	mu      lockorder.Mutex[lockrank.Leaf]
	asked   time.Time
	asking  bool     // lfs, which may take longer than until the next lookup
	silence int      // counts the times of silence, so that no answer of an earlier one is kept
	lfs     []string // by its last answer
	imports []string // by the last lookup
	names   []string // of both
}

const (
	targetsEvery    = 10 * time.Second // how often the targets are looked up
	targetsPatience = 30 * time.Second // a ping of a target whose server is away takes some
)

// onLustre reports whether a backing has such targets.
func (s *Pool) onLustre(backingID string) bool {
	if is := s.o.Lustre.Is; is != nil {
		return is(backingID)
	}
	return posix.OnLustre(backingID)
}

// SilentTargets returns the names of the Lustre targets that did not answer the last check, or nil for
// a backing that is not on Lustre.
func (s *Pool) SilentTargets(backingID string) []string {
	if !s.onLustre(backingID) {
		return nil
	}
	t := &s.targets
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.names)
}

// stepTargets looks the silent targets up if a store on Lustre is silent. If none is silent any
// more, it drops the answers.
func (s *Pool) stepTargets(wanted bool, now time.Time) {
	t := &s.targets
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !wanted:
		t.silence++
		t.asked, t.lfs, t.imports, t.names = time.Time{}, nil, nil, nil
	case now.Sub(t.asked) >= targetsEvery:
		t.asked = now
		silence, ask := t.silence, !t.asking && t.calls.Left() == 0
		t.asking = t.asking || ask
		s.o.Go(func() { s.lookTargetsUp(silence, ask) })
	}
}

// lookTargetsUp reads the imports, and runs lfs if ask is set.
func (s *Pool) lookTargetsUp(silence int, ask bool) {
	t, check, imports := &s.targets, s.o.Lustre.Check, s.o.Lustre.Imports
	if check == nil {
		check = lustre.CheckServers
	}
	if imports == nil {
		imports = lustre.SilentImports
	}
	connected := imports() // before lfs, which may hang, and whose pings of targets that are away take long
	s.nameTargets(silence, func() { t.imports = connected })
	if !ask {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, targetsPatience)
	defer cancel()
	out, err := detach.Do(ctx, &t.calls, "check servers", "", check, func([]byte) {})
	t.mu.Lock()
	t.asking = false
	t.mu.Unlock()
	if err == nil { // else there is no lfs, or it hangs, too
		s.nameTargets(silence, func() { t.lfs = lustre.SilentTargets(out) })
	}
}

// nameTargets changes, and logs, the targets that were found, if the silence of a lookup lasts. update is
// called with the lock held.
func (s *Pool) nameTargets(silence int, update func()) {
	t := &s.targets
	t.mu.Lock()
	changed := false
	if t.silence == silence {
		update()
		names := lustre.Silent(t.lfs, t.imports)
		changed, t.names = !slices.Equal(names, t.names), names
	}
	names := t.names
	t.mu.Unlock()
	if changed && len(names) > 0 {
		s.o.Log.Warn("Lustre targets do not answer", "targets", strings.Join(names, " "))
	}
}
