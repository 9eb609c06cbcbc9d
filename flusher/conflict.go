package flusher

import (
	"slices"
	"strings"

	"forebay/internal/bb"
)

// A file is in conflict while the store has an object under its name that this buffer did not
// write, and Policy.KeepExisting is set. Its flush fails with bb.Exists. The conflict ends when the
// object goes, when the file gets another name or the object's content, or by Overwrite.

// isConflict reports whether an attempt failed for such an object.
func isConflict(err error) bool { return err != nil && bb.KindOf(err) == bb.Exists }

// Conflict is a file in conflict.
type Conflict struct {
	Path  string
	Bytes int64
	Err   error
}

// Conflicts returns the files of a buffer that are in conflict, by path, at most limit of them.
func (f *Flusher) Conflicts(buffer string, limit int) (found []Conflict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.mu.queues[buffer]
	if q == nil || q.stats.conflicts == 0 {
		return nil
	}
	for _, e := range q.entries {
		if isConflict(e.err) {
			found = append(found, Conflict{e.path, e.item.Size, e.err})
		}
	}
	slices.SortFunc(found, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	return found[:min(len(found), limit)]
}

// Overwrite allows the flushes of some files to replace any object under their names, and the
// renames of files to a path, or to one below it, likewise. It holds for the generations of the
// keys until they are flushed or replaced, and for the renames that are queued now, but not across
// a restart. Attempts that wait for their time are made at once.
func (f *Flusher) Overwrite(buffer, path string, keys []Key) {
	f.mu.Lock()
	if q := f.mu.queues[buffer]; q != nil {
		for _, k := range keys {
			if e := q.entries[k.File]; e != nil {
				e.overwrite = max(e.overwrite, k.Generation)
			}
		}
		q.ops.Overwrite(path)
		q.retryOps()
	}
	f.mu.Unlock()
	f.urge(buffer, keys)
	f.kick()
}

// mayOverwrite reports whether the attempt may replace objects that this buffer did not write.
func (fl *attempt) mayOverwrite() bool {
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	return fl.key.Generation <= fl.e.overwrite
}
