package reader

import (
	"context"
	"os"
	"slices"
	"sync"

	"forebay/client/internal/region"
	"forebay/internal/bb"
)

// Mapping is a part of a file where it lies in memory. It may be used concurrently.
type Mapping struct {
	r       *Reader
	windows []*window
	slices  [][]byte
	parts   []*part
	length  int64
	release sync.Once
}

// Map pins a range and returns its place in memory.
func (r *Reader) Map(ctx context.Context, off, n int64) (*Mapping, error) {
	m := &Mapping{r: r}
	for end := off + min(n, max(0, r.Size-off)); off < end; {
		w, err := r.window(ctx, off)
		if err != nil {
			m.Release()
			return nil, err
		}
		if w.remote {
			n, err := m.fetch(ctx, w, off, min(end, w.end))
			elsewhere := r.elsewhere(w, err)
			r.done(w)
			if err != nil && !elsewhere {
				m.Release()
				return nil, bb.Wrap("map", r.Address(r.path), err)
			}
			off += n
			continue
		}
		m.windows = append(m.windows, w)
		off = m.add(w, off, min(end, w.end))
	}
	if r.VerifyAll {
		if err := m.Verify(); err != nil {
			m.Release()
			return nil, err
		}
	}
	return m, nil
}

// add adds a window's part of [off, end).
func (m *Mapping) add(w *window, off, end int64) int64 {
	for off < end {
		p := w.at(off)
		to := min(p.end, end)
		if p.mem != nil {
			m.slices = append(m.slices, p.mem[off-p.off:to-p.off:to-p.off])
			m.parts = append(m.parts, p)
		} else {
			to = min(to, off+int64(len(zeros)))
			m.slices = append(m.slices, zeros[:to-off:to-off])
		}
		m.length += to - off
		off = to
	}
	return end
}

// fetch adds a copy of a window's part of [off, end), from memory that cannot be mapped.
func (m *Mapping) fetch(ctx context.Context, w *window, off, end int64) (int64, error) {
	p := make([]byte, end-off)
	n, err := m.r.fetchRemote(ctx, w, p, off)
	if err != nil {
		return 0, err
	}
	m.slices = append(m.slices, p)
	m.length += int64(n)
	return int64(n), nil
}

// Slices returns the bytes, in order. They must not be written, nor touched after
// close. If the connection to the daemon breaks, their content is only certain
// after verify.
func (m *Mapping) Slices() [][]byte { return m.slices }

// InPlace returns the file of a region that has exactly the bytes of all of the mapped file, each at its offset, or nil.
// It is open until Release.
func (m *Mapping) InPlace() *os.File {
	var in *region.Region
	end := int64(0)
	for _, w := range m.windows {
		if w.off > end || w.remote {
			return nil
		}
		end = w.end
		for i := range w.parts {
			p := &w.parts[i]
			if p.region == 0 && p.mem == nil {
				continue // a hole
			}
			if in == nil {
				if k := slices.IndexFunc(w.regions, func(r *region.Region) bool { return r.Is(p.region) }); k >= 0 {
					in = w.regions[k]
				}
			}
			if in == nil || !in.Is(p.region) || p.at != p.off {
				return nil
			}
		}
	}
	if in == nil || end != m.r.Size {
		return nil
	}
	if info, err := in.File.Stat(); err != nil || info.Size() != end {
		return nil
	}
	return in.File
}

// Len returns how many bytes there are.
func (m *Mapping) Len() int64 { return m.length }

// Verify checks the bytes against the checksums of the extents that they are in.
func (m *Mapping) Verify() error {
	for _, p := range m.parts {
		if p.whole == nil {
			continue // came with the answer, verified by the daemon
		}
		if err := p.verifyNow(); err != nil {
			return bb.Wrap("verify", m.r.Address(m.r.path), err)
		}
	}
	return nil
}

// Release unpins the memory. It may be called twice.
func (m *Mapping) Release() error {
	m.release.Do(func() {
		for _, w := range m.windows {
			m.r.done(w)
		}
	})
	return nil
}
