package store

import (
	"context"

	"forebay/internal/bb"
)

// filesOf returns the files of which a segment may have bytes.
func (s *Store) filesOf() map[bb.FileID]struct{} {
	has := map[bb.FileID]struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for g := range s.mu.segments {
		g.mu.Lock()
		for _, f := range g.mu.files {
			has[f] = struct{}{}
		}
		g.mu.Unlock()
	}
	return has
}

// SyncDrops returns when all earlier drops outlast a failure of the machine. Calls share a sync.
// Without a disk tier there is nothing to do.
func (s *Store) SyncDrops(ctx context.Context) error { return s.drops.Sync(ctx) }
