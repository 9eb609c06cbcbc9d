package meta

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/metapb"
)

const (
	countersKey = "counter.ids"
	claimPause  = 8 * time.Millisecond
)

// NextIDs claims a block of 2^32 ids for the caller alone: block<<32 | n, for any n,
// is nobody else's, now or ever. Blocks are numbered from 1, so no id is as small
// as bb.RootDir.
//
// One claim succeeds at a time, and thousands of daemons may start at once: who was not
// first waits at random, up to twice as long each time, so that what is asked in vain
// does not keep the servers from what is not.
func (m *Meta) NextIDs(ctx context.Context) (uint64, error) {
	for try := 0; ; try++ {
		if try > 0 {
			m.conn.rest(ctx, mathrand.N(claimPause<<min(try, 9)))
		}
		r, err := m.system.get(ctx, countersKey)
		if err != nil {
			return 0, opError("claim ids", "", err)
		}
		var last metapb.Counter
		if r.live() {
			if err := open(countersKey, r.data, &last); err != nil {
				return 0, err
			}
		}
		if last.GetBlock() >= math.MaxUint32 {
			return 0, bb.E(bb.NoSpace, "claim ids", "", "all blocks of ids are used up")
		}
		next := &metapb.Counter{Block: last.GetBlock() + 1, Nonce: random64()}
		data, err := seal(countersKey, next)
		if err != nil {
			return 0, err
		}
		switch _, err := m.system.put(ctx, countersKey, data, r.seq); {
		case err == nil:
			return next.GetBlock(), nil
		case !errors.Is(err, errConflict) && !isUncertainNow(ctx, err):
			return 0, opError("claim ids", "", err)
		}
	}
}

// identityKey holds the identity of the namespace, which is put there once.
const identityKey = "namespace.id"

// Identity returns what tells this namespace from every other one. It is made when the
// namespace is first used by a release that knows of it, and never changes.
func (m *Meta) Identity(ctx context.Context) (uint64, error) {
	const op = "identity of the namespace"
	for {
		r, err := m.system.get(ctx, identityKey)
		if err != nil {
			return 0, opError(op, "", err)
		}
		if r.live() {
			var made metapb.Counter
			if err := open(identityKey, r.data, &made); err != nil {
				return 0, err
			}
			return made.GetNonce(), nil
		}
		data, err := seal(identityKey, &metapb.Counter{Nonce: random64() | 1})
		if err != nil {
			return 0, err
		}
		// The first daemon has made it: the next look finds it.
		if _, _, err := m.system.create(ctx, identityKey, data, r.seq); err != nil && !errors.Is(err, errConflict) && !isUncertainNow(ctx, err) {
			return 0, opError(op, "", err)
		}
	}
}

// RaiseIDs has the blocks up to one count as claimed. A namespace that has forgotten
// claims would hand them out again, and ids that are in use would be those of other files.
func (m *Meta) RaiseIDs(ctx context.Context, block uint64) error {
	for try := 0; ; try++ {
		r, err := m.system.get(ctx, countersKey)
		if err != nil {
			return opError("claim ids", "", err)
		}
		var last metapb.Counter
		if r.live() {
			if err := open(countersKey, r.data, &last); err != nil {
				return err
			}
		}
		if last.GetBlock() >= block {
			return nil
		}
		m.log.Error("the namespace has forgotten that ids are in use: an older copy of its files may have been put back", "block", last.GetBlock(), "in use", block)
		data, err := seal(countersKey, &metapb.Counter{Block: block, Nonce: random64()})
		if err != nil {
			return err
		}
		_, err = m.system.put(ctx, countersKey, data, r.seq)
		if err != nil && !errors.Is(err, errConflict) && !isUncertainNow(ctx, err) {
			return opError("claim ids", "", err)
		}
		m.conn.yield(ctx, try)
	}
}

// isUncertainNow reports whether a change of unknown outcome may simply be made
// anew: a block that was claimed twice is a block lost, and there are 2^32.
func isUncertainNow(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, errUncertain)
}

func random64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// idBlock hands out the ids of one block after the other.
type idBlock struct {
	claiming sync.Mutex // one claim at a time
	mu       struct {
		sync.Mutex
		block uint64
		next  uint64
	}
}

func (b *idBlock) take() (uint64, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.block == 0 || b.mu.next > math.MaxUint32 {
		return 0, false
	}
	id := b.mu.block<<32 | b.mu.next
	b.mu.next++
	return id, true
}

func (b *idBlock) claim(ctx context.Context, m *Meta) error {
	block, err := m.NextIDs(ctx)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.block, b.mu.next = block, 0
	return nil
}

// newID returns an id that nobody had before. It asks the server once in 2^32 times.
func (m *Meta) newID(ctx context.Context) (uint64, error) {
	for {
		if id, ok := m.ids.take(); ok {
			return id, nil
		}
		m.ids.claiming.Lock()
		id, ok := m.ids.take()
		var err error
		if !ok {
			err = m.ids.claim(ctx, m)
		}
		m.ids.claiming.Unlock()
		if ok || err != nil {
			return id, err
		}
	}
}

// NewFileID returns a file's id that is used nowhere else, ever.
func (m *Meta) NewFileID(ctx context.Context) (bb.FileID, error) {
	id, err := m.newID(ctx)
	return bb.FileID(id), err
}

// NewDirID returns a directory's id that is used nowhere else, ever.
func (m *Meta) NewDirID(ctx context.Context) (bb.DirID, error) {
	id, err := m.newID(ctx)
	return bb.DirID(id), err
}

// NewGeneration returns a generation larger than any that this Meta returned before,
// and used nowhere else.
func (m *Meta) NewGeneration(ctx context.Context) (bb.Generation, error) {
	id, err := m.newID(ctx)
	return bb.Generation(id), err
}
