// Package syncgroup makes files and directories durable, those that wait together by one call of the kernel. It must
// never know names of objects, nor rename anything.
package syncgroup

import (
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Small is the size in bytes up to which a file shares a sync: most of the sync of a larger one is its own bytes.
const Small = 64 << 10

const (
	fewest   = 4                      // files for which one syncfs(2) is worth more than an fsync(2) of each
	most     = 256                    // files of a group, so that one has at most 16 MiB
	patience = 500 * time.Millisecond // that a file waits for others
)

// Options are of tests.
type Options struct {
	Proven func(f *os.File, dev uint64) bool // whether syncfs of a file's file system is known to be enough; nil: Proven
	Whole  func(f *os.File) error            // syncs the file system; nil: syncfs(2)
	One    func(f *os.File) error            // syncs a file; nil: fsync(2)
	Now    func() time.Time                  // nil: time.Now
}

// Files groups syncs of small files, those of each mounted file system by themselves. A file that comes while no other one is
// synced has an fsync(2) of its own. Those that come meanwhile are the next group, which has one syncfs(2):
//
//	first file         fsync ──▶ done
//	2nd to 40th file   wait ───▶ syncfs by the 2nd ──▶ done
//	41st to 90th file            wait ───────────────▶ syncfs by the 41st ──▶ done
//
// syncfs writes whatever the file system has to write, also of other users. A file therefore waits for others
// no longer than patience, and then has an fsync of its own; after a syncfs that took so long, all have, for some time.
// One call of the kernel is carried out by the goroutine of one caller, and none by any other.
//
// A syncfs that fails is followed by an fsync of each file of the group. It reports each error of the
// file's own bytes since the descriptor was opened (errseq_t in lib/errseq.c of Linux), whatever syncfs has
// reported before, and nothing of other files.
type Files struct {
	opts   Options
	opened atomic.Uint64

	mu  sync.Mutex
	fss map[uint64]*fileSystem // by st_dev: below one root, others may be mounted
}

type fileSystem struct {
	busy  bool      // a file, or a group, is being synced
	next  *group    // that waits; nil: nobody does
	alone time.Time // until then nothing is shared
}

// group is what one syncfs makes durable.
type group struct {
	members int
	eldest  *os.File // whose descriptor was opened before the others were written, so that syncfs reports all their errors
	opened  uint64
	begin   chan struct{} // closed when the first member is to sync the group
	begun   bool
	done    chan struct{} // closed with durable set
	durable bool
}

// NewFiles returns a Files.
func NewFiles(o Options) *Files {
	if o.Proven == nil {
		o.Proven = Proven
	}
	if o.Whole == nil {
		o.Whole = whole
	}
	if o.One == nil {
		o.One = (*os.File).Sync
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Files{opts: o, fss: map[uint64]*fileSystem{}}
}

// Opened is called after a file was opened and before it is written, for Sync.
func (s *Files) Opened() uint64 { return s.opened.Add(1) }

// Sync makes a file durable: its bytes, its length and its attributes. opened is what Opened returned of it.
func (s *Files) Sync(f *os.File, size int64, opened uint64) error {
	if size > Small {
		return s.opts.One(f)
	}
	fs, err := s.of(f)
	if err != nil {
		return err
	}
	if fs == nil {
		return s.opts.One(f)
	}
	g, first := s.join(fs, f, opened)
	switch {
	case g == nil && first:
		defer s.hand(fs)
		return s.opts.One(f)
	case g == nil:
		return s.opts.One(f)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	begin := g.begin
	if !first {
		begin = nil
	}
	select {
	case <-begin:
		s.lead(fs, g)
	case <-g.done:
	case <-timer.C:
		if first && !s.disband(fs, g) {
			s.lead(fs, g)
			break
		}
		return s.opts.One(f)
	}
	if g.durable {
		return nil
	}
	return s.opts.One(f)
}

// of returns the file system of a file, or nil where nothing is shared. That is found out for each file: a file system of
// another type may be mounted on the same device by now.
func (s *Files) of(f *os.File) (*fileSystem, error) {
	var stat unix.Stat_t
	if err := control(f, func(fd int) error { return unix.Fstat(fd, &stat) }); err != nil {
		return nil, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	dev := uint64(stat.Dev)
	if !s.opts.Proven(f, dev) {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.fss[dev]
	if fs == nil {
		fs = &fileSystem{}
		s.fss[dev] = fs
	}
	return fs, nil
}

// join returns the group that a file is in, and whether the file is its first. Without a group the file is
// synced by itself; first then has the next group begin afterwards.
func (s *Files) join(fs *fileSystem, f *os.File, opened uint64) (g *group, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opts.Now().Before(fs.alone):
		return nil, false
	case !fs.busy:
		fs.busy = true
		return nil, true
	case fs.next == nil:
		fs.next, first = &group{opened: math.MaxUint64, begin: make(chan struct{}), done: make(chan struct{})}, true
	case fs.next.members == most:
		return nil, false
	}
	g = fs.next
	g.members++
	if opened < g.opened {
		g.eldest, g.opened = f, opened
	}
	return g, first
}

// hand lets the next group begin, or nobody.
func (s *Files) hand(fs *fileSystem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := fs.next
	fs.next, fs.busy = nil, g != nil
	if g != nil {
		g.begun = true
		close(g.begin)
	}
}

// disband ends a group that did not begin in time; each of its files is then synced by itself.
func (s *Files) disband(fs *fileSystem, g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.begun {
		return false
	}
	fs.next = nil
	close(g.done)
	return true
}

// lead syncs a group that nobody joins any more.
func (s *Files) lead(fs *fileSystem, g *group) {
	defer s.hand(fs)
	defer close(g.done)
	if g.members < fewest {
		return
	}
	began := s.opts.Now()
	err := s.opts.Whole(g.eldest)
	ended := s.opts.Now()
	s.mu.Lock()
	fs.alone = ended.Add(pause(ended.Sub(began)))
	s.mu.Unlock()
	g.durable = err == nil
}

// pause returns for how long nothing is shared after a syncfs that took so long. Of the time, syncfs that are slow
// by what others write so have a tenth at most.
func pause(took time.Duration) time.Duration {
	if took < patience {
		return 0
	}
	return min(9*took, 10*time.Minute)
}

// whole is syncfs(2). It has a descriptor of its own, which has the errors of f's: f may be closed meanwhile.
func whole(f *os.File) error {
	own := -1
	err := control(f, func(fd int) (err error) {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(own)
	return unix.Syncfs(own)
}

func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	inner := error(nil)
	if err := conn.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}
