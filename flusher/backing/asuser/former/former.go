// Package former finds store workers of a daemon's earlier runs that have not ended, and keeps new
// ones from the files that they may still change. It must never depend on a store, nor the work of a
// worker.
package former

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// A killed daemon takes its workers along, but not at once. The kernel carries the system call that a
// worker is in to its end, and a network file system may take as long over a rename as its server is
// away. By then the next daemon may have written a newer file, which the old rename would replace:
//
//	daemon 1   worker 1: rename(temporary, f) ─ ─ ─ ─ ─ ─ ─ ─ ─ ─▶ f is old
//	   ✗ killed
//	           daemon 2   worker 2: rename(temporary, f) ─▶ f is new
//
// So each worker holds a lock on a file of its own, which no other process has, and the kernel
// gives it up with the process. The next daemon finds the files that are still locked, and starts
// no worker of the same user for the same root, one below it or one above it until they are not.
// Other users and stores do not wait.
//
// The file holds a holder as JSON. Its worker can read it and release the lock, and harms
// its own user alone.

// holder is the content of a file that a worker holds.
type holder struct {
	UID  uint32 `json:"uid"`
	Root []byte `json:"root"` // bytes, since a path need be no text
}

// former is a worker of an earlier life of the daemon that had not ended at the last check.
type former struct {
	holder
	file *os.File
}

// Workers are the workers of earlier runs. Its methods may be called concurrently.
type Workers struct {
	Dir    string        // "": nothing is held
	Within time.Duration // how long a call waits before it fails

	mu   sync.Mutex
	left []*former
}

// Find lists the workers that still hold a file of a directory, and removes the other files.
func Find(dir string) (*Workers, error) {
	f := &Workers{Dir: dir, Within: formerWithin}
	if dir == "" {
		return f, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		one, err := openFormer(filepath.Join(dir, e.Name()))
		if err != nil {
			f.Close()
			return nil, err
		}
		f.left = append(f.left, one)
	}
	f.look()
	return f, nil
}

// openFormer reads a file that a worker holds, or has held. A daemon that was killed before it
// had written the file has started no worker with it.
func openFormer(name string) (*former, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	one := &former{file: file}
	if err := json.NewDecoder(file).Decode(&one.holder); err != nil {
		one.Root = []byte("/")
	}
	return one, nil
}

// look removes those that have ended.
func (f *Workers) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []*former
	for _, one := range f.left {
		if errors.Is(unix.Flock(int(one.file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
			left = append(left, one)
			continue
		}
		os.Remove(one.file.Name())
		one.file.Close()
	}
	f.left = left
}

// inTheWay returns how many workers have not ended that may reach the files of a new one, and the root of
// one.
func (f *Workers) inTheWay(uid uint32, root string) (n int, of string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.left {
		if at := string(one.Root); one.UID == uid && bb.Overlaps(filepath.Clean(at), filepath.Clean(root)) {
			n, of = n+1, at
		}
	}
	return n, of
}

// formerWithin is the time that a call waits for workers of an earlier life before it fails.
// Workers that do not hang end in milliseconds.
const formerWithin = 3 * time.Second

// Wait waits until no worker of an earlier life is in the way of a new one.
func (f *Workers) Wait(uid uint32, root string, closing <-chan struct{}) error {
	for end := time.Now().Add(f.Within); ; {
		if n, _ := f.inTheWay(uid, root); n == 0 {
			return nil
		}
		f.look()
		n, of := f.inTheWay(uid, root)
		switch {
		case n == 0:
			return nil
		case time.Now().After(end):
			return bb.E(bb.Unavailable, "open backing", root, fmt.Sprintf(
				"the store does not answer: %s an earlier start of the daemon, of uid %d for %s, and may change it yet",
				bb.Count(n, "store worker hangs in it since", "store workers hang in it since"), uid, bb.Printable(of))).
				WithRemedy("check the file system or the store; work continues when it answers")
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-closing:
			return bb.E(bb.Unavailable, "open backing", root, "the daemon stops")
		}
	}
}

// Hold makes the file that a new worker is to inherit, locked. It returns nil if nothing is held.
func (f *Workers) Hold(uid uint32, root string) (*os.File, error) {
	if f.Dir == "" {
		return nil, nil
	}
	text, err := json.Marshal(holder{UID: uid, Root: []byte(root)})
	if err != nil {
		return nil, err
	}
	made, err := os.CreateTemp(f.Dir, "")
	if err != nil {
		return nil, err
	}
	defer made.Close()
	var file *os.File
	if _, err = made.Write(text); err == nil {
		// The worker cannot write to it. No other process has it, so nothing else keeps the lock.
		file, err = os.Open(made.Name())
	}
	if err == nil {
		err = os.NewSyscallError("flock", unix.Flock(int(file.Fd()), unix.LOCK_EX))
	}
	if err != nil {
		file.Close()
		f.Release(made.Name())
		return nil, err
	}
	return file, nil
}

// Release removes the file of a worker that has ended.
func (f *Workers) Release(name string) {
	if name != "" {
		os.Remove(name)
	}
}

// Close releases the files of the remaining workers.
func (f *Workers) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.left {
		one.file.Close()
	}
	f.left = nil
}
