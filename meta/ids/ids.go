// Package ids hands out numbers that are used nowhere else, ever: for files, directories,
// generations and others. It must never depend on their purpose.
package ids

import (
	"context"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/retry"
)

const (
	countersKey = "counter.ids"
	claimPause  = 8 * time.Millisecond
)

// Source hands out ids that are used nowhere else, ever: those of one block after the other,
// each of which is claimed when it is needed. It is safe for concurrent use.
type Source struct {
	b        *kv.Bucket // with the counter of blocks
	claiming sync.Mutex // one claim at a time
	mu       struct {
		sync.Mutex
		block uint64
		next  uint64
	}
}

// New returns the ids of a namespace, with its counter in a bucket.
func New(b *kv.Bucket) *Source { return &Source{b: b} }

// Claim claims a block of 2^32 ids for the caller alone: block<<32 | n, for any n, is no other's,
// now or ever. Blocks are numbered from 1, so no id is as small as bb.RootDir.
//
// One claim succeeds at a time, and thousands of daemons may start at once. A daemon
// that was not first waits at random, up to twice as long each time, so that claims that fail
// do not keep the servers from the one that succeeds.
func (s *Source) Claim(ctx context.Context) (uint64, error) {
	for try := 0; ; try++ {
		if try > 0 {
			retry.Sleep(ctx, mathrand.N(claimPause<<min(try, 9)))
		}
		r, err := s.b.Get(ctx, countersKey)
		if err != nil {
			return 0, kv.Wrap("claim ids", "", err)
		}
		var last metapb.Counter
		if r.Live() {
			if err := kv.Open(countersKey, r.Data, &last); err != nil {
				return 0, err
			}
		}
		if last.GetBlock() >= math.MaxUint32 {
			return 0, bb.E(bb.NoSpace, "claim ids", "", "all blocks of ids are used up")
		}
		next := &metapb.Counter{Block: last.GetBlock() + 1, Nonce: kv.Random64()}
		data, err := kv.Seal(countersKey, next)
		if err != nil {
			return 0, err
		}
		switch _, err := s.b.Put(ctx, countersKey, data, r.Seq); {
		case err == nil:
			return next.GetBlock(), nil
		case !errors.Is(err, kv.ErrRevision) && !kv.MayRepeat(ctx, err):
			return 0, kv.Wrap("claim ids", "", err)
		}
	}
}

// Raise marks the blocks up to one as claimed. Otherwise a namespace that has lost claims would
// hand them out again, and other files would get ids that are in use.
func (s *Source) Raise(ctx context.Context, block uint64) error {
	for try := 0; ; try++ {
		r, err := s.b.Get(ctx, countersKey)
		if err != nil {
			return kv.Wrap("claim ids", "", err)
		}
		var last metapb.Counter
		if r.Live() {
			if err := kv.Open(countersKey, r.Data, &last); err != nil {
				return err
			}
		}
		if last.GetBlock() >= block {
			return nil
		}
		s.b.Logger().Error("the namespace has lost the record of ids in use: an older copy of its files may have been restored", "block", last.GetBlock(), "in use", block)
		data, err := kv.Seal(countersKey, &metapb.Counter{Block: block, Nonce: kv.Random64()})
		if err != nil {
			return err
		}
		_, err = s.b.Put(ctx, countersKey, data, r.Seq)
		if err != nil && !errors.Is(err, kv.ErrRevision) && !kv.MayRepeat(ctx, err) {
			return kv.Wrap("claim ids", "", err)
		}
		retry.Yield(ctx, try)
	}
}

func (s *Source) take() (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.block == 0 || s.mu.next > math.MaxUint32 {
		return 0, false
	}
	id := s.mu.block<<32 | s.mu.next
	s.mu.next++
	return id, true
}

func (s *Source) refill(ctx context.Context) error {
	block, err := s.Claim(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.block, s.mu.next = block, 0
	return nil
}

// Next returns an id that no other call returns, ever. It sends a request to the server once in
// 2^32 times.
func (s *Source) Next(ctx context.Context) (uint64, error) {
	for {
		if id, ok := s.take(); ok {
			return id, nil
		}
		s.claiming.Lock()
		id, ok := s.take()
		var err error
		if !ok {
			err = s.refill(ctx)
		}
		s.claiming.Unlock()
		if ok || err != nil {
			return id, err
		}
	}
}

// NewFileID returns a file's id that is used nowhere else, ever.
func (s *Source) NewFileID(ctx context.Context) (bb.FileID, error) {
	id, err := s.Next(ctx)
	return bb.FileID(id), err
}

// NewDirID returns a directory's id that is used nowhere else, ever.
func (s *Source) NewDirID(ctx context.Context) (bb.DirID, error) {
	id, err := s.Next(ctx)
	return bb.DirID(id), err
}

// NewGeneration returns a generation larger than any that this Source returned before,
// and used nowhere else.
func (s *Source) NewGeneration(ctx context.Context) (bb.Generation, error) {
	id, err := s.Next(ctx)
	return bb.Generation(id), err
}
