//go:build ofi && cgo

package ofi

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
)

const (
	stageSize = BufferSize
	// slabStages is how many stages are mapped and registered at once.
	slabStages = 64
	// stageShare is how many stages a connection gets whatever the others hold.
	stageShare = 16
)

// stages are registered buffers for operations on memory that is not in a region, on fabrics that
// touch registered memory alone. A copy costs less than a registration does at these sizes, and
// memory of the Go heap cannot be registered for long: it may move to other pages when it is
// unused. The memory is mapped and registered when it is first needed, and kept.
//
// A caller may take one for itself, with Fabric.Buffer, and spare the copy: what lies in a stage is
// registered.
//
// All connections share them, and one whose peer stands still may hold as many as its window is
// wide for as long as Options.PeerTimeout. So that the others do not stand still with it, each is
// owed a share: where none is free, a connection that holds less has more memory mapped. Nobody
// holds more than its window, which bounds the whole.
type stages struct {
	dev     *device
	buffers *provider.Credits // for callers, so that there are stages for the others

	mu struct {
		sync.Mutex
		slabs   []slab
		free    []stage
		waiting []*conn
	}
}

// maxBuffers is how many stages callers hold at once.
const maxBuffers = slabStages / 2

func newStages(d *device) *stages { return &stages{dev: d, buffers: provider.NewCredits(maxBuffers)} }

// slab is memory for slabStages stages.
type slab struct {
	mem []byte
	reg *registration
}

// find returns what the fabric calls the slab that holds all of b; nil if none does.
func (s *stages) find(b []byte) *registration {
	at := uint64(address(b))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.mu.slabs {
		from := uint64(address(s.mu.slabs[i].mem))
		if at >= from && at+uint64(len(b)) <= from+slabStages*stageSize {
			return s.mu.slabs[i].reg
		}
	}
	return nil
}

// Buffer is memory of BufferSize bytes that is registered: operations on it need no copy.
type Buffer struct {
	stages *stages
	stage  stage
	once   sync.Once
}

// Buffer returns a buffer out of those that operations on other memory use one by one. It waits
// while callers hold too many. The buffer holds anything.
func (f *Fabric) Buffer(ctx context.Context) (*Buffer, error) {
	s := f.stages
	if _, err := s.buffers.Take(ctx, f.ctx.Done(), 1); err != nil {
		if f.ctx.Err() != nil {
			err = rdma.ErrClosed
		}
		return nil, err
	}
	done, err := f.use()
	if err != nil {
		s.buffers.Give(1)
		return nil, err
	}
	defer done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.free) == 0 {
		if err := s.grow(); err != nil {
			s.buffers.Give(1)
			return nil, fmt.Errorf("ofi: %w", err)
		}
	}
	last := len(s.mu.free) - 1
	b := &Buffer{stages: s, stage: s.mu.free[last]}
	s.mu.free = s.mu.free[:last]
	return b, nil
}

// Bytes is the memory, until Release, and until the Fabric is closed.
func (b *Buffer) Bytes() []byte { return b.stage.mem }

// Release gives the buffer back, whose operations have completed. It is idempotent.
func (b *Buffer) Release() {
	b.once.Do(func() {
		b.stages.give(b.stage)
		b.stages.buffers.Give(1)
	})
}

// stage is a buffer of stageSize bytes; mem is nil where there is none.
type stage struct {
	mem []byte
	reg *registration
}

// take returns a stage for a connection that holds so many. If there is none and no error, the
// connection is told when there is one.
func (s *stages) take(c *conn, holds int) (stage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.free) == 0 && holds < stageShare {
		if err := s.grow(); err != nil && len(s.mu.slabs) == 0 {
			return stage{}, err
		}
	}
	last := len(s.mu.free) - 1
	if last < 0 {
		s.mu.waiting = append(s.mu.waiting, c)
		return stage{}, nil
	}
	b := s.mu.free[last]
	s.mu.free = s.mu.free[:last]
	return b, nil
}

// grow adds a slab. The lock is held.
func (s *stages) grow() error {
	mem, err := unix.Mmap(-1, 0, stageSize*slabStages, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map buffers for memory that is not in a region: %w", err)
	}
	reg := &registration{}
	if s.dev.local {
		reg, err = s.dev.register(mem, rdma.AccessLocal)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("buffers for memory that is not in a region: %w", err), unix.Munmap(mem))
	}
	s.mu.slabs = append(s.mu.slabs, slab{mem, reg})
	for i := range slabStages {
		s.mu.free = append(s.mu.free, stage{mem[i*stageSize : (i+1)*stageSize : (i+1)*stageSize], reg})
	}
	return nil
}

// give takes a stage back, and wakes those that wait for one.
func (s *stages) give(b stage) {
	s.mu.Lock()
	s.mu.free = append(s.mu.free, b)
	waiting := s.mu.waiting
	s.mu.waiting = nil
	s.mu.Unlock()
	for _, c := range waiting {
		c.fabric.loop.stall(c)
	}
}

// close gives the memory back. Nobody holds a stage any more.
func (s *stages) close() error {
	var errs []error
	for _, b := range s.mu.slabs {
		errs = append(errs, b.reg.close(), unix.Munmap(b.mem))
	}
	return errors.Join(errs...)
}
