package bbd

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/fate"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/meta/namespace"
)

// scan reads the namespace for a survey, and calls fn with each entry and whether it is behind what
// memory holds of its file.
func (b *buffer) scan(ctx context.Context, sv *fate.Survey, fn func(e *bb.Entry, behind bool)) error {
	if err := b.ns.ScanMarks(ctx, func(e bb.Entry) error { fn(&e, sv.See(&e)); return nil }, sv.Gone); err != nil || b.log() == nil {
		return err
	}
	for _, h := range sv.Missing() {
		if h.Identity == nil || h.Identity.Revision == 0 {
			continue
		}
		removed, err := b.log().Covers(ctx, h.Identity.Revision)
		if err != nil {
			return err
		}
		if removed {
			sv.Gone(h.File)
		}
	}
	return nil
}

// known returns what fate.Decide asks of a file.
func (b *buffer) known(sv *fate.Survey, h *fate.Held) fate.Known {
	return sv.Known(h, func(e *bb.Entry) bool { return !b.owners.Foreign(e) || owner.Adoptable(e) })
}

// heldFiles lists what memory holds, by buffer and file.
func (d *Daemon) heldFiles() map[string]map[bb.FileID]*fate.Held {
	all := make(map[string]map[bb.FileID]*fate.Held)
	for f := range d.store.Files() {
		h := &fate.Held{File: f.File, Buffer: f.Buffer, Identity: f.Identity, Origin: f.Origin}
		for i := range f.Generations {
			g := &f.Generations[i]
			acked := f.Identity != nil && f.Identity.Generation == g.Generation
			if acked {
				h.Acked = g.Generation
			}
			if acked || h.Acked == 0 {
				h.Newest, h.Resident, h.Evicted, h.Dirty = g.Generation, g.Resident, g.Evicted, g.Dirty
			}
		}
		if h.Identity != nil {
			h.Buffer = h.Identity.Buffer
		}
		if all[h.Buffer] == nil {
			all[h.Buffer] = make(map[bb.FileID]*fate.Held)
		}
		all[h.Buffer][f.File] = h
	}
	return all
}

// reassert compares what memory holds of a buffer's files with the namespace, read from
// its server rather than from a cache, and puts back what the namespace has forgotten:
// those files are dirty and queued when it returns. What nothing could be done for is in
// Left. It reads all entries of the buffer once. It may be called while files are written,
// renamed and removed: what others change between a look at an entry and its repair is looked
// at again, some times, and is bb.Busy then.
func (b *buffer) reassert(ctx context.Context) (r fate.Reassertion, err error) {
	for range reassertTries {
		r.Left = nil
		if err = b.reassertOnce(ctx, &r); bb.KindOf(err) != bb.Busy {
			break
		}
	}
	return r, err
}

const reassertTries = 3

// reassertOnce is one look. It goes on with the others after a file that others change.
func (b *buffer) reassertOnce(ctx context.Context, r *fate.Reassertion) error {
	files := b.d.heldFiles()[b.name]
	for file, h := range files {
		if h.Acked == 0 || h.Dirty == 0 && h.Evicted > 0 {
			delete(files, file) // it is being written and was never acknowledged, or the store has it
		}
	}
	sv := fate.NewSurvey(files)
	if err := b.scan(ctx, sv, func(*bb.Entry, bool) {}); err != nil {
		return err
	}
	var busy error
	distrusted := false
	for _, h := range files {
		becomes := fate.Decide(*h, b.known(sv, h))
		if becomes == fate.Adopt {
			continue
		}
		if !distrusted {
			// What is cached of the namespace is what it has forgotten.
			b.ns.Distrust()
			if err := b.d.raiseIDs(ctx); err != nil {
				return err
			}
			distrusted = true
		}
		err := b.reassertFile(ctx, sv, h, becomes, r)
		switch {
		case bb.KindOf(err) == bb.Busy:
			busy = err
		case err != nil:
			return err
		}
	}
	return busy
}

// raiseIDs has those count as claimed that this daemon uses.
func (d *Daemon) raiseIDs(ctx context.Context) error {
	d.ids.Lock()
	block := d.ids.end >> 32
	d.ids.Unlock()
	return d.meta.IDs().Raise(ctx, max(block, d.newestBlock()))
}

