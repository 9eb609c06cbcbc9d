package backing

import (
	"fmt"

	"forebay/internal/checksum"
)

// NewBytes returns a source of pieces of memory, one after the other.
func NewBytes(pieces ...[]byte) Source {
	b := &bytesSource{pieces: pieces}
	for _, p := range pieces {
		b.size += int64(len(p))
		b.sum = checksum.Update(b.sum, p)
	}
	return b
}

type bytesSource struct {
	pieces [][]byte
	size   int64
	sum    uint64
}

func (b *bytesSource) Size() int64      { return b.size }
func (b *bytesSource) Checksum() uint64 { return b.sum }

func (b *bytesSource) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	if off < 0 || n < 0 || off > b.size-n {
		return nil, fmt.Errorf("range %d+%d is outside of %d bytes", off, n, b.size)
	}
	for _, p := range b.pieces {
		size := int64(len(p))
		if off >= size {
			off -= size
			continue
		}
		if n == 0 {
			break
		}
		p = p[off:min(size, off+n)]
		dst = append(dst, p)
		n -= int64(len(p))
		off = 0
	}
	return dst, nil
}
