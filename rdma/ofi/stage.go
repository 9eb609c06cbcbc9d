//go:build ofi && cgo

package ofi

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/rdma"
)

const (
	stageSize  = 256 << 10
	stageCount = 64
)

// stages are registered buffers for operations on memory that is not in a region, on fabrics that
// touch registered memory alone. A copy costs less than a registration does at these sizes, and
// memory of the Go heap cannot be registered for long: it may move to other pages when it is
// unused. The memory is mapped and registered when it is first needed, and kept.
type stages struct {
	dev *device

	mu struct {
		sync.Mutex
		mem     []byte
		reg     *registration
		free    [][]byte
		waiting []*conn
		err     error
	}
}

// take returns a buffer of stageSize bytes and what the fabric calls it. With nil and no error
// there is none free, and the connection is told when there is.
func (s *stages) take(c *conn) ([]byte, *registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.mem == nil && s.mu.err == nil {
		s.mu.err = s.open()
	}
	if s.mu.err != nil {
		return nil, nil, s.mu.err
	}
	last := len(s.mu.free) - 1
	if last < 0 {
		s.mu.waiting = append(s.mu.waiting, c)
		return nil, nil, nil
	}
	b := s.mu.free[last]
	s.mu.free = s.mu.free[:last]
	return b, s.mu.reg, nil
}

func (s *stages) open() error {
	mem, err := unix.Mmap(-1, 0, stageSize*stageCount, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map buffers for memory that is not in a region: %w", err)
	}
	reg, err := s.dev.register(mem, rdma.AccessLocal)
	if err != nil {
		return errors.Join(fmt.Errorf("buffers for memory that is not in a region: %w", err), unix.Munmap(mem))
	}
	s.mu.mem, s.mu.reg = mem, reg
	for i := range stageCount {
		s.mu.free = append(s.mu.free, mem[i*stageSize:(i+1)*stageSize:(i+1)*stageSize])
	}
	return nil
}

// give takes a buffer back, and wakes those that wait for one.
func (s *stages) give(b []byte) {
	s.mu.Lock()
	s.mu.free = append(s.mu.free, b[:stageSize])
	waiting := s.mu.waiting
	s.mu.waiting = nil
	s.mu.Unlock()
	for _, c := range waiting {
		c.fabric.loop.stall(c)
	}
}

func (s *stages) close() error {
	if s == nil || s.mu.mem == nil {
		return nil
	}
	return errors.Join(s.mu.reg.close(), unix.Munmap(s.mu.mem))
}
