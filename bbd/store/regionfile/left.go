package regionfile

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"forebay/bbd/store/folder"
	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// Holds finds the segments of a region that is not adopted: their bytes, and their buffers. Empty means that no
// slot has any trace of one.
func (c *Found) Holds() (held int64, buffers []string, empty bool, err error) {
	path := JournalOf(c.Path)
	if c.Older {
		path = c.Path
	}
	file, err := os.Open(path)
	if err != nil {
		return 0, nil, false, err
	}
	defer file.Close()
	slots := make([]byte, c.Header.Size/format.Unit*format.SlotSize)
	if _, err := file.ReadAt(slots, format.SlotTable); err != nil {
		return 0, nil, false, err
	}
	empty = true
	for slot := range slices.Chunk(slots, format.SlotSize) {
		if binary.LittleEndian.Uint64(slot) == 0 {
			continue
		}
		empty = false
		h, err := format.DecodeSegmentHeader(slot)
		if err != nil {
			held += format.Unit // of a segment whose slot is damaged
			continue
		}
		held += h.Units * format.Unit
		if h.Buffer != "" && !slices.Contains(buffers, h.Buffer) {
			buffers = append(buffers, h.Buffer)
		}
	}
	return held, buffers, empty, nil
}

// RemoveEmptyJournal deletes a journal without pages and reports true, if it has no segment. A
// region of it was being made, or removed, when the process before was killed.
func (c *Found) RemoveEmptyJournal() bool {
	f, err := os.Open(JournalOf(c.Path))
	if err != nil {
		return false
	}
	defer f.Close()
	text := make([]byte, format.SlotCopies)
	if n, err := f.ReadAt(text, 0); err != nil && n > 0 { // none: it was not given its size
		return false
	}
	for at := format.SlotTable; at < format.SlotCopies; at += format.SlotSize {
		if binary.LittleEndian.Uint64(text[at:]) != 0 {
			return false
		}
	}
	return os.Remove(JournalOf(c.Path)) == nil
}

// RemoveUnfinished deletes regions that an earlier process had not finished making.
func RemoveUnfinished(log *slog.Logger, dirs ...string) {
	for _, dir := range slices.Compact(dirs) {
		if dir == "" {
			continue
		}
		list, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range list {
			if strings.HasPrefix(e.Name(), Prefix) && strings.HasSuffix(e.Name(), Unfinished) {
				if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
					log.Error("delete an unfinished region", "path", e.Name(), "error", err)
				}
			}
		}
	}
}

// Purge deletes the regions in a folder that no process has locked.
func Purge(dir string) error {
	lock, err := folder.Lock(dir)
	if bb.KindOf(err) == bb.NoSpace {
		err = nil // no process has locked the folder, so only the process id could not be written
	}
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Close()
	}
	found, err := filepath.Glob(filepath.Join(dir, Prefix+"*"))
	for _, path := range append(found, filepath.Join(dir, folder.LockName)) {
		if rmErr := os.Remove(path); !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
		}
	}
	return err
}