// reassertFile settles one file, unless somebody has changed or removed it since it was
// looked at.
func (b *buffer) reassertFile(ctx context.Context, sv *fate.Survey, h *fate.Held, becomes fate.Fate, r *fate.Reassertion) error {
	id := h.Identity
	if f := b.open.of(h.File); f != nil {
		return b.reassertOpen(ctx, f, becomes, r)
	}
	unlock := b.lockPlaces(bb.Place{Dir: id.Dir, Name: id.Name})
	now, ok := b.d.store.IdentityOf(h.File)
	if !ok || now != *id {
		unlock()
		return nil
	}
	if becomes == fate.Remake || becomes == fate.SetAside {
		// It was flushed perhaps, of which the namespace knows nothing any more.
		if err := b.d.store.MarkDirty(h.File, h.Acked); err != nil {
			becomes = fate.Keep
		}
	}
	e, err := b.settle(ctx, sv, h, becomes, r)
	unlock()
	if err != nil || e == nil {
		return err
	}
	if e.Open {
		b.reopen(e)
		return nil
	}
	// What was kept without an entry since the start was not sealed then.
	if err := b.d.store.Seal(e.File, e.Generation); err != nil {
		return err
	}
	b.requeue(ctx, e)
	return nil
}

// reassertOpen makes the entry of a file again that is being written.
func (b *buffer) reassertOpen(ctx context.Context, f *openFile, becomes fate.Fate, r *fate.Reassertion) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if becomes != fate.Remake || f.gone || f.removed || !f.published.Load() {
		return nil
	}
	e := f.entry
	e.Parent, e.Name, e.Open, e.Generation, e.Revision = f.at.Dir, f.at.Name, true, f.generation, 0
	revision, err := b.ns.Create(ctx, e)
	if err != nil {
		r.Left = append(r.Left, fate.Unexplained{File: f.file, Generation: f.generation, Path: f.path, Reason: "it is being written, and its entry cannot be made again: " + err.Error()})
		return nil
	}
	e.Revision = revision
	f.entry = e
	b.sayFound(&e, f.path, "the namespace had forgotten it while it was being written")
	r.Remade = append(r.Remade, f.path)
	return nil
}

// settle carries a decision out. It returns the entry that the file has now, if it was
// made.
func (b *buffer) settle(ctx context.Context, sv *fate.Survey, h *fate.Held, becomes fate.Fate, r *fate.Reassertion) (*bb.Entry, error) {
	left := func(reason string) (*bb.Entry, error) {
		u := fate.Unexplained{File: h.File, Generation: h.Newest, Bytes: h.Resident, Reason: reason}
		if h.Identity != nil {
			u.Path = h.Identity.Path
		}
		b.d.log.Error("bytes that no entry explains are kept", "buffer", b.name, "path", u.Path, "file", u.File, "bytes", u.Bytes, "reason", reason)
		r.Left = append(r.Left, u)
		return nil, nil
	}
	switch becomes {
	case fate.Drop:
		b.d.store.Drop(h.File)
		return nil, nil
	case fate.Keep:
		return left("part of it is on the store alone, or its entry is another node's")
	case fate.Remake:
		e, path, err := b.remakeEntry(ctx, sv, h)
		if err == nil {
			b.sayFound(&e, path, "the namespace had forgotten it")
			r.Remade = append(r.Remade, path)
			return &e, nil
		}
		if kind := bb.KindOf(err); kind != bb.Exists && kind != bb.NotFound && kind != bb.NotDirectory {
			return nil, err
		}
	}
	e, path, err := b.setAside(ctx, h)
	if err != nil {
		if ctx.Err() != nil || bb.KindOf(err) == bb.Unavailable {
			return nil, err
		}
		return left("it cannot be put below " + bb.LostDir + ": " + err.Error())
	}
	b.sayFound(&e, path, e.Reason)
	r.SetAside = append(r.SetAside, path)
	return &e, nil
}

// entryOf makes the entry that a file had, as far as its identity knows.
func (b *buffer) entryOf(h *fate.Held) bb.Entry {
	id := h.Identity
	mtime := id.MTime
	if !id.Closed {
		mtime = foundOpen()
	}
	return bb.Entry{
		Parent: id.Dir, Name: id.Name, Type: bb.TypeFile, File: h.File, Generation: id.Generation,
		Size: id.Size, Checksum: id.Checksum, Open: !id.Closed, Holders: []bb.NodeID{b.d.cfg.Node},
		Mode: id.Mode, UID: id.UID, GID: id.GID, MTime: mtime,
	}
}

// remakeEntry makes an entry again, or has it name the generation that memory holds. A
// directory that the namespace has forgotten too is made again from the path. Exists,
// NotDirectory, NotFound: it cannot have its name.
func (b *buffer) remakeEntry(ctx context.Context, sv *fate.Survey, h *fate.Held) (e bb.Entry, path string, err error) {
	e, path = b.entryOf(h), h.Identity.Path
	if old, ok := sv.Entry(h.File); ok {
		e, err = b.ns.Update(ctx, old.Parent, old.Name, func(now *bb.Entry) error { return remake(now, &e) })
		if now, err := b.pathAt(ctx, old.Place()); err == nil {
			path = now
		}
		return e, path, err
	}
	if !sv.HasDir(e.Parent) {
		if e.Parent, err = b.parentAgain(ctx, path); err != nil {
			return e, path, err
		}
	} else if now, err := b.pathAt(ctx, e.Place()); err == nil {
		path = now
	}
	e.Revision, err = b.ns.Create(ctx, e)
	if bb.KindOf(err) == bb.Exists && b.made(ctx, &e) {
		err = nil
	}
	return e, path, err
}

