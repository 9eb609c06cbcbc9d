package bbd

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/dedup"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Names is what is needed of a buffer's namespace, whose contracts these are.
type Names interface {
	Create(ctx context.Context, e bb.Entry) (revision uint64, err error)
	Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error)
	Lookup(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error)
	Removed(ctx context.Context, dir bb.DirID, name string, file bb.FileID, revision uint64) (bool, error)
	PathOf(ctx context.Context, dir bb.DirID) (string, error)
}

// Store is what is needed of memory, whose contracts these are.
type Store interface {
	Commit(...store.Commit) error
	Size(file bb.FileID, n bb.Generation) (int64, error)
	Base(file bb.FileID, n bb.Generation) (bb.Generation, error)
	Checksum(file bb.FileID, n bb.Generation) (sum uint64, size int64, err error)
	Seal(file bb.FileID, n bb.Generation) error
	MarkClean(file bb.FileID, n bb.Generation) error
	Void(file bb.FileID, n bb.Generation) error
	DropGeneration(file bb.FileID, n bb.Generation)
	Identify(*store.Identity) error
	IdentityOf(file bb.FileID) (store.Identity, bool)
}

// Paths resolves the paths of a buffer with the rights of a caller. Its methods may be called concurrently.
type Paths interface {
	// Parent returns the place of a path's last name, and whether the caller may create an entry there.
	Parent(ctx context.Context, c access.Caller, op, path string) (at bb.Place, mayCreate bool, err error)
	// MayChange refuses paths that are not for files of users.
	MayChange(op, path string) error
	// Lookup returns the entry of a path as readers see it.
	Lookup(ctx context.Context, c access.Caller, op, path string) (bb.Entry, error)
}

// Cache has what is read of the buffer's files. Its methods may be called concurrently, and under the lock of an
// open file.
type Cache interface {
	// Base makes what memory has of an entry's generation, or knows of its evicted bytes, the base of a newer one.
	Base(ctx context.Context, e *bb.Entry, path string) error
	// SumEvicted makes memory know the checksums of what is left of evicted extents of a generation that were
	// partly overwritten. E is the file's entry with the place where it lies now. It may read from the store.
	SumEvicted(ctx context.Context, e *bb.Entry, file bb.FileID, n bb.Generation) error
}

// Generation is one that is being written, for Replica.
type Generation struct {
	Entry bb.Entry  // with the file's place, and the generation
	Path  string    // for messages
	Near  bb.NodeID // the other node that opened it last; "": none has
}

// Replica is the second copy of a generation. Its methods are called under the lock of the file's commits.
type Replica interface {
	// Commit brings the copy up to date with a commit that is recorded here. Second, if not "", is the node that the
	// namespace is to have as the entry's second; moved: it was another one before. bb.Unavailable: no node has taken
	// the copy.
	Commit(ctx context.Context, g *Generation, extents []store.NewExtent) (second bb.NodeID, moved bool, err error)
	// Settled reports whether the copy has all that was committed of so many bytes, as far as can be had.
	Settled(bytes int64, near bb.NodeID) bool
	// HasTargets reports whether a node can be asked to keep a copy of so many bytes.
	HasTargets(bytes int64, near bb.NodeID) bool
	// Outdate notes that the copy may lack something.
	Outdate()
}

// Replicator keeps second copies of the buffer's generations. Its methods may be called concurrently.
type Replicator interface {
	// Copy returns the copy of a generation that a node is said to have; "": there is none yet. Nil: the generation
	// is to have none.
	Copy(at bb.NodeID) Replica
	// Discard drops what a node has of a generation, later; a node "" is none.
	Discard(node bb.NodeID, file bb.FileID, n bb.Generation)
}

// Queue has the closed files of the buffer that wait for their flush. Its methods may be called concurrently, and
// under the lock of an open file.
type Queue interface {
	// Closed queues a closed generation. Near is the other node that opened it last, second its second copy, nil
	// for none.
	Closed(e *bb.Entry, path string, near bb.NodeID, second Replica)
	// Suspect notes that the store may have an object of a file already under a path, one of these contents or another.
	Suspect(path string, attempts []bb.Content)
}

// Gate keeps a buffer from changes while it is about to be destroyed. Its methods may be called concurrently.
type Gate interface {
	Enter(ctx context.Context, op string) error
	Leave()
}

// OpenOptions are what the open files of all buffers of a daemon use. Its functions may be called concurrently.
type fileOptions struct {
	Owners owner.Node
	Store  Store
	NextID func() uint64 // a number that nobody else has
	// After returns a number for a generation that follows n, which another daemon may have chosen.
	After func(ctx context.Context, n bb.Generation) (bb.Generation, error)
	// Elsewhere returns the node that new files are made at while this one is being emptied; "": here.
	Elsewhere func() bb.NodeID
	Grace     time.Duration // how long a file stays open for writers that may come back
	Since     time.Time     // when the daemon started
	Go        func(func())  // starts what ends soon, or with the daemon
	Log       *slog.Logger
}

// fileParts are what the open files of a buffer need of the rest of it.
type fileParts struct {
	Spec      func() bb.Buffer                // its record
	Revisions func() bool                     // an entry's revision orders it among all changes: the namespace is a log
	Committed func(extents []store.NewExtent) // counts a commit
	Names     Names
	Paths     Paths
	Cache     Cache
	Replicas  Replicator
	Queue     Queue
	Gate      Gate
}

