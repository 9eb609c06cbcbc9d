// Package passthrough has the kernel read large files straight from the daemon's memory. It decides which programs
// read so. It must never depend on names.
package passthrough

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/internal/bb"
)

// Least is the size of a file, in bytes, from which on the daemon is asked to lay it out for the kernel.
const Least = 8 << 20

// Opening is an opening of a file, and the other openers of it on this mount.
type Opening struct {
	Write      bool
	Exec       bool
	Nameless   bool // the file has no name any more
	Size       int64
	Generation bb.Generation // 0: it is being written, here or elsewhere
	Others     int           // other openers
	Reads      bb.Generation // that they read by passthrough; 0: they read as usual
}

// Way is how a program reads a file.
type Way int

const (
	Usual Way = iota // by the mount's process, through the kernel's pages
	Try              // by passthrough, if the file can be laid out for it
	Join             // by passthrough, as the others do
)

// Of decides how a program reads a file. The kernel keeps a file in one mode, with the same memory, for as long as it is
// open. What is read by passthrough never changes. So a writer is refused (ETXTBSY), as one of a program that runs. An
// opener of newer bytes is refused, too (ESTALE).
func Of(o Opening) (Way, error) {
	switch {
	case o.Reads != 0 && o.Write:
		return Usual, syscall.ETXTBSY
	case o.Reads != 0 && o.Reads != o.Generation && !o.Nameless:
		return Usual, syscall.ESTALE
	case o.Reads != 0:
		return Join, nil
	case o.Write || o.Exec || o.Nameless || o.Others > 0 || o.Generation == 0 || o.Size < Least:
		return Usual, nil
	default:
		return Try, nil
	}
}

// Backing is the memory of a file that programs read by passthrough.
type Backing struct {
	Generation bb.Generation
	mapping    *client.Mapping
	fd         int
	end        func()
	readers    int
}

// Map returns the memory of a file that was opened to be read in place (client.OpenOptions.Linear), or nil if it does not lie
// so, or is now another than its opener met. It calls end when the file is not needed any more.
func Map(f *client.File, met, now *client.Entry, end func()) *Backing {
	if now.Generation != met.Generation || now.Size != met.Size {
		end()
		return nil
	}
	m, err := f.Map(0, now.Size)
	if err != nil {
		end()
		return nil
	}
	b := &Backing{Generation: now.Generation, mapping: m, end: end}
	file := m.InPlace()
	if file == nil || m.Len() != now.Size {
		b.close()
		return nil
	}
	b.fd = int(file.Fd())
	return b
}

func (b *Backing) close() {
	b.mapping.Release() //nolint:errcheck // it never fails
	b.end()
}

// fmodeExec is in the flags of the kernel's own opening of a program.
const fmodeExec = 0x20

// Way decides how an opener with these flags reads a file, of which o has Nameless and Others. All others have the backing b,
// which may be nil. Its entry is open if it is being written.
func (b *Backing) Way(o Opening, e *client.Entry, flags uint32) (Way, error) {
	o.Write, o.Exec, o.Size = flags&syscall.O_ACCMODE != syscall.O_RDONLY, flags&fmodeExec != 0, e.Size
	if e.State != client.StateOpen {
		o.Generation = e.Generation
	}
	if b != nil {
		o.Reads = b.Generation
	}
	w, err := Of(o)
	if err != nil {
		err = refusal{err.(syscall.Errno)}
	}
	return w, err
}

// refusal is the reason why a call is refused beside readers by passthrough.
type refusal struct{ syscall.Errno }

// ErrRead refuses a change of what programs read by passthrough.
var ErrRead error = refusal{syscall.ETXTBSY}

// closing is how long the kernel may take to report that a file is closed, after the program's close has returned.
const closing = 200 * time.Millisecond

// Settled repeats a call that is refused beside readers which may be closed already.
func Settled(ctx context.Context, call func() error) error {
	for deadline := time.Now().Add(closing); ; {
		err := call()
		refused, is := err.(refusal)
		if !is {
			return err
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return refused.Errno
		}
		time.Sleep(time.Millisecond)
	}
}

// Fd returns the descriptor of the memory, for fs.FilePassthroughFder.
func (b *Backing) Fd() (int, bool) {
	if b == nil {
		return 0, false
	}
	return b.fd, true
}

// Enter counts a reader, unless it reads as usual: b is nil.
func (b *Backing) Enter() {
	if b != nil {
		b.readers++
	}
}

// Leave ends a reader. It reports whether it was the last one, with which the memory is the daemon's again.
func (b *Backing) Leave() (last bool) {
	if b.readers--; b.readers == 0 {
		b.close()
	}
	return b.readers == 0
}

// Ends carries out what has to follow the end of a passthrough. The kernel's and the library's own record of it ends after the
// file system's Release.
type Ends struct {
	byCall sync.Map
	off    atomic.Bool
}

// Off has all files read as usual from now on. Nil ends are off.
func (e *Ends) Off() { e.off.Store(true) }

// Wanted reports whether a file is to be read by passthrough, if it can be.
func (e *Ends) Wanted(w Way) bool { return e != nil && w == Try && !e.off.Load() }

// After has f called when the Release is over that is carried out with a context.
func (e *Ends) After(ctx *fuse.Context, f func()) { e.byCall.Store(ctx.Cancel, f) }

// Wrap returns a file system whose ends are carried out.
func (e *Ends) Wrap(calls fuse.RawFileSystem) fuse.RawFileSystem { return &fileSystem{calls, e} }

// Device is a mount's connection to the kernel.
type Device interface {
	RegisterBackingFd(m *fuse.BackingMap) (id int32, errno syscall.Errno)
	UnregisterBackingFd(id int32) syscall.Errno
}

// Check returns the reason why a mount cannot pass reads on to the kernel, nil if it can.
func Check(device Device) error {
	fd, err := unix.MemfdCreate("bbmount", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	id, errno := device.RegisterBackingFd(&fuse.BackingMap{Fd: int32(fd)})
	if errno != 0 {
		return errno
	}
	device.UnregisterBackingFd(id)
	return nil
}

// fileSystem is a file system as it is, whose ends are carried out.
type fileSystem struct {
	fuse.RawFileSystem
	ends *Ends
}

// Release implements the last close of an open file.
func (f *fileSystem) Release(_ <-chan struct{}, in *fuse.ReleaseIn) {
	var call <-chan struct{} = make(chan struct{}) // a release cannot be cancelled
	f.RawFileSystem.Release(call, in)
	if end, ok := f.ends.byCall.LoadAndDelete(call); ok {
		end.(func())()
	}
}
