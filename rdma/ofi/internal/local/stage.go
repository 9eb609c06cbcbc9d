//go:build ofi && cgo

package local

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/rdma"
	"forebay/rdma/internal/provider"
	"forebay/rdma/ofi/fi"
)

const (
	// SlabStages is how many stages are mapped and registered at once.
	SlabStages = 64
	// Share is the number of stages guaranteed to each connection.
	Share = 16
)

// Stages are registered buffers for operations on memory that is not in a region, on fabrics that
// touch registered memory alone. At these sizes a copy costs less than a registration does. Memory
// of the Go heap cannot be registered for long, since its unused pages may be replaced. The memory
// of stages is mapped and registered when it is first needed, and kept.
//
// A caller may reserve one for itself, with Buffer, and spare the copy. Bytes in a stage are
// registered.
//
// All connections share them, and one whose peer stands still may hold as many as its window is
// wide for as long as Options.PeerTimeout. So that the others do not stand still with it, each is
// owed a share. If none is free, a connection that holds less has more memory mapped. No connection
// holds more than its window, which bounds the whole.
type Stages struct {
	dev     *fi.Device
	buffers *provider.Credits // for callers, so that there are stages for the others

	mu struct {
		sync.Mutex
		slabs   []slab
		free    []Stage
		waiting []Waiter
	}
}

// Waiter is a connection that waits for a stage.
type Waiter interface {
	// Retry reports that there may be one. It must not wait, nor take one.
	Retry()
}

// MaxBuffers is how many stages callers hold at once.
const MaxBuffers = SlabStages / 2

func newStages(d *fi.Device) *Stages {
	return &Stages{dev: d, buffers: provider.NewCredits(MaxBuffers)}
}

// slab is memory for SlabStages stages.
type slab struct {
	mem []byte
	reg *fi.Registration
}

// Registration is that of the slab that holds all of b, or nil if none does.
func (s *Stages) Registration(b []byte) *fi.Registration {
	at := uint64(fi.Address(b))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.mu.slabs {
		from := uint64(fi.Address(s.mu.slabs[i].mem))
		if at >= from && at+uint64(len(b)) <= from+SlabStages*StageSize {
			return s.mu.slabs[i].reg
		}
	}
	return nil
}

// Buffer is a stage that a caller has, since operations on its memory need no copy.
type Buffer struct {
	stages *Stages
	stage  Stage
	once   sync.Once
}

// Buffer returns a stage for the caller's own use. It waits while callers hold MaxBuffers, until the
// context ends or done is closed (rdma.ErrClosed). The stage holds anything.
func (s *Stages) Buffer(ctx context.Context, done <-chan struct{}) (*Buffer, error) {
	if _, err := s.buffers.Take(ctx, done, 1); err != nil {
		if errors.Is(err, provider.ErrDone) {
			err = rdma.ErrClosed
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.free) == 0 {
		if err := s.grow(); err != nil {
			s.buffers.Give(1)
			return nil, err
		}
	}
	return &Buffer{stages: s, stage: s.pop()}, nil
}

// Bytes is the memory, until Release, and until the fabric is closed.
func (b *Buffer) Bytes() []byte { return b.stage.Mem }

// Release frees the buffer, whose operations have completed. It is idempotent.
func (b *Buffer) Release() {
	b.once.Do(func() {
		b.stages.Give(b.stage)
		b.stages.buffers.Give(1)
	})
}

// Stage is a buffer of StageSize bytes. Mem is nil where there is none.
type Stage struct {
	Mem []byte
	Reg *fi.Registration
}

// Take returns a stage for a connection that holds so many. If there is none and no error, w is notified
// when there is one.
func (s *Stages) Take(w Waiter, holds int) (Stage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.free) == 0 && holds < Share {
		if err := s.grow(); err != nil && len(s.mu.slabs) == 0 {
			return Stage{}, err
		}
	}
	if len(s.mu.free) == 0 {
		s.mu.waiting = append(s.mu.waiting, w)
		return Stage{}, nil
	}
	return s.pop(), nil
}

// pop takes a free stage. The lock is held.
func (s *Stages) pop() Stage {
	last := len(s.mu.free) - 1
	b := s.mu.free[last]
	s.mu.free = s.mu.free[:last]
	return b
}

// grow adds a slab. The lock is held.
func (s *Stages) grow() error {
	mem, err := unix.Mmap(-1, 0, StageSize*SlabStages, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map buffers for memory that is not in a region: %w", err)
	}
	reg := &fi.Registration{}
	if s.dev.Local {
		reg, err = s.dev.Register(mem, rdma.AccessLocal)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("buffers for memory that is not in a region: %w", err), unix.Munmap(mem))
	}
	s.mu.slabs = append(s.mu.slabs, slab{mem, reg})
	for i := range SlabStages {
		s.mu.free = append(s.mu.free, Stage{mem[i*StageSize : (i+1)*StageSize : (i+1)*StageSize], reg})
	}
	return nil
}

// Give takes a stage back, and wakes the connections that wait for one.
func (s *Stages) Give(b Stage) {
	s.mu.Lock()
	s.mu.free = append(s.mu.free, b)
	waiting := s.mu.waiting
	s.mu.waiting = nil
	s.mu.Unlock()
	for _, w := range waiting {
		w.Retry()
	}
}

// Count is how many stages there are, and how many of them are free.
func (s *Stages) Count() (all, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SlabStages * len(s.mu.slabs), len(s.mu.free)
}

// Close frees the memory. No stage is taken any more.
func (s *Stages) Close() error {
	var errs []error
	for _, b := range s.mu.slabs {
		errs = append(errs, b.reg.Close(), unix.Munmap(b.mem))
	}
	return errors.Join(errs...)
}
