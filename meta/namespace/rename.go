package namespace

import "forebay/internal/bb"

// MayReplace holds the rules of rename(2) on replacements: of an entry by another one, or of none (nil).
func MayReplace(e, replaced *bb.Entry, o RenameOptions) error {
	const op = "rename"
	switch {
	case replaced == nil:
		return nil
	case !o.Replace:
		return bb.E(bb.Exists, op, replaced.Name, "there is an entry of that name")
	case e.IsDir() && !replaced.IsDir():
		return bb.E(bb.NotDirectory, op, replaced.Name, "a directory cannot replace a file")
	case !e.IsDir() && replaced.IsDir():
		return bb.E(bb.IsDirectory, op, replaced.Name, "a file cannot replace a directory")
	case replaced.Txn != 0:
		return &Unfolded{ID: replaced.Txn}
	}
	return nil
}

// Move returns an entry at the new place of a rename, where it replaces another one, or none (nil).
func Move(e *bb.Entry, to bb.Place, replaced *bb.Entry) bb.Entry {
	moved := *e
	moved.Parent, moved.Name = to.Dir, to.Name
	moved.SetBefore(kept(e, replaced), attempts(e, replaced))
	return moved
}

// kept returns the object that the store keeps under the new name until the renamed file is flushed
// first. A file that was flushed takes its own object along, in one step of the store.
func kept(e, replaced *bb.Entry) bb.Flushed {
	if replaced == nil || e.IsDir() || e.Flushed.Generation != 0 {
		return bb.Flushed{}
	}
	return replaced.Stored()
}

// attempts returns the contents that flushes may have put under the new name by the time that the
// store has followed. A file that was never flushed leaves those of its attempts under its old
// name, and has them removed there. A flushed file takes them along, if one has replaced the
// flushed object.
func attempts(e, replaced *bb.Entry) []bb.Content {
	var all []bb.Content
	if e.Flushed.Generation != 0 {
		all = e.Attempts()
	}
	if replaced != nil {
		all = bb.AddContents(all, replaced.Unrecorded()...)
	}
	return all
}

// MoveOp returns the store's part of a rename, by which an entry may replace another one.
func MoveOp(e *bb.Entry, from, to string, replaced *bb.Entry) StoreOp {
	op := StoreOp{
		Op: OpRename, OldPath: from, NewPath: to, File: e.File, IsDir: e.IsDir(), Flushed: e.Flushed, Left: e.Replaced(), Attempts: e.Unrecorded(),
	}
	if replaced != nil && op.Flushed.Generation != 0 {
		op.Replaced, op.ReplacedAttempts = replaced.Stored(), replaced.Unrecorded()
	}
	return op
}
