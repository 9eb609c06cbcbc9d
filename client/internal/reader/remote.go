package reader

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/segment"
	"forebay/internal/wire"
	"forebay/rdma"
)

// place is where an extent lies in the daemon's memory.
type place struct {
	key    rdma.RemoteKey
	off    int64 // of the extent as it was written, in the region
	length int64 // of it
	cut    int64 // bytes of it before the visible part

	// All of it, verified, while the reader keeps it. A read of a part of an extent has to fetch
	// all of it to verify it, and the next part may be read soon.
	cached atomic.Pointer[[]byte]
}

// MaxCached is how many bytes of extents a reader caches, of which parts were read. One that
// is larger is kept until the next one comes.
const MaxCached = 4 << 20

// setRemote fills a window from an answer about memory that cannot be mapped.
func (w *window) setRemote(m *wire.Extents) error {
	type region struct {
		key    rdma.RemoteKey
		length int64
	}
	regions := make(map[uint64]region, len(m.Regions))
	for _, g := range m.Regions {
		key, err := rdma.DecodeRemoteKey(g.Key)
		if err != nil {
			return &bb.Error{Kind: bb.Internal, Op: "read", Err: fmt.Errorf("the daemon named a region that cannot be reached: %w", err)}
		}
		regions[g.Id] = region{key, g.Length}
	}
	w.remote = true
	w.parts = make([]part, len(m.Extents))
	places := make([]place, len(m.Extents))
	for i, e := range m.Extents {
		p, length := &w.parts[i], int64(-1)
		if r, ok := regions[e.Region]; ok {
			length, places[i].key = r.length, r.key
		}
		hole, err := p.place(e, w.end, length)
		if err != nil {
			return err
		}
		if !hole {
			p.remote = &places[i]
			p.remote.off, p.remote.length, p.remote.cut = e.CheckOffset, e.CheckLength, e.Offset-e.CheckOffset
		}
		w.end = p.end
	}
	return nil
}

// fetch is one read of memory that is remote: transfers, and the checksums of their bytes, in their
// order.
type fetch struct {
	*remote.Transfers
	remote  *session.Remote
	checked uint64 // transfers before this one have been verified
	sum     uint64 // of the verified bytes of the extent that they are in the middle of
	pieces  [remote.Depth]piece
}

// piece is the bytes of one transfer. The last one of an extent names the extent.
type piece struct {
	p    []byte
	last *part
}

var fetchPool = sync.Pool{New: func() any { return new(fetch) }}

func newFetch(f *session.Remote) *fetch {
	g := fetchPool.Get().(*fetch)
	g.Transfers, g.remote, g.sum = remote.NewTransfers(), f, 0
	g.checked = g.Next
	return g
}

// end waits until nothing is in flight and returns the fetch.
func (g *fetch) end() {
	_ = g.Drain() // its errors were returned already
	clear(g.pieces[:])
	g.Transfers.Free()
	g.Transfers, g.remote = nil, nil
	fetchPool.Put(g)
}

// extent begins to fetch all of an extent into p, and verifies arrived extents meanwhile.
func (g *fetch) extent(ctx context.Context, of *part, p []byte) error {
	for at := int64(0); at < of.remote.length; at += remote.MaxTransfer {
		end := min(at+remote.MaxTransfer, of.remote.length)
		if g.Next-g.checked == remote.Depth {
			if err := g.await(ctx, g.checked); err != nil {
				return err
			}
		}
		c := piece{p: p[at:end:end]}
		if end == of.remote.length {
			c.last = of
		}
		number := g.Next
		if err := g.Post(ctx, g.remote, rdma.OpRead, c.p, of.remote.key, of.remote.off+at); err != nil {
			return err
		}
		g.pieces[number%remote.Depth] = c
		g.Poll()
		if err := g.verify(); err != nil {
			return err
		}
	}
	return nil
}

// await waits until a transfer and all before it have come, and verifies them.
func (g *fetch) await(ctx context.Context, number uint64) error {
	for g.checked <= number {
		if err := g.Await(ctx, g.checked); err != nil {
			return err
		}
		if err := g.verify(); err != nil {
			return err
		}
	}
	return nil
}

// finish is await of everything.
func (g *fetch) finish(ctx context.Context) error {
	if g.Next == g.checked {
		return nil
	}
	err := g.await(ctx, g.Next-1)
	if err == nil {
		g.remote.Worked()
	}
	return err
}

// verify verifies the arrived extents.
func (g *fetch) verify() error {
	if g.Err != nil {
		return g.Err
	}
	for ; g.checked < g.Low; g.checked++ {
		c := &g.pieces[g.checked%remote.Depth]
		g.sum = checksum.Update(g.sum, c.p)
		if c.last != nil {
			if g.sum != c.last.sum {
				return c.last.mismatch()
			}
			g.sum = 0
		}
		*c = piece{}
	}
	return nil
}

