package reader

import (
	"context"

	"forebay/client/internal/remote"
	"forebay/internal/checksum"
	"forebay/rdma"
)

// maxAhead bounds the bytes that a reader fetches before they are requested, at least one extent.
// So much is in flight while the caller copies the part that has arrived. A caller that requests as
// much at once gets it straight into its own memory.
const maxAhead = 4 << 20

// readahead is the readahead of remote memory, while a file is read from front
// to back. It has extents of one window, in order, in flight or here.
type readahead struct {
	moving *remote.Transfers // nil: nothing is fetched
	w      *window           // in use meanwhile
	next   int64             // where in the file fetching goes on
	queue  []fetched
	bytes  int64 // of the queue
}

// fetched is an extent, or a hole, that is on its way or here.
type fetched struct {
	*part
	p       []byte // of the staging; nil: a hole
	last    uint64 // transfer of it
	checked bool   // it is verified
}

// ReadsAhead reports whether anything is fetched ahead. Nothing may be read meanwhile.
func (r *Reader) ReadsAhead() bool { return r.coming.moving != nil }

// tryReadahead acquires the right to use the readahead, if it is free.
func (r *Reader) tryReadahead() bool { return r.ahead.TryAcquire(1) }

// doneReadahead returns the right. If the reader was closed meanwhile, its fetched extents
// are freed here.
func (r *Reader) doneReadahead() {
	r.ahead.Release(1)
	r.mu.Lock()
	closed := r.closed
	r.mu.Unlock()
	if closed {
		r.dropReadahead()
	}
}

// dropReadahead frees the readahead. If it is in use, its user frees it.
func (r *Reader) dropReadahead() {
	if r.tryReadahead() {
		r.stopReadahead()
		r.ahead.Release(1)
	}
}

// stopReadahead frees the readahead. The caller has the right.
func (r *Reader) stopReadahead() {
	a := &r.coming
	if a.moving == nil {
		return
	}
	_ = a.moving.Drain() // the bytes are not needed any more
	a.moving.Free()
	for i := range a.queue {
		r.putBack(&a.queue[i])
	}
	r.done(a.w)
	*a = readahead{queue: a.queue[:0]}
}

func (r *Reader) putBack(f *fetched) {
	if f.p != nil {
		r.Staged.Put(f.p)
	}
	*f = fetched{}
}

// readAhead is copyTo of a window that is remote, for a read that begins where the last one
// ended. The caller has the right.
func (r *Reader) readAhead(ctx context.Context, w *window, dst []byte, off int64) (n int, err error) {
	a := &r.coming
	if a.w != w || a.at() != w.at(off).off {
		r.stopReadahead()
		r.mu.Lock()
		r.use(w)
		r.mu.Unlock()
		a.moving, a.w, a.next = remote.NewTransfers(), w, w.at(off).off
	}
	for n < len(dst) && off < w.end {
		if err := r.fetchNext(ctx); err != nil {
			r.stopReadahead()
			return n, err
		}
		f := &a.queue[0]
		k := min(f.end-off, int64(len(dst)-n))
		if err := a.copyTo(ctx, f, dst[n:n+int(k)], off); err != nil {
			r.stopReadahead()
			return n, err
		}
		n, off = n+int(k), off+k
		if off == f.end {
			a.bytes -= f.len()
			r.putBack(f)
			a.queue = append(a.queue[:0], a.queue[1:]...)
		}
	}
	if err := r.fetchNext(ctx); err != nil {
		r.stopReadahead() // the next read determines why
	}
	return n, nil
}

// at is the offset in the file at which the readahead begins.
func (a *readahead) at() int64 {
	if len(a.queue) > 0 {
		return a.queue[0].off
	}
	return a.next
}

// fetchNext begins to fetch the next extents, within maxAhead.
func (r *Reader) fetchNext(ctx context.Context) error {
	a := &r.coming
	for a.next < a.w.end {
		p := a.w.at(a.next)
		if len(a.queue) > 0 && a.bytes+p.len() > maxAhead {
			break
		}
		f := fetched{part: p}
		if p.remote != nil {
			f.p = r.Staged.Get(p.remote.length)
		}
		a.queue = append(a.queue, f)
		a.bytes += p.len()
		a.next = p.end
		if p.remote == nil {
			continue
		}
		for at := int64(0); at < p.remote.length; at += remote.MaxTransfer {
			piece := f.p[at:min(at+remote.MaxTransfer, p.remote.length)]
			a.queue[len(a.queue)-1].last = a.moving.Next
			if err := a.moving.Post(ctx, a.w.session.Remote, rdma.OpRead, piece, p.remote.key, p.remote.off+at); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyTo copies an extent's bytes from off on, verified, when it has come.
func (a *readahead) copyTo(ctx context.Context, f *fetched, dst []byte, off int64) error {
	if f.remote == nil {
		clear(dst)
		return nil
	}
	if err := a.moving.Await(ctx, f.last); err != nil {
		return err
	}
	whole := f.p[:f.remote.length]
	switch {
	case f.checked:
	case len(dst) == len(whole):
		if checksum.Copy(dst, whole, 0) != f.sum {
			return f.mismatch()
		}
		f.checked = true
		a.w.session.Remote.Worked()
		return nil
	case checksum.Sum(whole) != f.sum:
		return f.mismatch()
	default:
		f.checked = true
		a.w.session.Remote.Worked()
	}
	copy(dst, whole[f.remote.cut+off-f.off:])
	return nil
}
