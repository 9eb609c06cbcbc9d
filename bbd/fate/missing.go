package fate

import (
	"fmt"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// The lost part of a file, and the reason, follow from its entry and from the findings of recovery.
//
// The entry of a closed file has its size and checksum. Content that agrees with them is whole,
// wherever it was. The entry of an open file has neither. Its commits are the present records, and
// any of them may have been the last one. So an open file is whole only if no record of it can be
// missing, since this node's memory is the one that the file was written to, and all records can be
// read. If memory is gone and the disk tier is not, the bytes on disk of an open file may be old,
// or have holes, and nothing shows it.

// Survived is the part of a file that recovery found on this node.
type Survived struct {
	Node       bb.NodeID
	Adopted    error  // the result of Store.Adopt
	MemoryLost bool   // the disk tier has outlived the memory that it belonged to
	Damage     string // the unreadable part that may have been about the file; "": nothing

	Sum      uint64
	Size     int64
	Unsummed error // why sum and size are not known
}

// Missing returns the missing part of a file, or "" if nothing is missing. It is a function of its
// arguments alone.
//
//	entry   records   memory    damage         missing
//	any     none      any       any            all of it
//	any     refused   any       any            the result of Adopt, but for damage that a closed file can disprove
//	open    some      lost      any            the last synced bytes
//	open    some      kept      any            the bytes of the damaged records
//	open    some      kept      none           nothing
//	closed  some      any       any            nothing, if size and checksum agree
func Missing(e *bb.Entry, f *Survived) string {
	kind := bb.KindOf(f.Adopted)
	switch {
	case kind == bb.NotFound:
		return fmt.Sprintf("its bytes were in the memory of node %s, which was lost before they were flushed", f.Node)
	case f.Adopted != nil && kind != bb.Lost:
		return f.Adopted.Error()
	case !e.Open:
		return unlike(e, f)
	case f.MemoryLost:
		return fmt.Sprintf("it was open when node %s lost its memory, and with it the bytes synced last: %s on its disk may be old or have holes", f.Node, f.left())
	case f.Adopted != nil:
		return f.Adopted.Error()
	case f.Damage != "":
		return fmt.Sprintf("it was open when node %s stopped, and records that may be of it cannot be read (%s): %s may be old or have holes", f.Node, f.Damage, f.left())
	}
	return ""
}

// unlike returns how the rest of a closed file differs from its entry. A damaged record may
// be one that does not count, so content that agrees with the entry is whole.
func unlike(e *bb.Entry, f *Survived) string {
	switch {
	case f.Unsummed != nil:
		return f.Unsummed.Error()
	case f.Size != e.Size:
		return fmt.Sprintf("%d of its %d bytes are left in the memory of node %s", f.Size, e.Size, f.Node)
	case f.Sum != e.Checksum:
		return fmt.Sprintf("some of its %d bytes are missing in the memory of node %s", e.Size, f.Node)
	}
	return ""
}

// left names the rest of a file that was open.
func (f *Survived) left() string {
	if f.Unsummed != nil {
		return "the rest"
	}
	return fmt.Sprintf("the rest of bytes 0 to %d", f.Size)
}

// CouldBeIn reports whether damage may have hit records of a buffer's files.
func CouldBeIn(d *store.Damage, buffer string) bool {
	return !d.Mended && (d.Buffer == buffer || d.Buffer == "")
}
