// Package fileio writes bytes into an open file: many pieces by one system call, or through aligned blocks. It must
// never know a file's name, nor a store.
package fileio

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// BlockSize is the size of an aligned buffer, in bytes.
const BlockSize = 1 << 20

const maxBlocks = 16 // of all stores of this process

// blocks are the aligned buffers.
var blocks = struct {
	sync.Mutex
	made int
	free chan []byte
}{free: make(chan []byte, maxBlocks)}

// TakeBlock waits for a buffer of BlockSize bytes, which the caller gives back with GiveBlock.
func TakeBlock(ctx context.Context) ([]byte, error) {
	select {
	case b := <-blocks.free:
		return b, nil
	default:
	}
	blocks.Lock()
	if blocks.made < maxBlocks {
		b, err := unix.Mmap(-1, 0, BlockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
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

// GiveBlock gives a buffer back.
func GiveBlock(b []byte) { blocks.free <- b }

// Allocate makes the file as long as it will be, since writes that lengthen a file exclude each
// other. A full disk fails now.
func Allocate(f *os.File, size int64) error {
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

const maxVectors = 1024 // IOV_MAX

// WriteAll writes all slices, one after the other, from an offset on. It changes slices.
func WriteAll(f *os.File, slices [][]byte, off int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	for len(slices) > 0 {
		if len(slices[0]) == 0 {
			slices = slices[1:]
			continue
		}
		var n int
		var writeErr error
		err := conn.Write(func(fd uintptr) bool {
			n, writeErr = unix.Pwritev(int(fd), slices[:min(len(slices), maxVectors)], off)
			return true
		})
		switch {
		case err != nil:
			return err
		case writeErr == syscall.EINTR:
			continue
		case writeErr != nil:
			return &fs.PathError{Op: "pwritev", Path: f.Name(), Err: writeErr}
		case n == 0:
			return &fs.PathError{Op: "pwritev", Path: f.Name(), Err: syscall.EIO}
		}
		off += int64(n)
		slices = advance(slices, n)
	}
	return nil
}

// advance drops the first n bytes.
func advance(slices [][]byte, n int) [][]byte {
	for n > 0 {
		if n < len(slices[0]) {
			slices[0] = slices[0][n:]
			return slices
		}
		n -= len(slices[0])
		slices = slices[1:]
	}
	return slices
}
