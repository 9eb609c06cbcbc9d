package posix

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/fileio"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Large files are written with O_DIRECT (open(2)), since copies of the buffer's bytes would
// otherwise take the page cache from the node's tasks, and half of the disk's speed. The kernel
// requires aligned memory, offset and length, so bytes go through blocks, and their checksum is
// taken on the way. File systems that refuse are written as usual.

const (
	directMin = 4 << 20 // bytes of the smallest file that is written so
	alignment = 4096    // of offset and length, enough for all disks in use
)

// openDirect opens a file again for writing past the page cache. It returns nil if that is not
// worth it, or not possible.
func (s *Store) openDirect(root *os.Root, temp string, size int64) *os.File {
	if size < directMin || s.opts.PartSize%alignment != 0 || s.buffered.Load() {
		return nil
	}
	f, err := root.OpenFile(temp, os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			s.buffered.Store(true)
		}
		return nil
	}
	return f
}

// writePartDirect writes a range of the source, block by block.
func (p *Pending) writePartDirect(ctx context.Context, src backing.Source, off, n int64) (sum uint64, err error) {
	block, err := fileio.TakeBlock(ctx)
	if err != nil {
		return 0, err
	}
	defer fileio.GiveBlock(block)
	var pieces [][]byte
	for end := off + n; off < end; {
		b := block[:min(fileio.BlockSize, end-off)]
		if pieces, err = backing.Pieces(p.name, src, pieces[:0], off, int64(len(b))); err != nil {
			return 0, err
		}
		err = backing.Touch(p.name, func() error {
			at := 0
			for _, piece := range pieces {
				sum = checksum.CopyOut(b[at:], piece, sum)
				at += len(piece)
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		if err := p.writeDirect(b, off); err != nil {
			return 0, err
		}
		off += int64(len(b))
		if err := ctx.Err(); err != nil {
			return 0, bb.Wrap("put", p.name, err)
		}
	}
	return sum, nil
}

// writeDirect writes bytes at an aligned offset. Their unaligned end goes through the other
// descriptor, which is the same file.
func (p *Pending) writeDirect(b []byte, off int64) error {
	whole := b[:len(b)/alignment*alignment]
	err := error(syscall.EINVAL)
	if !p.s.buffered.Load() {
		_, err = p.direct.WriteAt(whole, off)
	}
	if errors.Is(err, syscall.EINVAL) { // another alignment than ours
		p.s.buffered.Store(true)
		_, err = p.f.WriteAt(whole, off)
	}
	if err == nil {
		_, err = p.f.WriteAt(b[len(whole):], off+int64(len(whole)))
	}
	return err
}
