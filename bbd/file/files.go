package file

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"forebay/bbd/dedup"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Files has the files of a buffer that are open for writing: by the place of their entry, of which
// there is one at a time, and by their number once a generation has begun. The callers have locked
// each file's own mutex. Its methods may be called concurrently.
type Files struct {
	o       Options
	p       Parts
	ctx     context.Context // ends when the daemon stops
	name    string
	commits dedup.Table
	mu      struct {
		lockorder.Mutex[lockrank.OpenFiles]
		at   map[bb.Place]*File
		byID map[bb.FileID]*File
	}
}

// New returns the open files of a buffer, until ctx ends.
func New(ctx context.Context, o Options, name string, p Parts) *Files {
	s := &Files{o: o, p: p, ctx: ctx, name: name}
	s.mu.at, s.mu.byID = make(map[bb.Place]*File), make(map[bb.FileID]*File)
	return s
}

func (s *Files) address(path string) string {
	return bb.Address{Buffer: s.name, Path: path}.String()
}

// LastCommit returns the number of a writer's last commit to a generation, or 0 if none is recorded.
func (s *Files) LastCommit(file bb.FileID, n bb.Generation, writer uint64) uint64 {
	return s.commits.Last(file, n, writer)
}

// at returns the file that is open at a place, or nil if none is.
func (s *Files) at(p bb.Place) *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.at[p]
}

// Of returns the file of a number, or nil if it is not open, or not begun yet.
func (s *Files) Of(file bb.FileID) *File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.byID[file]
}

// All returns the open files, including those that are not begun.
func (s *Files) All() []*File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.at))
}

// Begun returns the numbers of the files of which a generation has begun.
func (s *Files) Begun() []bb.FileID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.mu.byID))
}

// PublishedPaths returns the paths of the files that have been committed in part.
func (s *Files) PublishedPaths() (paths []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.mu.at {
		if f.published.Load() {
			paths = append(paths, f.path)
		}
	}
	return paths
}

// Count returns how many there are.
func (s *Files) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.at)
}

// add makes f the one that is open at its place, unless another is, which it returns.
func (s *Files) add(f *File) (other *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.mu.at[f.at]; other != nil {
		return other
	}
	s.mu.at[f.at] = f
	return nil
}

// begun makes a file findable by its number.
func (s *Files) begun(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.byID[f.file] = f
}

// reopened adds a file that recovery found open, in place of any open one there.
func (s *Files) reopened(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.at[f.at], s.mu.byID[f.file] = f, f
}

// forget takes a file out. It is locked.
func (s *Files) forget(f *File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.at[f.at] == f {
		delete(s.mu.at, f.at)
	}
	if s.mu.byID[f.file] == f {
		delete(s.mu.byID, f.file)
	}
}

// Unlink takes out the file at a place whose entry is gone, and notes that. It is locked.
func (s *Files) Unlink(p bb.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlinkLocked(p)
}

// unlinkLocked is Unlink where mu is held.
func (s *Files) unlinkLocked(p bb.Place) {
	if f := s.mu.at[p]; f != nil && !f.stub() {
		f.advance(eventUnlinked)
		delete(s.mu.at, p)
		delete(s.mu.byID, f.file)
	}
}

// Move follows a rename, in one step. The open files at the two places are locked.
func (s *Files) Move(from, to bb.Place, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlinkLocked(to)
	if f := s.mu.at[from]; f != nil && !f.stub() {
		delete(s.mu.at, from)
		f.at, f.path = to, path
		f.entry.Revision = 0 // the next put looks it up again
		s.mu.at[to] = f
	}
}

// Follow follows an exchange: a file has a place, whose former file has another one. It may be repeated. The open
// files at both places are locked.
func (s *Files) Follow(file bb.FileID, to bb.Place, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.mu.byID[file]
	if f == nil || f.at == to {
		return
	}
	if s.mu.at[f.at] == f {
		delete(s.mu.at, f.at)
	}
	f.at, f.path = to, path
	f.entry.Revision = 0 // the next put looks it up again
	s.mu.at[to] = f
}

// Clear takes all files out, of a buffer that was destroyed or set aside.
func (s *Files) Clear() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.at))
	s.mu.at, s.mu.byID = make(map[bb.Place]*File), make(map[bb.FileID]*File)
	s.mu.Unlock()
	for _, f := range all {
		f.mu.Lock()
		f.advance(eventUnlinked)
		f.mu.Unlock()
	}
}

// Lock locks the files that are open for writing at places, and keeps others from
// being opened there, so that no commit meets a rename or removal half way.
func (s *Files) Lock(at ...bb.Place) (unlock func()) {
	slices.SortFunc(at, func(p, q bb.Place) int { return cmp.Or(cmp.Compare(p.Dir, q.Dir), cmp.Compare(p.Name, q.Name)) })
	locked := make([]*File, 0, len(at))
	for _, p := range slices.Compact(at) { // a rename of a directory may have made two paths one place
		locked = append(locked, s.lockPlace(p))
	}
	return func() {
		for _, f := range locked {
			if f.stub() {
				f.removeFromOpen()
			}
			f.mu.Unlock()
		}
	}
}

// lockPlace locks the open file at a place, or a stub that keeps it.
func (s *Files) lockPlace(p bb.Place) *File {
	for {
		f, made := s.openAt(p, p.Name)
		if made {
			return f
		}
		f.mu.Lock()
		if f.state.phase == phaseOpen && f.at == p {
			return f
		}
		f.mu.Unlock() // it went, or was moved, while we waited for it
	}
}

// Reserve keeps others from opening a place where nothing is open, until release is called. Not ok: something is.
func (s *Files) Reserve(at bb.Place, path string) (release func(), ok bool) {
	stub, free := s.openAt(at, path)
	if !free {
		return nil, false
	}
	return func() { stub.removeFromOpen(); stub.mu.Unlock() }, true
}

// openAt returns the file that is open at a place, or a new one, locked, which the
// caller begins or removes from the open ones.
func (s *Files) openAt(at bb.Place, path string) (f *File, made bool) {
	if f := s.at(at); f != nil {
		return f, false
	}
	f = &File{in: s, at: at, path: path, second: s.p.Replicas.Copy(""), ended: make(chan struct{}), clients: make(map[Client]int)}
	f.mu.Lock()
	if other := s.add(f); other != nil {
		f.mu.Unlock()
		return other, false
	}
	return f, true
}
