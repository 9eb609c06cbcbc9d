package bbd

import (
	"context"
	"slices"
	"strings"
	"time"

	"forebay/bbd/lockrank"
	"forebay/flusher/backing/detach"
	"forebay/flusher/backing/posix"
	"forebay/internal/lockorder"
)

// LustreConfig is how the daemon finds out about Lustre. Tests replace it.
type LustreConfig struct {
	// Is reports whether the identity of a backing is that of a directory on Lustre; nil: posix.OnLustre.
	Is func(backingID string) bool
	// Check returns the output of "lfs check servers"; nil: posix.CheckServers. It may hang.
	Check func(ctx context.Context) ([]byte, error)
}

// storeTargets are the Lustre targets that do not answer this node, asked for while a store on Lustre is silent.
// Without an answer of lfs no target is named.
type storeTargets struct {
	d     *Daemon
	calls detach.Calls // that hang; while one does, there is no other

	mu    lockorder.Mutex[lockrank.Leaf]
	asked time.Time
	names []string
}

const (
	targetsEvery    = 10 * time.Second // how often the targets are asked for
	targetsPatience = 30 * time.Second // a ping of a target whose server is away takes some
)

func newStoreTargets(d *Daemon) *storeTargets { return &storeTargets{d: d} }

// about reports whether a backing has such targets.
func (t *storeTargets) about(backingID string) bool {
	if is := t.d.cfg.Lustre.Is; is != nil {
		return is(backingID)
	}
	return posix.OnLustre(backingID)
}

// silent returns the names of those that did not answer when they were asked last.
func (t *storeTargets) silent() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.names)
}

// step asks, if a store on Lustre is silent, and forgets the answer if none is any more.
func (t *storeTargets) step(wanted bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !wanted:
		t.asked, t.names = time.Time{}, nil
	case now.Sub(t.asked) >= targetsEvery && t.calls.Left() == 0:
		t.asked = now
		t.d.wg.Go(func() { t.ask(now) })
	}
}

func (t *storeTargets) ask(asked time.Time) {
	check := t.d.cfg.Lustre.Check
	if check == nil {
		check = posix.CheckServers
	}
	ctx, cancel := context.WithTimeout(t.d.ctx, targetsPatience)
	defer cancel()
	out, err := detach.Do(ctx, &t.calls, "check servers", "", check, func([]byte) {})
	if err != nil {
		return // no lfs, or it hangs, too
	}
	names := posix.SilentTargets(out)
	t.mu.Lock()
	current := t.asked.Equal(asked)
	changed := current && !slices.Equal(names, t.names)
	if current {
		t.names = names
	}
	t.mu.Unlock()
	if changed && len(names) > 0 {
		t.d.log.Warn("Lustre targets do not answer", "targets", strings.Join(names, " "))
	}
}
