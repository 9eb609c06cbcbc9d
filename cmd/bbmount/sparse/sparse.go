// Package sparse copies content with holes. It must never depend on where the bytes lie.
package sparse

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// Step is how many bytes are copied at a time.
const Step = 1 << 20

// Copy copies the first size bytes of read. Zeros are left out, where others follow, so that
// holes stay holes.
func Copy(ctx context.Context, size int64, read, write func(context.Context, []byte, int64) (int, error)) error {
	p, zeros := make([]byte, min(size, Step)), make([]byte, min(size, Step))
	for off := int64(0); off < size; off += int64(len(p)) {
		p = p[:min(int64(len(p)), size-off)]
		n, err := read(ctx, p, off)
		if n < len(p) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		last := off+int64(len(p)) == size
		if !last && bytes.Equal(p, zeros[:len(p)]) {
			continue
		}
		if _, err := write(ctx, p, off); err != nil {
			return err
		}
	}
	return nil
}

// Zero writes zeros to the bytes [from, to).
func Zero(ctx context.Context, from, to int64, write func(ctx context.Context, p []byte, off int64) (int, error)) error {
	zeros := make([]byte, max(0, min(to-from, Step)))
	for ; from < to; from += int64(len(zeros)) {
		zeros = zeros[:min(int64(len(zeros)), to-from)]
		if _, err := write(ctx, zeros, from); err != nil {
			return err
		}
	}
	return nil
}
