package file

import (
	"context"
	"io/fs"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/owner"
	"forebay/internal/bb"
)

// Open opens a file for writing. It joins its writers, or begins a new generation.
func (s *Files) Open(ctx context.Context, c access.Caller, o OpenOptions) (*File, error) {
	at, mayCreate, err := s.p.Paths.Parent(ctx, c, "open", o.Path)
	if err == nil {
		err = s.p.Paths.MayChange("open", o.Path)
	}
	if err != nil {
		return nil, err
	}
	if o.Create && o.Exclusive { // which is acknowledged now, not with a commit
		if err := s.p.Gate.Enter(ctx, "create"); err != nil {
			return nil, err
		}
		defer s.p.Gate.Leave()
	}
	for {
		f, made := s.openAt(at, o.Path)
		if made {
			if err := s.begin(ctx, c, f, mayCreate, o); err != nil {
				f.removeFromOpen()
				f.mu.Unlock()
				return nil, err
			}
			f.state.writers = 1
			f.mu.Unlock()
			return f, nil
		}
		again, err := f.joinOpen(ctx, c, o)
		if err != nil {
			return nil, err
		}
		if !again {
			return f, nil
		}
	}
}

// joinOpen joins a file that others write. again means that it was closed meanwhile.
func (f *File) joinOpen(ctx context.Context, c access.Caller, o OpenOptions) (again bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	truncates := o.replaces(f.old) && (o.ResumeGeneration == 0 || !f.state.committed)
	switch f.state.joining(opening{
		exclusive: o.Create && o.Exclusive, permitted: o.mayWrite(c, &f.entry),
		fence: o.Fence, truncates: truncates,
	}) {
	case stepLookAgain:
		return true, nil
	case stepFinish:
		return true, f.finish(ctx, f.state.writers)
	case stepRefuseExists:
		return false, bb.E(bb.Exists, "create", o.Path, "the file is being written")
	case stepRefuseDenied:
		return false, access.Denied("open", o.Path, "write it")
	case stepRefuseBusy:
		return false, bb.E(bb.Busy, "open", o.Path, "others are writing the file: it cannot be truncated").
			WithRemedy("open it without truncating, or when they have closed it")
	}
	if truncates && f.state.exists {
		f.base, f.state.fresh = 0, true
	}
	f.state.writers++
	f.state.joined = true
	return false, nil
}

// begin looks the file up and starts a generation of it. f is locked.
func (s *Files) begin(ctx context.Context, c access.Caller, f *File, mayCreate bool, o OpenOptions) error {
	e, err := s.p.Names.Lookup(ctx, f.at.Dir, f.at.Name)
	switch bb.KindOf(err) {
	case bb.NotFound:
		if !o.Create {
			return bb.Wrap("open", o.Path, err)
		}
		return s.beginNew(ctx, c, f, mayCreate, o)
	default:
		if err != nil {
			return bb.Wrap("open", o.Path, err)
		}
	}
	switch {
	case o.Create && o.Exclusive && !e.IsDir():
		return bb.E(bb.Exists, "create", o.Path, "the file exists")
	case e.IsDir() || e.Type.Special():
		return bb.NotFile("open", o.Path, e.Type, e.Target)
	case !o.mayWrite(c, &e):
		return access.Denied("open", o.Path, "write it")
	case e.Lost && !o.Truncate:
		return bb.E(bb.Lost, "open", o.Path, e.LostReason())
	case s.o.Owners.OwnedElsewhere(&e) && !(owner.Adoptable(&e) && (o.Adopt || o.Truncate)):
		return &NotOwnerError{Node: s.o.Owners.Of(&e), Adoptable: owner.Adoptable(&e)}
	}
	f.entry, f.state.exists, f.writer = e, true, o.Writer
	f.file, f.old, f.base, f.state.fresh = e.File, e.Generation, e.Generation, o.replaces(e.Generation) || e.Lost
	if f.generation, err = s.o.After(ctx, e.Generation); err != nil {
		return err
	}
	f.was, f.wasReplica = s.o.Owners.Of(&e), owner.Replica(&e)
	f.entry.Holders = []bb.NodeID{s.o.Owners.Self}
	if f.state.fresh {
		f.base = 0
	} else if err := s.p.Cache.Base(ctx, &e, o.Path); err != nil {
		return err
	}
	s.begun(f)
	return nil
}

