package posix

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// On Lustre a write fails with ENOSPC when one of the file's targets is full, however much room the others have. The
// attempt after that asks for another layout, over twice as many targets, and so for other objects.

// fullTargets counts, by name, the attempts that met a full target.
type fullTargets struct {
	mu    sync.Mutex
	tries map[string]int
}

const (
	maxFull  = 4096 // names remembered
	mostFull = 6    // so many doublings ask for all targets
)

func (f *fullTargets) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tries == nil || len(f.tries) >= maxFull {
		f.tries = map[string]int{}
	}
	f.tries[name]++
}

func (f *fullTargets) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.tries, name)
}

func (f *fullTargets) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tries[name]
}

// other returns the layout for an attempt after tries that met a full target. Has says that the table asks for l.
func (l Layout) other(has bool, tries int) Layout {
	if !has {
		l = Layout{Count: 1}
	}
	if l.Count > 0 {
		l.Count <<= min(tries, mostFull)
	}
	if tries >= mostFull || l.Count > maxStripes {
		l.Count = -1
	}
	return l
}

const maxStripes = 2000 // LOV_MAX_STRIPE_COUNT

// room returns how many bytes a file system has for users that are not root.
func room(root *os.Root) (int64, error) {
	dir, err := root.Open(".")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil
}

// fullTarget names a full target in an error of a file system that has room for the file, and notes the name.
func (p *Pending) fullTarget(err error) error {
	if p.s.identity.kind != lustreMagic || p.root == nil || !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	free, roomErr := p.s.opts.room(p.root)
	if roomErr != nil || free < 2*p.size {
		return err
	}
	p.s.full.note(p.name)
	return (&bb.Error{
		Kind: bb.NoSpace, Op: "put", Path: p.name,
		Err: fmt.Errorf("one of the file's storage targets is full, and the file system has %d bytes free: %w", free, err),
	}).WithRemedy("none is needed at once: the next attempt asks for other targets; see lfs df")
}
