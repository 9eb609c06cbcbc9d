// Package dropped is the list of the files of a disk tier that were dropped. It must never depend on the files' bytes.
package dropped

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/rounds"
)

// The disk tier outlives a loss of power, and may still have spilled bytes of a file that was removed
// since. A segment that other files share stays, and the freeing of a segment may not have been
// synced. The owners of the bytes were in memory alone. So a file in the disk tier's folder lists the
// files that were dropped, and a removal is answered once it is synced. One entry:
//
//	┌───────────┬──────┬────────┐
//	│ namespace │ file │ CRC-64 │   each 8 bytes, little endian; the sum is of the 16 before it
//	└───────────┴──────┴────────┘
//
// When the list is made anew, at each start and when it has doubled, entries of files of which no
// segment has a record any more are left out.
const (
	dropsName  = "dropped"
	dropEntry  = 24
	dropsLimit = 4 << 20 // bytes of the list up to which it is not made anew
)

// drop is an entry.
type drop struct {
	namespace uint64
	file      bb.FileID
}

func appendDrop(p []byte, d drop) []byte {
	from := len(p)
	p = binary.LittleEndian.AppendUint64(p, d.namespace)
	p = binary.LittleEndian.AppendUint64(p, uint64(d.file))
	return binary.LittleEndian.AppendUint64(p, checksum.Sum(p[from:]))
}

// decodeDrops returns the entries of a list that are whole. After a loss of power some may not be.
func decodeDrops(p []byte) (drops []drop) {
	le := binary.LittleEndian
	for ; len(p) >= dropEntry; p = p[dropEntry:] {
		if le.Uint64(p[16:]) == checksum.Sum(p[:16]) {
			drops = append(drops, drop{le.Uint64(p), bb.FileID(le.Uint64(p[8:]))})
		}
	}
	return drops
}

// List is the list of a store with a disk tier. Without one it is empty. Its methods may be called concurrently, but for
// Read, Open and Was.
type List struct {
	dir       string // "": there is no disk tier
	namespace uint64
	has       func() map[bb.FileID]struct{}

	syncs rounds.Group[struct{}]
	found map[bb.FileID]struct{} // while the store is opened
	all   []drop                 // likewise

	// Of the round that runs.
	file  *os.File // nil: there is no disk tier
	size  int64
	limit int64 // the size from which on it is made anew

	mu struct {
		sync.Mutex
		on      bool   // a file that is dropped is noted
		pending []drop // not in the file yet
	}
}

// Path returns the path of the list of a disk tier in a folder.
func Path(dir string) string { return filepath.Join(dir, dropsName) }

func (d *List) path() string { return Path(d.dir) }

// Read reads the list of a folder, for a store of a namespace. One that cannot be read stops no start, since its files
// may be put aside as found, rather than dropped.
func (d *List) Read(dir string, namespace uint64, log *slog.Logger) {
	d.dir, d.namespace = dir, namespace
	if dir == "" {
		return
	}
	p, err := os.ReadFile(d.path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("read which files were removed", "path", d.path(), "error", err)
	}
	d.found = map[bb.FileID]struct{}{}
	for _, one := range decodeDrops(p) {
		if one.namespace == 0 || namespace == 0 || one.namespace == namespace {
			d.found[one.file] = struct{}{}
		}
		d.all = append(d.all, one)
	}
}

// renew makes the list anew, of entries of which a segment may have bytes, or another owner.
func (d *List) renew(all []drop) error {
	has := d.has()
	var p []byte
	seen := map[drop]bool{}
	for _, one := range all {
		if _, ok := has[one.file]; (ok || one.namespace != d.namespace) && !seen[one] {
			seen[one] = true
			p = appendDrop(p, one)
		}
	}
	temp := d.path() + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(temp, d.path())
	}
	if err == nil {
		err = syncFolder(d.dir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if d.file != nil {
		err = d.file.Close()
	}
	d.file, d.size, d.limit = f, int64(len(p)), max(dropsLimit, 2*int64(len(p)))
	return err
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Open begins the list of this life, once the segments are known. Has returns the files of which a segment may have bytes.
func (d *List) Open(has func() map[bb.FileID]struct{}) error {
	if d.dir == "" {
		return nil
	}
	d.has = has
	err := d.renew(d.all)
	d.all, d.found = nil, nil
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.on = err == nil
	return bb.Wrap("open store", d.path(), err)
}

// Note notes that a file was dropped. Sync makes that durable.
func (d *List) Note(f bb.FileID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.on {
		d.mu.pending = append(d.mu.pending, drop{d.namespace, f})
	}
}

// Was reports, until the store is open, whether an earlier life has dropped a file.
func (d *List) Was(f bb.FileID) bool {
	_, ok := d.found[f]
	return ok
}

// Sync returns when all earlier drops outlast a failure of the machine. Calls share a sync.
// Without a disk tier there is nothing to do.
func (d *List) Sync(ctx context.Context) error {
	if d.dir == "" {
		return nil
	}
	_, err := d.syncs.Do(ctx, func(context.Context) (struct{}, error) { return struct{}{}, d.syncPending() })
	return bb.Wrap("remove", d.path(), err)
}

// syncPending writes the pending entries. One runs at a time.
func (d *List) syncPending() error {
	d.mu.Lock()
	pending := d.mu.pending
	d.mu.pending = nil
	d.mu.Unlock()
	if len(pending) == 0 || d.file == nil {
		return nil
	}
	err := d.write(pending)
	if err != nil {
		d.mu.Lock()
		d.mu.pending = append(pending, d.mu.pending...)
		d.mu.Unlock()
	}
	return err
}

func (d *List) write(pending []drop) error {
	var p []byte
	for _, one := range pending {
		p = appendDrop(p, one)
	}
	_, err := d.file.WriteAt(p, d.size) // over the remains of a failed attempt
	if err == nil {
		err = unix.Fdatasync(int(d.file.Fd()))
	}
	if err == nil && d.size+int64(len(p)) <= d.limit {
		d.size += int64(len(p))
		return nil
	}
	// It has doubled, or its state on the disk is unknown, and the new list replaces it.
	all, err := os.ReadFile(d.path())
	if err != nil {
		return err
	}
	return d.renew(append(decodeDrops(all[:min(d.size, int64(len(all)))]), pending...))
}

// Close writes the pending entries and closes the list.
func (d *List) Close() error {
	_, err := d.syncs.Do(context.Background(), func(context.Context) (struct{}, error) {
		err := d.syncPending()
		if d.file != nil {
			err = errors.Join(err, d.file.Close())
			d.file = nil
		}
		return struct{}{}, err
	})
	return err
}
