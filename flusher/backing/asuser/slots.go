package asuser

import (
	"context"
	"sync"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/internal/checksum"
)

// slots hands out slots. The slot used last comes first, since its pages are there.
type slots struct {
	mu   sync.Mutex
	free []int64
	wait chan struct{} // closed when one is given back
}

func newSlots(from, n int64) *slots {
	s := &slots{wait: make(chan struct{})}
	for i := range n {
		s.free = append(s.free, from+n-1-i)
	}
	return s
}

// tryTake returns a slot, or noSlot.
func (s *slots) tryTake() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return protocol.NoSlot
	}
	last := len(s.free) - 1
	slot := s.free[last]
	s.free = s.free[:last]
	return slot
}

// take waits for a slot, until ctx or the worker ends.
func (s *slots) take(ctx context.Context, gone <-chan struct{}) (int64, error) {
	for {
		s.mu.Lock()
		wait := s.wait
		s.mu.Unlock()
		if slot := s.tryTake(); slot != protocol.NoSlot {
			return slot, nil
		}
		select {
		case <-wait:
		case <-gone:
			return protocol.NoSlot, errGone
		case <-ctx.Done():
			return protocol.NoSlot, ctx.Err()
		}
	}
}

func (s *slots) give(slot int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, slot)
	close(s.wait)
	s.wait = make(chan struct{})
}

// gather copies pieces of a source, and returns the checksum of the copied bytes.
func gather(name string, dst []byte, pieces [][]byte) (sum uint64, err error) {
	err = backing.Touch(name, func() error {
		for _, p := range pieces {
			sum = checksum.CopyOut(dst, p, sum)
			dst = dst[len(p):]
		}
		return nil
	})
	return sum, err
}
