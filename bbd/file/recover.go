package file

import (
	"context"
	"time"

	"forebay/bbd/owner"
	"forebay/internal/bb"
)

// Reopen makes a file that was being written open again. Its writer may come back and go on. If it
// does not in time, the file is closed with its committed content.
func (s *Files) Reopen(e *bb.Entry) {
	f := &File{
		in: s, file: e.File, generation: e.Generation, at: e.Place(), path: e.Name, second: s.p.Replicas.Copy(owner.Replica(e)),
		entry: *e, state: state{exists: true, committed: true, found: true}, ended: make(chan struct{}), clients: make(map[Client]int),
	}
	// An exclusive create that committed nothing yet is unknown to the store, since it has no base.
	f.base, _ = s.o.Store.Base(f.file, f.generation)
	f.entry.MTime = foundOpen()
	f.published.Store(true)
	s.reopened(f)
	s.IdentifyFound(e, f.path)
	if dir, err := s.p.Names.PathOf(s.ctx, f.at.Dir); err == nil && e.Stored().Generation == 0 && s.p.Spec().Backing != "" {
		s.p.Queue.Suspect(f.at.In(dir), e.Unrecorded()) // the file may have been flushed before it was opened again
	}
	f.expireLater()
}

// foundOpen returns the modification time of a file that was found open, since its last commits may
// be in its records and not in its entry. With the entry's time, a stage-out or a program that
// compares times could not distinguish it, at the same size, from its former content.
func foundOpen() time.Time { return time.Now() }

// Remake makes an empty file again of which recovery found nothing, since there was nothing.
func (s *Files) Remake(e *bb.Entry) error {
	f := File{in: s, file: e.File, generation: e.Generation, second: s.p.Replicas.Copy("")}
	return f.record(s.ctx, nil)
}

// expireLater closes the file if no writer comes back in time.
func (f *File) expireLater() {
	s := f.in
	s.o.Go(func() {
		select {
		case <-time.After(s.o.Grace):
			f.expire(s.ctx)
		case <-s.ctx.Done():
		}
	})
}

// reconnectGrace is how long a drain leaves files open whose writers lost their daemon. Live
// writers come back within it.
const reconnectGrace = 2 * time.Second

// CloseAbandoned closes the files that recovery found open and whose writers did not come back.
func (s *Files) CloseAbandoned(ctx context.Context) error {
	for _, f := range s.All() {
		f.mu.Lock()
		abandoned := f.state.abandoned()
		f.mu.Unlock()
		if !abandoned {
			continue
		}
		select {
		case <-time.After(time.Until(s.o.Since.Add(reconnectGrace))):
		case <-ctx.Done():
			return ctx.Err()
		}
		f.expire(ctx)
	}
	return nil
}

// expire closes a file whose writers did not come back.
func (f *File) expire(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.reconnects = false
	if f.state.expires() {
		f.finishForNobody(ctx)
	}
}

// RestoreEntry makes the entry of a published generation again that the namespace has forgotten. It returns the
// entry, and the file's path, and no entry if there is nothing to restore.
func (f *File) RestoreEntry(ctx context.Context) (*bb.Entry, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.phase != phaseOpen || !f.published.Load() {
		return nil, "", nil
	}
	e := f.entry
	e.Parent, e.Name, e.Open, e.File, e.Generation, e.Revision = f.at.Dir, f.at.Name, true, f.file, f.generation, 0
	revision, err := f.in.p.Names.Create(ctx, e)
	if err == nil {
		e.Revision = revision
		f.entry = e
	}
	return &e, f.path, err
}

// Rereplicate makes the second copy again, unless a writer commits meanwhile, which makes it. It returns how many
// bytes that took.
func (f *File) Rereplicate(ctx context.Context) (bytes int64, err error) {
	if !f.mu.TryLock() {
		return 0, nil
	}
	defer f.mu.Unlock()
	if f.state.phase != phaseOpen || !f.state.committed || f.second == nil || !f.second.HasTargets(f.size(), f.near) {
		return 0, nil
	}
	f.second.Outdate()
	if err := f.replicate(ctx, nil); err != nil {
		return 0, err
	}
	return f.size(), f.publish(ctx)
}
