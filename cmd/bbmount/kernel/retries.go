package kernel

import (
	"errors"
	"maps"
	"sync"
	"syscall"
)

// Retries are the threads whose open was answered with ESTALE. The kernel looks their path up again, once, and repeats
// the open. A second ESTALE would reach the program. The zero value has none. Its methods may be called concurrently.
type Retries struct {
	mu    sync.Mutex
	paths map[uint32]string // by thread
}

const maxRetries = 1 << 10 // threads that were killed before their second attempt included

// Failed notes the error of a thread's open of a path, and returns it.
func (r *Retries) Failed(thread uint32, path string, err error) error {
	if !errors.Is(err, syscall.ESTALE) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.paths == nil || len(r.paths) >= maxRetries {
		r.paths = map[uint32]string{}
	}
	r.paths[thread] = path
	return err
}

// Second reports whether a thread's open of a path is its second attempt, so that the kernel has looked the path up since
// the open began.
func (r *Retries) Second(thread uint32, path string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.paths[thread]
	delete(r.paths, thread)
	return ok && last == path
}

// Saved returns the paths by thread.
func (r *Retries) Saved() map[uint32]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.paths)
}

// Restore is the inverse of Saved.
func (r *Retries) Restore(paths map[uint32]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths = paths
}
