package powertest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
)

// Drive is a disk with a volatile write cache. It serves a virtual machine over the NBD protocol,
// and loses some unflushed writes when the machine loses power. A Device is one for this machine.
type Drive struct {
	Path string // of the unix socket

	listener net.Listener
	served   sync.WaitGroup

	mu      sync.Mutex
	err     error         // the first that ended a connection early
	off     chan struct{} // closed when the machine that was connected last is off
	size    int64
	now     blocks // content for the machine
	durable blocks
	cached  []cachedWrite // since the last flush, in order
	bounded bool          // writes to blocks that were never written fail, but for
	room    int           // so many blocks
}

// cachedWrite is a write that a loss of power may undo.
type cachedWrite struct {
	off int64
	p   []byte
}

// blocks is a sparse image.
type blocks map[int64]*[blockSize]byte

const (
	blockSize  = 4096
	sectorSize = 512 // the unit that a drive writes as a whole or not at all
)

func (b blocks) read(p []byte, off int64) {
	for len(p) > 0 {
		n := min(int64(len(p)), blockSize-off%blockSize)
		if at := b[off/blockSize]; at != nil {
			copy(p[:n], at[off%blockSize:])
		} else {
			clear(p[:n])
		}
		p, off = p[n:], off+n
	}
}

func (b blocks) write(p []byte, off int64) {
	for len(p) > 0 {
		at := b[off/blockSize]
		if at == nil {
			at = new([blockSize]byte)
			b[off/blockSize] = at
		}
		n := copy(at[off%blockSize:], p)
		p, off = p[n:], off+int64(n)
	}
}

// NewDrive serves an image file, which it does not change, on a unix socket.
func NewDrive(image, socket string) (*Drive, error) {
	d, err := load(image)
	if err != nil {
		return nil, err
	}
	d.Path = socket
	if d.listener, err = net.Listen("unix", socket); err != nil {
		return nil, err
	}
	d.served.Go(d.accept)
	return d, nil
}

// load returns a drive with the content of an image file.
func load(image string) (*Drive, error) {
	f, err := os.Open(image)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &Drive{now: blocks{}, durable: blocks{}}
	for p, zero := make([]byte, blockSize), [blockSize]byte{}; ; d.size += blockSize {
		if _, err := io.ReadFull(f, p); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", image, err)
		}
		if [blockSize]byte(p) != zero {
			d.now.write(p, d.size)
			d.durable.write(p, d.size)
		}
	}
	return d, nil
}

// Close ends the service.
func (d *Drive) Close() error {
	err := d.listener.Close()
	d.served.Wait()
	return errors.Join(err, d.err)
}

// accept serves one machine after the other.
func (d *Drive) accept() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		d.off = make(chan struct{})
		off := d.off
		d.mu.Unlock()
		err = d.serve(conn)
		conn.Close()
		d.mu.Lock()
		if d.err == nil && !gone(err) {
			d.err = err
		}
		d.mu.Unlock()
		close(off)
	}
}

// Lose decides which cached writes a loss of power undoes. Each may be there, or not, or be torn.
// It waits until the machine is off. It returns how many writes were cached, and how many of them
// are there as a whole.
func (d *Drive) Lose(rng *rand.Rand) (cached, kept int) {
	d.mu.Lock()
	off := d.off
	d.mu.Unlock()
	if off != nil {
		<-off
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kept = d.durable.survive(d.cached, rng)
	cached = len(d.cached)
	d.cached = nil
	d.now = d.durable.clone()
	return cached, kept
}

// survive writes the cached writes that survive a loss of power, and returns how many of them are there as a whole.
func (b blocks) survive(cached []cachedWrite, rng *rand.Rand) (kept int) {
	for _, w := range cached {
		switch rng.IntN(4) {
		case 0:
		case 1:
			for at, n := 0, 0; at < len(w.p); at += n {
				n = sectorSize
				if off := w.off + int64(at); off < blockSize {
					n = int(blockSize - off) // ext4 mounts no half of a superblock, whose checksum comes before its journal
				}
				if rng.IntN(2) == 0 {
					b.write(w.p[at:min(at+n, len(w.p))], w.off+int64(at))
				}
			}
		default:
			b.write(w.p, w.off)
			kept++
		}
	}
	return kept
}

func (b blocks) clone() blocks {
	other := make(blocks, len(b))
	for n, one := range b {
		same := *one
		other[n] = &same
	}
	return other
}

// Survivors writes an image file of the drive's content after a loss of power at this moment, which does not happen. A nil rng
// draws nothing. No cached write survives.
func (d *Drive) Survivors(image string, rng *rand.Rand) error {
	d.mu.Lock()
	left, cached, size := d.durable.clone(), slices.Clone(d.cached), d.size
	d.mu.Unlock()
	if rng != nil {
		left.survive(cached, rng)
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	err = f.Truncate(size)
	for n, b := range left {
		if _, writeErr := f.WriteAt(b[:], n*blockSize); writeErr != nil {
			err = errors.Join(err, writeErr)
			break
		}
	}
	return errors.Join(err, f.Close())
}

func (d *Drive) read(p []byte, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now.read(p, off)
}

func (d *Drive) write(p []byte, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.now.write(p, off)
	d.cached = append(d.cached, cachedWrite{off, p})
}

// writeIfRoom is write that fails, and reports so, where the drive is full.
func (d *Drive) writeIfRoom(p []byte, off int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off+int64(len(p)) > d.size {
		return false
	}
	for n := off / blockSize; d.bounded && n*blockSize < off+int64(len(p)); n++ {
		if d.now[n] != nil {
			continue
		}
		if d.room == 0 {
			return false
		}
		d.room--
	}
	d.now.write(p, off)
	d.cached = append(d.cached, cachedWrite{off, p})
	return true
}

func (d *Drive) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.cached {
		d.durable.write(w.p, w.off)
	}
	d.cached = nil
}
