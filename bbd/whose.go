package bbd

import (
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// identify writes whose the bytes of a generation are: it is where an entry will say that
// it lies. The generation is closed if the entry says that.
func (b *buffer) identify(e *bb.Entry, path, writer string) error {
	id := store.Identity{
		File: e.File, Generation: e.Generation, Buffer: b.name, Made: b.Spec().Created.UnixNano(), Dir: e.Parent, Name: e.Name, Path: path,
		UID: e.UID, GID: e.GID, Mode: e.Mode, MTime: e.MTime, Writer: writer,
	}
	if b.log() != nil {
		id.Revision = e.Revision
	}
	if !e.Open {
		id.Closed, id.Size, id.Checksum = true, e.Size, e.Checksum
	}
	return b.d.store.Identify(&id)
}

// identifyAt follows a rename. Killed before it, this node finds the file's entry under
// its new name all the same; if the namespace has forgotten that too, the file is made
// again under its old one.
func (b *buffer) identifyAt(file bb.FileID, at bb.Place, path string) {
	id, ok := b.d.store.IdentityOf(file)
	if !ok {
		return
	}
	id.Dir, id.Name, id.Path = at.Dir, at.Name, path
	if err := b.d.store.Identify(&id); err != nil {
		b.d.log.Warn("noting the new name of a file", "path", b.address(path), "err", err)
	}
}

// identifyFound writes the identity of a dirty file that has none of its generation yet:
// an older release wrote it, or it was taken over from another node.
func (b *buffer) identifyFound(e *bb.Entry, path string) {
	if id, ok := b.d.store.IdentityOf(e.File); ok && id.Generation == e.Generation && (id.Closed || e.Open) && (bb.Place{Dir: id.Dir, Name: id.Name} == e.Place()) &&
		(b.log() == nil || id.Revision == e.Revision) { // that of before the log was set back tells nothing any more
		return
	}
	if err := b.identify(e, path, ""); err != nil {
		b.d.log.Warn("noting whose a file is", "path", b.address(path), "err", err)
	}
}
