package buffer

import (
	"context"

	"forebay/bbd/reassert"
	"forebay/internal/bb"
)

// ReassertOptions returns the options of package reassert for all buffers.
func (h *Host) ReassertOptions() reassert.Options {
	return reassert.Options{Owners: h.Owners, Store: h.Store, RaiseIDs: h.RaiseIDs, Unreadable: h.Unreadable, Emit: h.Emit, Log: h.Log}
}

// newReassertion makes the part that restores a buffer's entries that the namespace has forgotten.
func newReassertion(b *Buffer) *reassert.Buffer {
	var log reassert.Log // no nil engine in an interface
	if l := b.log(); l != nil {
		log = l
	}
	return reassert.New(b.h.ReassertOptions(), b.name, reassertFiles{later{b}}, b.ns, log, b.dirty)
}

// reassertFiles are the files of a buffer, for package reassert.
type reassertFiles struct{ later }

// Open returns a file that is being written.
func (f reassertFiles) Open(file bb.FileID) reassert.OpenFile {
	if open := f.b.open.Of(file); open != nil {
		return open
	}
	return nil
}

// Queued reports whether the flusher has a file.
func (f reassertFiles) Queued(file bb.FileID) bool { return f.b.h.Flusher.Has(f.b.name, file) }

// Reopen makes a file open again whose writer may come back.
func (f reassertFiles) Reopen(e *bb.Entry) { f.b.open.Reopen(e) }

// Recover recovers a file at a start.
func (f reassertFiles) Recover(ctx context.Context, e *bb.Entry) (missing string) {
	return f.b.recovery.RecoverFile(ctx, e)
}
