package flusher

import (
	"forebay/internal/bb"
)

// A file is in conflict while the store has an object under its name that this buffer did not
// write, and Policy.KeepExisting is set: its flush fails with bb.Exists. The conflict ends when the
// object goes, when the file gets another name or the object's content, or by Overwrite.

// isConflict reports whether an attempt failed for such an object.
func isConflict(err error) bool { return err != nil && bb.KindOf(err) == bb.Exists }

// Overwrite lets the flushes of some files replace whatever the store has under their names, and
// the renames of files to a path, or to one below it, likewise. It holds for the generations of
// the keys until they are flushed or replaced, and for the renames that are queued now; not across
// a restart. Attempts that wait for their time are made at once.
func (f *Flusher) Overwrite(buffer, path string, keys []Key) {
	f.mu.Lock()
	if q := f.mu.queues[buffer]; q != nil {
		for _, k := range keys {
			if e := q.entries[k.File]; e != nil {
				e.overwrite = max(e.overwrite, k.Generation)
			}
		}
		for _, op := range q.ops {
			if op.Kind == OpRename && !op.Tree && covers(path, op.New) {
				op.overwrite = true
			}
		}
		q.retryOps()
	}
	f.mu.Unlock()
	f.urge(buffer, keys)
	f.kick()
}

// mayOverwrite reports whether the flight may replace what this buffer did not write.
func (fl *flight) mayOverwrite() bool {
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	return fl.key.Generation <= fl.e.overwrite
}
