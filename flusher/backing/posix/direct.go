package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Large files are written with O_DIRECT (open(2)): what the buffer holds already would
// otherwise take the page cache from the node's tasks, and half of the disk's speed.
// The kernel wants memory, offset and length aligned, so bytes go through blocks, and
// their checksum is taken on the way. File systems that refuse are written as usual.

const (
	directMin = 4 << 20 // bytes of the smallest file that is written so
	blockSize = 1 << 20
	maxBlocks = 16   // of all stores of this process
	alignment = 4096 // of offset and length: enough for all disks in use
)

// blocks are the aligned buffers.
var blocks = struct {
	sync.Mutex
	made int
	free chan []byte
}{free: make(chan []byte, maxBlocks)}

// takeBlock waits for a buffer of blockSize bytes.
func takeBlock(ctx context.Context) ([]byte, error) {
	select {
	case b := <-blocks.free:
		return b, nil
	default:
	}
	blocks.Lock()
	if blocks.made < maxBlocks {
		b, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
		if err == nil {
			blocks.made++
		}
		blocks.Unlock()
		return b, err
	}
	blocks.Unlock()
	select {
	case b := <-blocks.free:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func giveBlock(b []byte) { blocks.free <- b }

// openDirect opens a file again for writing past the page cache; nil if that is not
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

// allocate makes the file as long as it will be: writes that lengthen a file exclude
// each other. A full disk is found out now.
func allocate(f *os.File, size int64) error {
	err := unix.EINTR
	for err == unix.EINTR {
		err, _ = unix.Fallocate(int(f.Fd()), 0, 0, size).(unix.Errno)
	}
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.Truncate(size)
	}
	if err != 0 {
		return &fs.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// writePartDirect writes a range of the source, block by block.
func (p *Pending) writePartDirect(ctx context.Context, src backing.Source, off, n int64) (sum uint64, err error) {
	block, err := takeBlock(ctx)
	if err != nil {
		return 0, err
	}
	defer giveBlock(block)
	var pieces [][]byte
	for end := off + n; off < end; {
		b := block[:min(blockSize, end-off)]
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

// writeDirect writes bytes at an aligned offset; their unaligned end goes through the other
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