func (s *Files) beginNew(ctx context.Context, c access.Caller, f *File, mayCreate bool, o OpenOptions) error {
	if !mayCreate {
		return access.Denied("create", o.Path, "write the directory")
	}
	if !c.Relayed {
		if node := s.o.Elsewhere(); node != "" {
			return &NotOwnerError{Node: node}
		}
	}
	f.file, f.generation, f.exclusive = bb.FileID(s.o.NextID()), bb.Generation(s.o.NextID()), o.Exclusive
	f.writer = o.Writer
	f.entry = bb.Entry{
		Parent: f.at.Dir, Name: f.at.Name, Type: bb.TypeFile, File: f.file,
		Holders: []bb.NodeID{s.o.Owners.Self}, Mode: o.Mode, UID: c.UID, GID: c.GIDs[0], MTime: time.Now(),
	}
	s.begun(f)
	if !o.Exclusive {
		return nil
	}
	// For exclusive, the namespace decides now which open made it.
	if err := f.record(ctx, nil); err != nil {
		return err
	}
	return f.publish(ctx)
}

// Resume finds the generation that a client was writing when its connection broke.
// Nil and no error: it was closed, and nothing is left to do.
func (s *Files) Resume(ctx context.Context, c access.Caller, o OpenOptions) (*File, *bb.Entry, error) {
	f := s.Of(o.ResumeFile)
	if f != nil && f.generation == o.ResumeGeneration && f.join() {
		if o.mayWrite(c, &f.entry) {
			return f, nil, nil
		}
		f.Abandon(ctx)
		return nil, nil, access.Denied("open", o.Path, "write it")
	}
	e, err := s.p.Paths.Lookup(ctx, c, "open", o.Path)
	if err == nil && e.File == o.ResumeFile && e.Generation == o.ResumeGeneration && !e.Open {
		if e.Lost { // its writer still counts it as synced
			return nil, nil, bb.E(bb.Lost, "open", o.Path, e.LostReason())
		}
		return nil, &e, nil
	}
	if err == nil && s.o.Owners.OwnedElsewhere(&e) && e.File == o.ResumeFile {
		return nil, nil, &NotOwnerError{Node: s.o.Owners.Of(&e)}
	}
	if !o.ResumeCommitted {
		f, err := s.Open(ctx, c, o)
		return f, nil, err
	}
	return nil, nil, bb.E(bb.Lost, "open", o.Path, "the generation that was being written no longer exists")
}

// replaces reports whether the open begins from nothing where a file has the content of a generation, 0 if
// none. An open that is repeated, since the owner has forgotten the generation of which nothing was committed,
// replaces the content that the first one was to replace. Content that came later is that of other writers. It
// stays, and so do bytes that were acknowledged to them as safe.
func (o *OpenOptions) replaces(n bb.Generation) bool {
	return o.Truncate && (o.ResumeGeneration == 0 || n < o.ResumeGeneration)
}

// mayWrite reports whether the caller may write a file. A mode counts when a file is opened first: one who makes a
// file may write it, whatever its mode. So a file's owner may go on.
func (o *OpenOptions) mayWrite(c access.Caller, e *bb.Entry) bool {
	return o.ResumeFile != 0 && o.ResumeFile == e.File && c.Owns(e.UID) || c.Permits(e.UID, e.GID, e.Mode, access.Write)
}

// OpenOptions are the options of opening a file.
type OpenOptions struct {
	Path                        string // clean
	Create, Exclusive, Truncate bool
	Mode                        fs.FileMode
	ResumeFile                  bb.FileID
	ResumeGeneration            bb.Generation
	ResumeCommitted             bool
	Fence                       bool // end the generation that others write, and begin one that they cannot
	Adopt                       bool // a clean file of a node that does not answer is written here
	Writer                      string
}

// NotOwnerError redirects the writer of a file to its owner, another node.
type NotOwnerError struct {
	Node      bb.NodeID
	Adoptable bool // it may be written here if that node does not answer
}

func (e *NotOwnerError) Error() string { return "its owner is node " + string(e.Node) }

// Owner returns the node.
func (e *NotOwnerError) Owner() bb.NodeID { return e.Node }