// fetchRemote is copyTo of a window that is remote. Whole extents go straight into dst. It returns
// the number of verified bytes in dst, which is all that the window has, or 0.
func (r *Reader) fetchRemote(ctx context.Context, w *window, dst []byte, off int64) (n int, err error) {
	g := newFetch(w.session.Remote)
	defer g.end()
	for len(dst) > 0 && off < w.end {
		p := w.at(off)
		k := min(p.end-off, int64(len(dst)))
		if err := r.fetchPart(ctx, g, p, dst[:k], off); err != nil {
			return 0, err
		}
		n += int(k)
		off += k
		dst = dst[k:]
	}
	if err := g.finish(ctx); err != nil {
		return 0, err
	}
	return n, nil
}

func (r *Reader) fetchPart(ctx context.Context, g *fetch, p *part, dst []byte, off int64) error {
	if p.remote == nil {
		clear(dst)
		return nil
	}
	if cached := p.remote.cached.Load(); cached != nil {
		copy(dst, (*cached)[p.remote.cut+off-p.off:])
		return nil
	}
	if int64(len(dst)) == p.remote.length {
		return g.extent(ctx, p, dst)
	}
	whole := make([]byte, p.remote.length)
	if err := g.extent(ctx, p, whole); err != nil {
		return err
	}
	if err := g.finish(ctx); err != nil {
		return err
	}
	r.cache(p, whole)
	copy(dst, whole[p.remote.cut+off-p.off:])
	return nil
}

// cache keeps an extent, and frees the oldest ones if there are too many.
func (r *Reader) cache(p *part, whole []byte) {
	p.remote.cached.Store(&whole)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cached = append(r.cached, p.remote)
	for r.cachedBytes += p.remote.length; r.cachedBytes > MaxCached && len(r.cached) > 1; {
		r.releaseOldest(1)
	}
}

// Cached is the number of bytes of the cached extents.
func (r *Reader) Cached() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cachedBytes
}

// releaseOldest releases the n oldest pinned extents. The reader is locked.
func (r *Reader) releaseOldest(n int) {
	for _, p := range r.cached[:n] {
		p.cached.Store(nil)
		r.cachedBytes -= p.length
	}
	r.cached = append(r.cached[:0], r.cached[n:]...)
}

// elsewhere reports whether the error of a window of remote memory means that the bytes have to be
// requested again, since its session broke, or they have to come in messages.
func (r *Reader) elsewhere(w *window, err error) bool {
	if err == nil {
		return false
	}
	if session.IsNoFabric(err) {
		r.mu.Lock()
		release := func() {}
		if r.session == w.session {
			release = r.forgetAll()
		}
		r.mu.Unlock()
		release()
		return true
	}
	return session.IsBroken(err)
}

// fetchTo is writeTo of a window that is remote. It fetches the next extent while the consumer has
// one.
func (r *Reader) fetchTo(ctx context.Context, w *window, dst io.Writer, off int64) (total int64, err error) {
	staged := r.Staged
	g := newFetch(w.session.Remote)
	var now, next []byte
	ahead := off // up to where it was fetched
	defer func() {
		g.end() // before the memory goes to others
		for _, p := range [][]byte{now, next} {
			if p != nil {
				staged.Put(p)
			}
		}
	}()
	fetch := func(p *part) (into []byte, err error) {
		if p.remote == nil {
			return nil, nil
		}
		into = staged.Get(p.remote.length)
		return into, g.extent(ctx, p, into)
	}
	if off < w.end {
		if now, err = fetch(w.at(off)); err != nil {
			return 0, err
		}
		ahead = w.at(off).end
	}
	for off < w.end {
		p, number := w.at(off), g.Next
		if ahead == p.end && p.end < w.end {
			ahead = w.at(p.end).end
			if next, err = fetch(w.at(p.end)); err != nil {
				return total, err
			}
		}
		chunk := zeros[:min(p.end-off, segment.ExtentSize)]
		if p.remote != nil {
			if err := g.await(ctx, number-1); err != nil {
				return total, err
			}
			chunk = now[p.remote.cut+off-p.off:][:p.end-off]
		}
		n, err := dst.Write(chunk)
		off, total = off+int64(n), total+int64(n)
		if err == nil && n < len(chunk) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return total, err
		}
		if off == p.end {
			if now != nil {
				staged.Put(now)
			}
			now, next = next, nil
		}
	}
	g.remote.Worked()
	return total, nil
}

// Place returns where a byte of the file lies in the daemon's memory. If it is in a hole, or came
// in a message, it returns the zero value.
func (r *Reader) Place(ctx context.Context, off int64) (rdma.Remote, error) {
	w, err := r.window(ctx, off)
	if err != nil {
		return rdma.Remote{}, err
	}
	defer r.done(w)
	p := w.at(off)
	if p.remote == nil {
		return rdma.Remote{}, nil
	}
	return rdma.Remote{Key: p.remote.key, Offset: uint64(p.remote.off + p.remote.cut + off - p.off)}, nil
}