// openFiles has the files of a buffer that are open for writing: by the place of their entry, of
// which there is one at a time, and by their number once a generation has begun. What of a file
// its own mutex guards, the callers have locked. Its methods may be called concurrently.
type openFiles struct {
	o       fileOptions
	p       fileParts
	ctx     context.Context // ends when the daemon stops
	name    string
	commits dedup.Table
	mu      struct {
		lockorder.Mutex[lockrank.OpenFiles]
		at   map[bb.Place]*openFile
		byID map[bb.FileID]*openFile
	}
}

// newOpenFiles returns the open files of a buffer, until ctx ends.
func newOpenFiles(ctx context.Context, o fileOptions, name string, p fileParts) *openFiles {
	s := &openFiles{o: o, p: p, ctx: ctx, name: name}
	s.mu.at, s.mu.byID = make(map[bb.Place]*openFile), make(map[bb.FileID]*openFile)
	return s
}

func (s *openFiles) address(path string) string {
	return bb.Address{Buffer: s.name, Path: path}.String()
}

// LastCommit returns the number of a writer's last commit to a generation; 0: none that is remembered.
func (s *openFiles) LastCommit(file bb.FileID, n bb.Generation, writer uint64) uint64 {
	return s.commits.Last(file, n, writer)
}

// at returns the file that is open at a place; nil: none is.
func (s *openFiles) at(p bb.Place) *openFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.at[p]
}

// Of returns the file of a number; nil: it is not open, or not begun yet.
func (s *openFiles) Of(file bb.FileID) *openFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.byID[file]
}

// All returns the open files, with those that are not begun.
func (s *openFiles) All() []*openFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.at))
}

// Begun returns the numbers of the files of which a generation has begun.
func (s *openFiles) Begun() []bb.FileID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.mu.byID))
}

// PublishedPaths returns the paths of the files that have been committed in part.
func (s *openFiles) PublishedPaths() (paths []string) {
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
func (s *openFiles) Count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.at)
}

// add makes f the one that is open at its place, unless another is, which it returns.
func (s *openFiles) add(f *openFile) (other *openFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.mu.at[f.at]; other != nil {
		return other
	}
	s.mu.at[f.at] = f
	return nil
}

// begun makes a file findable by its number.
func (s *openFiles) begun(f *openFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.byID[f.file] = f
}

// reopened adds a file that recovery found open, whatever was open at its place.
func (s *openFiles) reopened(f *openFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.at[f.at], s.mu.byID[f.file] = f, f
}

// forget takes a file out. It is locked.
func (s *openFiles) forget(f *openFile) {
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
func (s *openFiles) Unlink(p bb.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlinkLocked(p)
}

// unlinkLocked is Unlink where mu is held.
func (s *openFiles) unlinkLocked(p bb.Place) {
	if f := s.mu.at[p]; f != nil && !f.stub() {
		f.advance(eventUnlinked)
		delete(s.mu.at, p)
		delete(s.mu.byID, f.file)
	}
}

// Move follows a rename, in one step. What is open at the two places is locked.
func (s *openFiles) Move(from, to bb.Place, path string) {
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

// Clear takes all files out, of a buffer that was destroyed or set aside.
func (s *openFiles) Clear() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.mu.at))
	s.mu.at, s.mu.byID = make(map[bb.Place]*openFile), make(map[bb.FileID]*openFile)
	s.mu.Unlock()
	for _, f := range all {
		f.mu.Lock()
		f.advance(eventUnlinked)
		f.mu.Unlock()
	}
}

// Lock locks the files that are open for writing at places, and keeps others from
// being opened there, so that no commit meets a rename or removal half way.
func (s *openFiles) Lock(at ...bb.Place) (unlock func()) {
	slices.SortFunc(at, func(p, q bb.Place) int { return cmp.Or(cmp.Compare(p.Dir, q.Dir), cmp.Compare(p.Name, q.Name)) })
	locked := make([]*openFile, 0, len(at))
	for _, p := range slices.Compact(at) { // a rename of a directory may have made two paths one place
		locked = append(locked, s.lockPlace(p))
	}
	return func() {
		for _, f := range locked {
			if f.stub() {
				f.retire()
			}
			f.mu.Unlock()
		}
	}
}

// lockPlace locks what is open at a place, or a stub that keeps it.
func (s *openFiles) lockPlace(p bb.Place) *openFile {
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
func (s *openFiles) Reserve(at bb.Place, path string) (release func(), ok bool) {
	stub, free := s.openAt(at, path)
	if !free {
		return nil, false
	}
	return func() { stub.retire(); stub.mu.Unlock() }, true
}

// openAt returns the file that is open at a place, or a new one, locked, which the
// caller begins or retires.
func (s *openFiles) openAt(at bb.Place, path string) (f *openFile, made bool) {
	if f := s.at(at); f != nil {
		return f, false
	}
	f = &openFile{in: s, at: at, path: path, second: s.p.Replicas.Copy(""), ended: make(chan struct{}), clients: make(map[Client]int)}
	f.mu.Lock()
	if other := s.add(f); other != nil {
		f.mu.Unlock()
		return other, false
	}
	return f, true
}
