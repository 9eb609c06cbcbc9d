package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// populateStep is how much one call populates: short enough for Close to wait for
// (40 ms at the slowest rate seen), long enough to cost nothing.
const populateStep = 16 << 20

type populateWork struct {
	r    *region
	step int
}

// populator touches memory in the background before anybody is given it: first
// touches cost ten times as much as copies. It owns its goroutines; they end when
// there is nothing to do, and wait returns when they have.
type populator struct {
	done func(populateWork, error)

	mu struct {
		sync.Mutex
		idle    sync.Cond // signalled when a step is done
		active  map[*region]int
		queue   []populateWork
		workers int
		threads int
		closed  bool
	}
	wg sync.WaitGroup
}

func (p *populator) start(threads int, done func(populateWork, error)) {
	p.done = done
	p.mu.threads = threads
	p.mu.active = map[*region]int{}
	p.mu.idle.L = &p.mu
}

// add queues a region's steps, in order, behind those already there.
func (p *populator) add(r *region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	for i := range r.steps {
		p.mu.queue = append(p.mu.queue, populateWork{r, i})
	}
	for p.mu.workers < min(p.mu.threads, len(p.mu.queue)) {
		p.mu.workers++
		p.wg.Go(p.work)
	}
}

func (p *populator) next() (w populateWork, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || len(p.mu.queue) == 0 {
		p.mu.workers--
		return w, false
	}
	w = p.mu.queue[0]
	p.mu.queue = p.mu.queue[1:]
	p.mu.active[w.r]++
	return w, true
}

func (p *populator) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.workers > 0
}

func (p *populator) work() {
	for {
		w, ok := p.next()
		if !ok {
			return
		}
		from := w.step * populateStep
		p.done(w, w.r.populateStep(int64(from), int64(min(from+populateStep, len(w.r.mem)))))
		p.mu.Lock()
		p.mu.active[w.r]--
		p.mu.idle.Broadcast()
		p.mu.Unlock()
	}
}

// forget drops a region's queued steps and waits for those under way.
func (p *populator) forget(r *region) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue = slices.DeleteFunc(p.mu.queue, func(w populateWork) bool { return w.r == r })
	for p.mu.active[r] > 0 {
		p.mu.idle.Wait()
	}
	delete(p.mu.active, r)
}

// close forgets what is queued and waits for what is under way.
func (p *populator) close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.queue = nil
	p.mu.Unlock()
	p.wg.Wait()
}

// populateStep gives bytes [from, to) of the region their pages, and what the journal of their
// units starts with. It leaves what is in them as it is. bb.NoSpace where the file system of
// the region has no pages left.
func (r *region) populateStep(from, to int64) error {
	return cmpErr(r.populateIn(r.file, r.mem[from:to]), r.populateTails(from, to))
}

// populateIn gives mem, a mapping of one of the region's files, its pages.
func (r *region) populateIn(f *os.File, mem []byte) error {
	err := populate(mem)
	if err == nil {
		return nil
	}
	var fs unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &fs) != nil || int64(fs.Bavail)*fs.Bsize >= int64(len(mem)) {
		return err
	}
	return fullFileSystem("populate", r.path, fmt.Sprintf("%d bytes were wanted", len(mem)))
}

// fullFileSystem is the error of a store whose folder others have filled.
func fullFileSystem(op, path, why string) error {
	return bb.E(bb.NoSpace, op, path, "the file system is full: "+why).
		WithRemedy("remove what other applications have put there (df, du), or give the store a file system of its own")
}

// populate gives mem its pages and leaves what is in them as it is.
func populate(mem []byte) error {
	err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Linux before 5.14. Reading allocates pages of a tmpfs as well; writing would
	// race with the clients of adopted regions.
	return guard("populate", "", func() error {
		var sum byte
		for i := 0; i < len(mem); i += unix.Getpagesize() {
			sum |= mem[i]
		}
		_ = sum
		return nil
	})
}

// populated notes that a step is done, and wakes those who wait for Ready.
func (s *Store) populated(w populateWork, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := w.r
	if err != nil {
		if !s.mu.short { // once: thousands of steps fail for one reason
			s.mu.short = true
			s.log.Error("populate region: less memory will be used", "region", r.id, "path", r.path, "error", err)
		}
		return
	}
	r.steps[w.step] = true
	for i := r.populated / populateStep; i < int64(len(r.steps)) && r.steps[i]; i++ {
		r.populated = min((i+1)*populateStep, int64(len(r.mem)))
	}
	if !r.log && r.tier == bb.TierMemory && r.populated >= 2*Unit && !s.mu.ready {
		s.mu.ready = true
		close(s.ready)
	}
}
