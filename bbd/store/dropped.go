package store

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
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

// drops is the list of a store with a disk tier.
type drops struct {
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

func (s *Store) dropsPath() string { return filepath.Join(s.o.DiskDir, dropsName) }

// readDrops reads the list. One that cannot be read stops no start, since its files may be put
// aside as found, rather than dropped.
func (s *Store) readDrops() {
	if s.o.DiskDir == "" {
		return
	}
	p, err := os.ReadFile(s.dropsPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Error("read which files were removed", "path", s.dropsPath(), "error", err)
	}
	s.drops.found = map[bb.FileID]struct{}{}
	for _, d := range decodeDrops(p) {
		if d.namespace == 0 || s.owner.Namespace == 0 || d.namespace == s.owner.Namespace {
			s.drops.found[d.file] = struct{}{}
		}
		s.drops.all = append(s.drops.all, d)
	}
}

// renewDrops makes the list anew, of entries of which a segment may have bytes, or another owner.
func (s *Store) renewDrops(all []drop) error {
	has := map[bb.FileID]struct{}{}
	s.mu.Lock()
	for g := range s.mu.segments {
		g.mu.Lock()
		for _, f := range g.mu.files {
			has[f] = struct{}{}
		}
		g.mu.Unlock()
	}
	s.mu.Unlock()
	var p []byte
	seen := map[drop]bool{}
	for _, d := range all {
		if _, ok := has[d.file]; (ok || d.namespace != s.owner.Namespace) && !seen[d] {
			seen[d] = true
			p = appendDrop(p, d)
		}
	}
	temp := s.dropsPath() + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(p)
	if err = errors.Join(err, f.Sync()); err == nil {
		err = os.Rename(temp, s.dropsPath())
	}
	if err == nil {
		err = syncFolder(s.o.DiskDir)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if s.drops.file != nil {
		err = s.drops.file.Close()
	}
	s.drops.file, s.drops.size, s.drops.limit = f, int64(len(p)), max(dropsLimit, 2*int64(len(p)))
	return err
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openDrops begins the list of this life, once the segments are known.
func (s *Store) openDrops() error {
	if s.o.DiskDir == "" {
		return nil
	}
	d := &s.drops
	err := s.renewDrops(d.all)
	d.all, d.found = nil, nil
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.on = err == nil
	return bb.Wrap("open store", s.dropsPath(), err)
}

// noteDrop notes that a file was dropped. SyncDrops makes that durable.
func (s *Store) noteDrop(f bb.FileID) {
	s.drops.mu.Lock()
	defer s.drops.mu.Unlock()
	if s.drops.mu.on {
		s.drops.mu.pending = append(s.drops.mu.pending, drop{s.owner.Namespace, f})
	}
}

// wasDropped reports, until the store is open, whether an earlier life has dropped a file.
func (s *Store) wasDropped(f bb.FileID) bool {
	_, ok := s.drops.found[f]
	return ok
}

// SyncDrops returns when all earlier drops outlast a failure of the machine. Calls share a sync.
// Without a disk tier there is nothing to do.
func (s *Store) SyncDrops(ctx context.Context) error {
	if s.o.DiskDir == "" {
		return nil
	}
	_, err := s.drops.syncs.Do(ctx, func(context.Context) (struct{}, error) { return struct{}{}, s.syncDrops() })
	return bb.Wrap("remove", s.dropsPath(), err)
}

// syncDrops writes the pending entries. One runs at a time.
func (s *Store) syncDrops() error {
	d := &s.drops
	d.mu.Lock()
	pending := d.mu.pending
	d.mu.pending = nil
	d.mu.Unlock()
	if len(pending) == 0 || d.file == nil {
		return nil
	}
	err := s.writeDrops(pending)
	if err != nil {
		d.mu.Lock()
		d.mu.pending = append(pending, d.mu.pending...)
		d.mu.Unlock()
	}
	return err
}

func (s *Store) writeDrops(pending []drop) error {
	d := &s.drops
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
	all, err := os.ReadFile(s.dropsPath())
	if err != nil {
		return err
	}
	return s.renewDrops(append(decodeDrops(all[:min(d.size, int64(len(all)))]), pending...))
}

// closeDrops writes the pending entries and closes the list.
func (s *Store) closeDrops() error {
	_, err := s.drops.syncs.Do(context.Background(), func(context.Context) (struct{}, error) {
		err := s.syncDrops()
		if s.drops.file != nil {
			err = errors.Join(err, s.drops.file.Close())
			s.drops.file = nil
		}
		return struct{}{}, err
	})
	return err
}
