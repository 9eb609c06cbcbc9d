package file

import (
	"forebay/bbd/store"
	"forebay/internal/bb"
)

// identify writes the owner of a generation's bytes: the file and place by which an entry will name
// them. The generation is closed if the entry names it as closed.
func (s *Files) identify(e *bb.Entry, path, writer string) error {
	id := store.Identity{
		File: e.File, Generation: e.Generation, Buffer: s.name, Made: s.p.Spec().Created.UnixNano(), Dir: e.Parent, Name: e.Name, Path: path,
		UID: e.UID, GID: e.GID, Mode: e.Mode, MTime: e.MTime, Writer: writer,
	}
	if s.p.Revisions() {
		id.Revision = e.Revision
	}
	if !e.Open {
		id.Closed, id.Size, id.Checksum = true, e.Size, e.Checksum
	}
	return s.o.Store.Identify(&id)
}

// IdentifyAt follows a rename. Killed before it, this node finds the file's entry under its new
// name all the same. If the namespace has forgotten that too, the file is made again under its old
// one.
func (s *Files) IdentifyAt(e *bb.Entry, path string) {
	id, ok := s.o.Store.IdentityOf(e.File)
	if !ok {
		return
	}
	id.Dir, id.Name, id.Path = e.Parent, e.Name, path
	if s.p.Revisions() {
		id.Revision = e.Revision
	}
	if err := s.o.Store.Identify(&id); err != nil {
		s.o.Log.Warn("the new name of a file was not recorded", "path", s.address(path), "err", err)
	}
}

// IdentifyFound writes the identity of a dirty file that has none of its generation yet. An older
// release wrote it, or it was adopted from another node.
func (s *Files) IdentifyFound(e *bb.Entry, path string) {
	if id, ok := s.o.Store.IdentityOf(e.File); ok && id.Generation == e.Generation && (id.Closed || e.Open) && (bb.Place{Dir: id.Dir, Name: id.Name} == e.Place()) &&
		(!s.p.Revisions() || id.Revision == e.Revision) { // one from before the log was set back proves nothing any more
		return
	}
	if err := s.identify(e, path, ""); err != nil {
		s.o.Log.Warn("the identity of a file was not written", "path", s.address(path), "err", err)
	}
}
