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

// Small is the size in bytes up to which a file shares a sync. Most of the sync of a larger one is its own bytes.
const Small = 64 << 10

const (
	fewest   = 4                      // files for which one syncfs(2) is worth more than an fsync(2) of each
	most     = 256                    // files of a group, so that one has at most 16 MiB
	patience = 500 * time.Millisecond // that a file waits for others, and a syncfs may last before none is made for some time
)

// Options are of tests.
type Options struct {
	// Proven reports whether syncfs of a file's file system is proven to be enough, nil: the
	// function Proven.
	Proven func(f *os.File, dev uint64) bool
	Whole  func(f *os.File) error // syncs the file system; nil: syncfs(2)
	One    func(f *os.File) error // syncs a file; nil: fsync(2)
	// Write begins to write a file's bytes, and returns an error of that. Written waits for their end, and returns an error of
	// any since the file was opened. Nil: sync_file_range(2).
	Write, Written func(f *os.File) error
	Now            func() time.Time // nil: time.Now
	Patience       time.Duration    // that a file waits for others; 0: half a second
}

// Files groups syncs of small files, those of each mounted file system by themselves. A file that comes while no other one is
// synced has an fsync(2) of its own. Those that come meanwhile are the next group, which has one syncfs(2):
//
//	first file         fsync ──▶ done
//	2nd to 40th file   wait ───▶ syncfs ──▶ done
//	41st to 90th file            wait ────▶ syncfs ──▶ done
//
// Each file's own bytes are handed to the device before it waits, as the first half of an fsync
// does it, and their errors are collected after the syncfs (sync_file_range(2)). Both are errors of
// that file alone, which syncfs does not report in every case.
//
// syncfs writes all dirty data of the file system, also of other users, and nothing interrupts it. It therefore runs in a
// goroutine of Files, and each file, also the one that began it, waits no longer than patience and then has an fsync of its
// own. From then on until that sync has ended, all files have. After a syncfs that took so long, they have for some time
// more.
//
// A syncfs that fails is followed by an fsync of each file of the group. It reports each error of
// the file's own bytes since the descriptor was opened (errseq_t in lib/errseq.c of Linux), also if
// syncfs has reported it before, and nothing of other files.
type Files struct {
	opts   Options
	opened atomic.Uint64
	wholes sync.WaitGroup // syncfs under way

	mu  sync.Mutex
	fss map[uint64]*fileSystem // by st_dev: below one root, others may be mounted
}

type fileSystem struct {
	busy  bool      // a file, or a group, is being synced
	now   *group    // that is being synced; nil: none is
	next  *group    // that waits; nil: none does
	slow  bool      // a file has waited out its patience for the running sync, so nothing is shared until that has ended
	alone time.Time // until then nothing is shared
}

// group is the files that one syncfs makes durable.
type group struct {
	members int
	eldest  *os.File // whose descriptor was opened before the others were written, so that syncfs reports all their errors
	opened  uint64
	begin   chan struct{} // closed when the first member is to sync the group
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
	if o.Write == nil {
		o.Write = func(f *os.File) error { return syncRange(f, unix.SYNC_FILE_RANGE_WRITE) }
	}
	if o.Written == nil {
		o.Written = func(f *os.File) error { return syncRange(f, unix.SYNC_FILE_RANGE_WAIT_BEFORE) }
	}
	if o.One == nil {
		o.One = (*os.File).Sync
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	return &Files{opts: o, fss: map[uint64]*fileSystem{}}
}

// Opened is called after a file was opened and before it is written, for Sync.
func (s *Files) Opened() uint64 { return s.opened.Add(1) }

// Sync makes a file durable: its bytes, its length and its attributes. opened is the result of Opened for
// it.
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
	if err := s.opts.Write(f); err != nil {
		return err
	}
	g, first := s.join(fs, f, opened)
	if g == nil {
		if first {
			defer s.hand(fs)
		}
		return s.opts.One(f)
	}
	if !s.wait(fs, g, first) {
		return s.opts.One(f)
	}
	return s.opts.Written(f)
}

// wait returns whether a member's group was made durable before its patience ended. The first member begins the group's sync.
func (s *Files) wait(fs *fileSystem, g *group, first bool) bool {
	timer := time.NewTimer(s.opts.Patience)
	defer timer.Stop()
	begin := g.begin
	if !first {
		begin = nil
	}
	for {
		select {
		case <-begin:
			begin = nil
			s.lead(fs, g)
		case <-g.done:
			return g.durable
		case <-timer.C:
			if s.late(fs, g) && begin != nil {
				s.lead(fs, g) // others wait for it
			}
			return false
		}
	}
}

// of returns the file system of a file, or nil where nothing is shared. That is found out for each file. A file system of
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
// synced by itself. first then has the next group begin afterwards.
func (s *Files) join(fs *fileSystem, f *os.File, opened uint64) (g *group, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.opts.Now().Before(fs.alone) || fs.slow:
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

// hand lets the next group begin, or none.
func (s *Files) hand(fs *fileSystem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fs.now, fs.next, fs.slow = fs.next, nil, false
	fs.busy = fs.now != nil
	if fs.busy {
		close(fs.now.begin)
	}
}

// late is called when a member's patience has ended. A group that has not begun by then is disbanded. Each of its files is
// synced by itself. It returns whether the group's turn has come and not ended.
func (s *Files) late(fs *fileSystem, g *group) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch g {
	case fs.next:
		fs.next = nil
		close(g.done)
	case fs.now:
	default:
		return false
	}
	fs.slow = true
	return g == fs.now
}

// lead begins the sync of a group that is closed to others, on a descriptor of its own. That of a
// member, which has the same errors, may be closed meanwhile.
func (s *Files) lead(fs *fileSystem, g *group) {
	if g.members < fewest {
		s.end(fs, g, false)
		return
	}
	f, err := duplicate(g.eldest)
	if err != nil { // it was closed, as its patience has ended
		s.end(fs, g, false)
		return
	}
	s.wholes.Go(func() {
		defer f.Close()
		began := s.opts.Now()
		err := s.opts.Whole(f)
		ended := s.opts.Now()
		s.mu.Lock()
		fs.alone = ended.Add(pause(ended.Sub(began)))
		s.mu.Unlock()
		s.end(fs, g, err == nil)
	})
}

func (s *Files) end(fs *fileSystem, g *group, durable bool) {
	g.durable = durable
	close(g.done)
	s.hand(fs)
}

// Wait waits until the kernel has ended the calls for groups, also those that no file waits for any more. It is
// called when no Sync is under way.
func (s *Files) Wait() { s.wholes.Wait() }

// pause returns for how long nothing is shared after a syncfs that took so long. So syncfs calls that are slow
// because of others' writes take a tenth of the time at most.
func pause(took time.Duration) time.Duration {
	if took < patience {
		return 0
	}
	return min(9*took, 10*time.Minute)
}

// whole is syncfs(2).
func whole(f *os.File) error { return control(f, unix.Syncfs) }

// duplicate returns another descriptor of f's file (dup(2)).
func duplicate(f *os.File) (*os.File, error) {
	own := -1
	err := control(f, func(fd int) (err error) {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(own), f.Name()), nil
}

// syncRange is sync_file_range(2) of all bytes.
func syncRange(f *os.File, flags int) error {
	err := control(f, func(fd int) error { return unix.SyncFileRange(fd, 0, 0, flags) })
	if err != nil {
		return &os.PathError{Op: "sync_file_range", Path: f.Name(), Err: err}
	}
	return nil
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