// remake lets an entry name the generation that memory holds. An entry that names it already
// stays as it is: the namespace carried an earlier attempt out, and its answer was lost.
func remake(now, e *bb.Entry) error {
	switch {
	case now.File != e.File || now.Generation > e.Generation:
		return bb.E(bb.Busy, "reassert", now.Name, "it was changed meanwhile").WithRemedy("try again")
	case now.Generation == e.Generation:
		return nil
	}
	now.Supersede()
	now.Generation, now.Size, now.Checksum, now.Open = e.Generation, e.Size, e.Checksum, e.Open
	now.Holders, now.MTime, now.Lost, now.Reason = e.Holders, e.MTime, false, ""
	return nil
}

// parentAgain makes the directories of a path that are not there.
func (b *buffer) parentAgain(ctx context.Context, path string) (bb.DirID, error) {
	names, err := bb.SplitPath(path)
	if err != nil || len(names) == 0 {
		return 0, bb.E(bb.NotFound, "reassert", path, "the directory is gone")
	}
	dir, err := b.ns.MkdirAll(ctx, join(names[:len(names)-1]), b.owner())
	return dir.Dir, err
}

// owner is whose directories are that are made again: the buffer's.
func (b *buffer) owner() namespace.Owner {
	spec := b.Spec()
	return namespace.Owner{UID: spec.UID, GID: spec.GID, Mode: spec.Mode.Perm()}
}

// setAside gives a file an entry below bb.LostDir. Its name there has its id, so nothing
// else can have it.
func (b *buffer) setAside(ctx context.Context, h *fate.Held) (e bb.Entry, path string, err error) {
	private := b.owner()
	private.Mode = 0o700
	dir, err := b.ns.MkdirAll(ctx, bb.LostDir, private)
	if err != nil {
		return e, "", err
	}
	if h.Acked != 0 {
		e = b.entryOf(h)
		e.Reason = fmt.Sprintf("the namespace had forgotten it, and %s is another file, or cannot be made again", b.address(h.Identity.Path))
	} else if e, err = b.entryUnknown(h); err != nil {
		return e, "", err
	}
	suffix := "~" + h.File.String()
	e.Parent, e.Name = dir.Dir, e.Name[:min(len(e.Name), bb.MaxName-len(suffix))]+suffix
	e.Revision, err = b.ns.Create(ctx, e)
	if bb.KindOf(err) == bb.Exists && b.made(ctx, &e) {
		err = nil
	}
	return e, bb.LostDir + "/" + e.Name, err
}

// entryUnknown makes an entry of bytes of which nobody knows where they were.
func (b *buffer) entryUnknown(h *fate.Held) (e bb.Entry, err error) {
	spec := b.Spec()
	e = bb.Entry{
		Name: "unknown", Type: bb.TypeFile, File: h.File, Generation: h.Newest, Holders: []bb.NodeID{b.d.cfg.Node},
		Mode: 0o600, UID: spec.UID, GID: spec.GID, MTime: time.Now(),
		Reason: "its name was in the memory of node " + string(b.d.cfg.Node) + ", which was lost; parts of it may be, too",
	}
	e.Checksum, e.Size, err = b.d.store.Checksum(h.File, h.Newest)
	return e, err
}

// sayFound says to everybody that a file has an entry again.
func (b *buffer) sayFound(e *bb.Entry, path, reason string) {
	d := b.d
	d.log.Error("a file has an entry again that the namespace had forgotten", "buffer", b.name, "path", path, "bytes", e.Size, "file", e.File, "generation", e.Generation, "reason", reason)
	d.emit(bb.Event{Kind: bb.EventFound, Buffer: b.name, Path: path, Generation: e.Generation, Bytes: e.Size, Reason: reason})
}

// recoverStrange settles what memory holds of buffers that the namespace does not have, or
// has made anew under their names.
func (d *Daemon) recoverStrange(ctx context.Context, specs []bb.Buffer, files map[string]map[bb.FileID]*fate.Held, known map[bb.FileID]struct{}) error {
	byName := make(map[string]*bb.Buffer, len(specs))
	for i := range specs {
		byName[specs[i].Name] = &specs[i]
	}
	for name, list := range files {
		spec, gone := byName[name], false
		if spec == nil && bb.CheckBufferName(name) == nil {
			var err error
			if gone, err = d.meta.BufferGone(ctx, name); err != nil {
				return err
			}
		}
		for file, h := range list {
			switch fate.OfBufferless(h, fate.Namesake{Buffer: spec, Gone: gone}) {
			case fate.Drop:
				d.store.Drop(file)
				delete(list, file)
			case fate.Keep:
				known[file] = struct{}{}
				delete(list, file)
				d.keepUnexplained(name, h, "the namespace does not have the buffer that it is of")
			}
		}
	}
	return nil
}

