package powertest

import (
	"fmt"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// Fault makes one call of the kernel to the file system fail, or hang.
type Fault struct {
	Call  string        // as Calls names it
	Errno syscall.Errno // its error
	Done  bool          // it is carried out all the same
	Short bool          // of a write; half of its bytes are written, and its result is that number
	Hold  chan struct{} // if not nil, the call waits until this is closed, and is carried out then
}

// faults counts the calls, and lets one of them fail.
type faults struct {
	mu      sync.Mutex
	on      bool
	fault   Fault
	count   map[string]int // by kind
	calls   []string
	reached chan struct{}
}

// Inject begins to count calls, of which one fails. None does with the zero Fault. The channel is
// closed when that call has come.
func (f *FS) Inject(fault Fault) (reached <-chan struct{}) {
	s := &f.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.fault, s.count, s.calls, s.reached = true, fault, map[string]int{}, nil, make(chan struct{})
	return s.reached
}

// Redirect makes lookups in the root directory find the target of another name, which to returns. It
// is called once for each lookup, one at a time. The kernel looks a name up whenever it walks a path.
func (f *FS) Redirect(to func(name string) string) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.disk.redirect = to
}

// Calls ends the injection of Inject, and returns the calls that came, with their kind and the
// number of earlier ones of that kind.
func (f *FS) Calls() []string {
	s := &f.faults
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = false
	return slices.Clone(s.calls)
}

// next counts a call, and returns its fault.
func (s *faults) next(kind string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return Fault{}
	}
	name := fmt.Sprintf("%s %d", kind, s.count[kind])
	s.count[kind]++
	s.calls = append(s.calls, name)
	if name != s.fault.Call {
		return Fault{}
	}
	close(s.reached)
	return s.fault
}

func (s *faults) around(kind string, do func() syscall.Errno) fuse.Status {
	return s.next(kind).around(do)
}

func (fault Fault) around(do func() syscall.Errno) fuse.Status {
	if fault.Hold != nil {
		<-fault.Hold
	}
	if fault.Errno != 0 && !fault.Done {
		return fuse.Status(fault.Errno)
	}
	errno := do()
	if fault.Errno != 0 {
		errno = fault.Errno
	}
	return fuse.Status(errno)
}

// Left returns the files, by their paths, that a cut of the power would leave now, as a seed
// decides. Nothing is cut.
func (f *FS) Left(seed uint64) map[string][]byte {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	d, files := f.disk.left(seed), map[string][]byte{}
	var walk func(id uint64, at string)
	walk = func(id uint64, at string) {
		if n := d.inodes[id]; !n.isDir() {
			files[at] = n.now
		}
		for name, below := range d.inodes[id].names {
			walk(below, path.Join(at, name))
		}
	}
	walk(rootID, "")
	return files
}
