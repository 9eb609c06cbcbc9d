package bbd

import (
	"fmt"

	"forebay/bbd/store"
	"forebay/internal/bb"
)

// What is lost of a file, and why, follows from its entry and from what recovery found.
//
// The entry of a closed file has its size and checksum: what agrees with them is whole,
// wherever it was. The entry of an open file has neither. Its commits are the records that
// there are, and any of them may have been the last one. So an open file is whole only if
// no record of it can be missing: this node's memory is the one that the file was written
// to, and all records can be read. Where memory is gone and the disk tier is not, what is
// on disk of an open file may be old, or have holes, and nothing tells.

// survived is what recovery found of a file on this node.
type survived struct {
	node       bb.NodeID
	adopted    error  // what Store.Adopt returned
	memoryLost bool   // the disk tier has outlived the memory that it belonged to
	damage     string // what could not be read and may have been about the file; "": nothing

	sum      uint64
	size     int64
	unsummed error // why sum and size are not known
}

// missingOf says what is missing of a file; nothing: "". It is a function of what it is
// given alone.
//
//	entry   records   memory    damage         missing
//	any     none      any       any            all of it
//	any     refused   any       any            what Adopt says, but for damage that a closed file can disprove
//	open    some      lost      any            what was synced last
//	open    some      kept      any            what the damaged records were about
//	open    some      kept      none           nothing
//	closed  some      any       any            nothing, if size and checksum agree
func missingOf(e *bb.Entry, f *survived) string {
	kind := bb.KindOf(f.adopted)
	switch {
	case kind == bb.NotFound:
		return fmt.Sprintf("its bytes were in the memory of node %s, which was lost before they were flushed", f.node)
	case f.adopted != nil && kind != bb.Lost:
		return f.adopted.Error()
	case !e.Open:
		return unlike(e, f)
	case f.memoryLost:
		return fmt.Sprintf("it was open when node %s lost its memory, and with it what was synced last: %s on its disk may be old or have holes", f.node, f.left())
	case f.adopted != nil:
		return f.adopted.Error()
	case f.damage != "":
		return fmt.Sprintf("it was open when node %s stopped, and records that may be of it cannot be read (%s): %s may be old or have holes", f.node, f.damage, f.left())
	}
	return ""
}

// unlike says how what is left of a closed file differs from its entry. A damaged record may
// be one that does not count: what agrees with the entry is whole.
func unlike(e *bb.Entry, f *survived) string {
	switch {
	case f.unsummed != nil:
		return f.unsummed.Error()
	case f.size != e.Size:
		return fmt.Sprintf("%d of its %d bytes are left in the memory of node %s", f.size, e.Size, f.node)
	case f.sum != e.Checksum:
		return fmt.Sprintf("some of its %d bytes are missing in the memory of node %s", e.Size, f.node)
	}
	return ""
}

// left names what is there of a file that was open.
func (f *survived) left() string {
	if f.unsummed != nil {
		return "what is left"
	}
	return fmt.Sprintf("what is left of bytes 0 to %d", f.size)
}

// yield drops what this node has left of a file, in favour of the second copy at another
// node: what is left would be read here. Of a generation that was open it is struck out,
// since a later start would not know that something is missing; of a closed one, size and
// checksum tell at each start.
func (b *buffer) yield(e *bb.Entry) (err error) {
	if e.Open {
		err = b.d.store.Void(e.File, e.Generation)
	}
	b.d.store.Drop(e.File)
	return err
}

// damageIn returns what recovery could not read that may have been about files of a
// buffer; "": nothing.
func (d *Daemon) damageIn(buffer string) string {
	for _, found := range d.store.Damage() {
		if couldBeIn(&found, buffer) {
			return found.What
		}
	}
	return ""
}

// couldBeIn reports whether damage may have hit records of a buffer's files.
func couldBeIn(d *store.Damage, buffer string) bool {
	return !d.Mended && (d.Buffer == buffer || d.Buffer == "")
}