// keepUnexplained notes bytes of a buffer that the namespace does not have.
func (d *Daemon) keepUnexplained(buffer string, h *fate.Held, reason string) {
	u := fate.Unexplained{File: h.File, Generation: h.Newest, Bytes: h.Resident, Reason: reason}
	if h.Identity != nil {
		u.Path = h.Identity.Path
	}
	d.log.Error("bytes that no entry explains are kept", "buffer", buffer, "path", u.Path, "file", u.File, "bytes", u.Bytes, "reason", reason)
	d.aside.Keep(buffer, u)
}

// repairsAtOnce bounds the repairs of entries that are in flight at a start.
const repairsAtOnce = 16

// recoverForgotten settles the files that no entry explains, and takes those up that get
// one. Known gets all that may not be dropped.
//
// Many are settled at once: each costs some calls of the namespace, and all are settled before
// the daemon serves anybody. They are not left for later: until then a client would find the
// name of an acknowledged file absent, or could make another file of that name, neither with an
// error (contract 9a). A file's directories are made by its own repair, before its entry; one that
// another repair has made meanwhile is used.
func (b *buffer) recoverForgotten(ctx context.Context, sv *fate.Survey, known map[bb.FileID]struct{}, gone *[]bb.Entry) error {
	all := forgottenFiles{known: known, gone: gone}
	repairs, repairing := errgroup.WithContext(ctx)
	repairs.SetLimit(repairsAtOnce)
	for _, h := range sv.Held() {
		k := b.known(sv, h)
		becomes := fate.Decide(*h, k)
		switch {
		case becomes == fate.Adopt:
			continue
		case becomes == fate.Drop && k.Entry == nil && h.Origin == store.OriginOlder && h.Dirty > 0:
			all.older++
		}
		if b.d.meta.Stats().Garbage > 0 && becomes != fate.Keep {
			continue // it may be one whose entry cannot be read
		}
		repairs.Go(func() error { return b.recoverForgottenFile(repairing, sv, h, becomes, &all) })
	}
	if err := repairs.Wait(); err != nil {
		return err
	}
	if len(all.left) > 0 {
		b.noteUnexplained(all.left)
	}
	if all.older > 0 {
		b.d.log.Warn("dropped files without an entry that a release wrote which kept no identities", "buffer", b.name, "files", all.older)
	}
	return nil
}

// forgottenFiles is what comes of the files that no entry explains. Older is the caller's alone.
type forgottenFiles struct {
	older int

	mu    lockorder.Mutex[lockrank.Leaf]
	known map[bb.FileID]struct{}
	gone  *[]bb.Entry
	left  []fate.Unexplained
}

// recoverForgottenFile settles one file, and takes it up if it gets an entry.
func (b *buffer) recoverForgottenFile(ctx context.Context, sv *fate.Survey, h *fate.Held, becomes fate.Fate, all *forgottenFiles) error {
	var r fate.Reassertion
	e, err := b.settle(ctx, sv, h, becomes, &r)
	if bb.KindOf(err) == bb.Busy {
		// No reason to end the start. The bytes are kept, and the next drain looks again.
		b.d.log.Warn("an entry was changed while the daemon started", "buffer", b.name, "path", h.Identity.Path, "file", h.File)
		r.Left = append(r.Left, fate.Unexplained{File: h.File, Generation: h.Acked, Bytes: h.Resident, Path: h.Identity.Path, Reason: "its entry was changed while the daemon started"})
		e, err = nil, nil
	}
	if err != nil {
		return err
	}
	missing := ""
	if e != nil && becomes != fate.Drop {
		missing = b.recoverFile(ctx, e)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.left = append(all.left, r.Left...)
	if becomes != fate.Drop {
		all.known[h.File] = struct{}{}
	}
	if missing != "" {
		e.Reason = missing
		*all.gone = append(*all.gone, *e)
	}
	return nil
}

// asideDir returns the directory of what was set aside; 0: there is none.
func (b *buffer) asideDir(ctx context.Context) (bb.DirID, error) {
	e, err := b.ns.Lookup(ctx, bb.RootDir, bb.LostDir)
	if bb.KindOf(err) == bb.NotFound || err == nil && !e.IsDir() {
		return 0, nil
	}
	return e.Dir, err
}
