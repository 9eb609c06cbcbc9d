// Package spool compresses the bytes of a file before they are put. It must never depend on a store, nor
// the file of the bytes.
package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// A store needs size and checksum before the first byte, so compressed contents are spooled, small
// ones in memory, large ones in a file that has no name, mapped.

const (
	Memory = 8 << 20 // compressed bytes kept in memory, for each worker
	Step   = 4 << 20 // bytes taken from the source at a time
)

// Encode returns a source of the bytes as a codec compresses them, and the function that releases it. Large
// ones lie in a file in dir. The plain bytes are checked on the way. A store never gets silently wrong bytes.
func Encode(ctx context.Context, dir, name string, src backing.Source) (backing.Source, func(), error) {
	if name == codec.None {
		return src, func() {}, nil
	}
	s := &spool{dir: dir}
	w, err := codec.NewWriter(name, s)
	if err != nil {
		return nil, nil, err
	}
	sum, err := feed(ctx, w, src)
	err = errors.Join(err, w.Close())
	if err == nil && sum != src.Checksum() {
		err = backing.CheckSource("", src, sum)
	}
	if err == nil {
		err = s.seal()
	}
	if err != nil {
		s.release()
		return nil, nil, bb.Wrap("compress", "", err)
	}
	return s, s.release, nil
}

// feed writes a source to w and returns its checksum.
func feed(ctx context.Context, w io.Writer, src backing.Source) (sum uint64, err error) {
	for off := int64(0); off < src.Size(); off += Step {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n := min(Step, src.Size()-off)
		slices, part, err := backing.ReadSource("", src, nil, off, n)
		if err != nil {
			return 0, err
		}
		err = backing.Touch("", func() error {
			for _, s := range slices {
				if _, err := w.Write(s); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
		sum = checksum.Combine(sum, part, n)
	}
	return sum, nil
}

// spool is the place of compressed bytes. Its file has no name, or its name is removed at once, so
// that nothing stays when the process dies.
type spool struct {
	dir    string
	memory bytes.Buffer
	file   *os.File
	size   int64
	sum    uint64
	sealed []byte // all bytes, once they are all there
	mapped bool
}

func (s *spool) Write(p []byte) (int, error) {
	s.sum = checksum.Update(s.sum, p)
	s.size += int64(len(p))
	if s.file == nil && s.size <= Memory {
		return s.memory.Write(p)
	}
	if s.file == nil {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	return s.file.Write(p)
}

func (s *spool) open() (err error) {
	if s.file, err = os.CreateTemp(s.dir, "forebay-spool-*"); err != nil {
		return err
	}
	if err := os.Remove(s.file.Name()); err != nil {
		return err
	}
	_, err = s.memory.WriteTo(s.file)
	s.memory = bytes.Buffer{}
	return err
}

// seal ends writing.
func (s *spool) seal() (err error) {
	if s.file == nil {
		s.sealed = s.memory.Bytes()
		return nil
	}
	s.sealed, err = unix.Mmap(int(s.file.Fd()), 0, int(s.size), unix.PROT_READ, unix.MAP_SHARED)
	s.mapped = err == nil
	return err
}

func (s *spool) release() {
	if s.mapped {
		unix.Munmap(s.sealed)
	}
	if s.file != nil {
		s.file.Close()
	}
	*s = spool{}
}

func (s *spool) Size() int64      { return s.size }
func (s *spool) Checksum() uint64 { return s.sum }

func (s *spool) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	if off < 0 || n < 0 || off > s.size-n {
		return nil, fmt.Errorf("range %d+%d is outside of %d bytes", off, n, s.size)
	}
	return append(dst, s.sealed[off:off+n]), nil
}
