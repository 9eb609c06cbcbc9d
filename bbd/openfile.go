package bbd

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/dedup"
	"forebay/bbd/lockrank"
	"forebay/bbd/owner"
	"forebay/bbd/paths"
	"forebay/bbd/readcache"
	"forebay/bbd/replica"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// openFile is a file that is being written: one generation of it, shared by all of
// its writers.
//
//	        open                 first commit            last close
//	(new) ───────▶ unpublished ───────────────▶ published ──────────▶ closed
//	                  │  last close, something written ──────────────▶   │
//	                  └─ last close, nothing written ─▶ void             ▼
//	                                                            queued for flushing
//
// Unpublished: the namespace does not know the generation; readers see the one
// before, or nothing. Published: the entry names it, marked open. An exclusive
// create publishes at once. The mutex is the file's order of commits: it is held
// while the entry is put into the namespace, and nothing else waits for it but
// operations on the same file.
type openFile struct {
	buf        *buffer
	file       bb.FileID
	generation bb.Generation
	beginning

	published atomic.Bool // written under mu
	second    replica.Copy

	mu        lockorder.Mutex[lockrank.OpenFile]
	at        bb.Place
	near      bb.NodeID // the other node that opened it last; "": none has
	writer    string    // the client that began the generation
	path      string    // for messages and events
	entry     bb.Entry  // as the namespace has it, or as it will be created
	exists    bool      // the namespace has the entry
	committed bool      // the store has the generation
	writers   int
	clients   map[*rpc.Session]int // how often a client of this daemon has it open
	flushed   *bb.Flushed          // what the store has of this generation already; nil: nothing
	ending
}

// beginning is what a generation begins with. It does not change once the namespace or the store has the generation.
type beginning struct {
	base       bb.Generation // what the generation starts from; 0: nothing
	fresh      bool          // it starts from nothing, though the file had content
	exclusive  bool          // nobody else may have made it
	old        bb.Generation // the one that it replaces; 0: none
	was        bb.NodeID     // the owner of that
	wasReplica bb.NodeID     // the node with the second copy of that
}

// ending is how a file that is open for writing ends. The file's mutex guards it.
type ending struct {
	gone      bool          // closed, void, or never opened: look the place up again
	passed    bool          // gone because another node's generation took its place
	removed   bool          // its entry was removed meanwhile
	lingers   bool          // its last writer was at another node, and may come back
	finishing bool          // finishLater closes it
	ended     chan struct{} // closed when the file is retired
}

// stub reports whether the file only keeps its place: see lockPlaces.
func (f *openFile) stub() bool { return f.file == 0 }

// join adds a writer. It fails with gone when the file was closed meanwhile.
func (f *openFile) join() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return false
	}
	f.writers++
	return true
}

func (f *openFile) usable(op string) error {
	switch {
	case f.passed:
		return errSuperseded
	case f.removed:
		return bb.E(bb.NotFound, op, f.path, "the file was removed while it was open for writing")
	case f.gone:
		return bb.E(bb.Invalid, op, f.path, "the file is closed")
	}
	return nil
}

// commit makes extents part of the file and returns its size. They are visible and
// survive this daemon's death when it returns. A commit that is repeated is carried out
// once.
func (f *openFile) commit(ctx context.Context, id dedup.ID, extents []store.NewExtent, mtime time.Time) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable("sync"); err != nil {
		return 0, err
	}
	if err := f.recordOnce(ctx, id, extents); err != nil {
		return 0, err
	}
	f.entry.MTime = mtime
	if err := f.publish(ctx); err != nil {
		return 0, err
	}
	return f.buf.d.store.Size(f.file, f.generation)
}

// recordOnce is record of a commit that may be repeated.
func (f *openFile) recordOnce(ctx context.Context, id dedup.ID, extents []store.NewExtent) error {
	if f.buf.commits.Seen(f.file, f.generation, id) {
		return nil
	}
	if err := f.record(ctx, extents); err != nil {
		return err
	}
	f.buf.commits.Add(f.file, f.generation, id)
	return nil
}

// record writes the commit records, here and at a second node where the buffer wants
// that, before anything is acknowledged.
func (f *openFile) record(ctx context.Context, extents []store.NewExtent) error {
	if f.committed && len(extents) == 0 {
		if f.flushed != nil || f.buf.replicas.Settled(&f.second, f.size(), f.near) {
			return nil
		}
		return f.replicate(ctx, nil)
	}
	err := f.buf.d.store.Commit(store.Commit{
		File: f.file, Generation: f.generation, Base: f.base, Fresh: f.fresh,
		Buffer: f.buf.name, Extents: extents,
	})
	if err != nil {
		return bb.Wrap("commit", f.path, err)
	}
	f.committed = true
	f.buf.usage.Absorbed(f.buf.d.observe.Committed(extents))
	return f.replicate(ctx, extents)
}

// replicate brings the second copy up to date with a commit, where the buffer wants one. f is locked.
func (f *openFile) replicate(ctx context.Context, extents []store.NewExtent) error {
	b := f.buf
	if !b.replicas.Wanted() {
		return nil
	}
	g := replica.Generation{Entry: f.entry, Path: f.path, Near: f.near}
	g.Entry.Parent, g.Entry.Name, g.Entry.File, g.Entry.Generation = f.at.Dir, f.at.Name, f.file, f.generation
	was := f.second.At().Node
	whole, err := b.replicas.Commit(ctx, &f.second, &g, extents)
	if err != nil || !whole {
		return err
	}
	now := f.second.At().Node
	if now != was {
		f.published.Store(false) // the next put tells the namespace
	}
	f.entry.Holders = []bb.NodeID{b.d.cfg.Node, now}
	return nil
}

// publish puts the generation into the namespace, marked open, if it is not there.
func (f *openFile) publish(ctx context.Context) error {
	if f.published.Load() {
		return nil
	}
	e := f.entry
	e.Open, e.Generation, e.Checksum, e.Size, e.Lost, e.Reason = true, f.generation, 0, 0, false, ""
	if err := f.put(ctx, e); err != nil {
		return f.superseded(err)
	}
	f.identify()
	f.published.Store(true)
	return nil
}

// identify writes whose the generation is. The namespace has it by then and the writer has no
// answer yet: so an identity is proof that the namespace acknowledged the generation. One
// that was written before would bring back, after a kill in between and later changes of the
// name, what nobody was ever told to be there.
func (f *openFile) identify() {
	if err := f.buf.identify(&f.entry, f.path, f.writer); err != nil {
		f.buf.d.log.Warn("noting whose a file is: it cannot be put back if the namespace forgets it", "path", f.path, "err", err)
	}
}

// superseded gives the generation up if err says that another node's is the file's.
func (f *openFile) superseded(err error) error {
	if errors.Is(err, errSuperseded) && !f.passed {
		if err := f.buf.d.store.Void(f.file, f.generation); err != nil {
			f.buf.d.log.Warn("giving up a generation", "path", f.path, "err", err)
		}
		f.passed = true
		f.retire()
	}
	return err
}

// put stores the entry, whether or not the namespace has it. It is carried through
// although the client may be gone: a change whose outcome nobody learnt would leave
// the daemon with another idea of the file than the namespace's.
func (f *openFile) put(ctx context.Context, e bb.Entry) error {
	if err := ctx.Err(); err != nil {
		return bb.Wrap("commit", f.path, err)
	}
	ctx = f.buf.d.ctx
	e.Parent, e.Name = f.at.Dir, f.at.Name
	var err error
	if !f.exists {
		e.Revision, err = f.buf.ns.Create(ctx, e)
		f.exists = bb.KindOf(err) == bb.Exists && f.buf.made(ctx, &e)
		if bb.KindOf(err) == bb.Exists && !f.exists && f.buf.d.cluster != nil && !f.exclusive {
			return errSuperseded
		}
	}
	if f.exists {
		e, err = f.buf.update(ctx, e, f.old, f.published.Load())
	}
	if bb.KindOf(err) == bb.NotFound && f.buf.d.cluster != nil {
		if err = f.taken(ctx, err); bb.KindOf(err) == bb.NotFound {
			f.giveUp()
		}
	}
	if err != nil {
		return bb.Wrap("commit", f.path, err)
	}
	f.entry, f.exists = e, true
	return nil
}

// taken returns notFound if another node has removed or replaced the file, taken it over, or
// named it lost. A namespace that has no entry of it, and no mark of a removal, has
// forgotten it: what was acknowledged stays in memory, and lookForForgotten makes the entry
// again.
func (f *openFile) taken(ctx context.Context, notFound error) error {
	e, err := f.buf.ns.LookupAgain(ctx, f.at.Dir, f.at.Name)
	var removed bool
	switch {
	case err == nil:
		removed = e.File != f.file || e.Generation != f.generation || e.Lost || f.buf.owners.Foreign(&e)
	case bb.KindOf(err) == bb.NotFound:
		removed, err = f.buf.ns.Removed(ctx, f.at.Dir, f.at.Name, f.file, f.entry.Revision)
	}
	if err != nil || removed {
		return cmp.Or(err, notFound)
	}
	return bb.E(bb.Unavailable, "commit", f.path, "the namespace has forgotten the file, which is kept, and put back").
		WithRemedy("try again in a while; bbctl status names what is not put back")
}

// giveUp takes a file out of the open ones that another node has removed, replaced, or
// taken over after this one was declared dead.
func (f *openFile) giveUp() {
	f.removed = true
	f.retire()
	f.buf.d.store.DropGeneration(f.file, f.generation)
}

// close commits extents and takes one writer away; the last one closes the
// generation. A close that fails may be repeated.
func (f *openFile) close(ctx context.Context, id dedup.ID, extents []store.NewExtent, mtime time.Time) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable("close"); err != nil {
		return 0, err // the handle stays open until it is aborted
	}
	if len(extents) > 0 || !f.exists || f.fresh { // a file that was truncated is empty now
		if err := f.recordOnce(ctx, id, extents); err != nil {
			return 0, err
		}
		f.entry.MTime = mtime
	}
	if f.writers > 1 {
		if f.committed {
			if err := f.publish(ctx); err != nil {
				return 0, err
			}
		}
		f.writers--
		return f.size(), nil
	}
	if err := f.finish(ctx); err != nil {
		return 0, err
	}
	f.writers--
	return f.entry.Size, nil
}

// abandon takes a writer away who has not closed: what it committed stays, the rest
// was never part of the file.
func (f *openFile) abandon(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leave()
	if f.writers > 0 || f.gone {
		return
	}
	f.finishForNobody(ctx)
}

// Pauses of finishLater.
const (
	finishPause    = time.Second
	maxFinishPause = time.Minute
)

// finishForNobody finishes a file that has no writer, whom its failure could be answered to:
// it is done again until it succeeds, somebody writes the file, or the daemon ends. f is locked.
func (f *openFile) finishForNobody(ctx context.Context) {
	err := f.finish(ctx)
	if err == nil || f.finishing || f.gone || f.buf.d.ctx.Err() != nil {
		return
	}
	d := f.buf.d
	d.log.Warn("closing a file that nobody writes any more; it is tried again", "buffer", f.buf.name, "path", f.path, "err", err)
	f.finishing = true
	d.wg.Go(f.finishLater)
}

// finishLater owns the retries of finishForNobody.
func (f *openFile) finishLater() {
	d := f.buf.d
	for pause := finishPause; ; pause = min(2*pause, maxFinishPause) {
		select {
		case <-time.After(pause):
		case <-d.ctx.Done():
			return
		}
		if f.finishAgain(d.ctx) {
			return
		}
	}
}

// finishAgain reports whether nothing is left to do.
func (f *openFile) finishAgain(ctx context.Context) (done bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.gone && f.writers == 0 {
		err := f.finish(ctx)
		if err != nil && !f.gone {
			f.buf.d.log.Debug("closing a file that nobody writes any more", "buffer", f.buf.name, "path", f.path, "err", err)
			return false
		}
	}
	f.finishing = false
	return true
}

func (f *openFile) leave() {
	if f.writers--; f.writers <= 0 && f.removed {
		f.retire()
	}
}

func (f *openFile) size() int64 {
	n, err := f.buf.d.store.Size(f.file, f.generation)
	if err != nil {
		return 0 // nothing of this generation was committed
	}
	return n
}

// finish closes the generation: one put, and the file is immutable.
func (f *openFile) finish(ctx context.Context) error {
	if f.gone {
		return nil
	}
	if !f.committed && !f.published.Load() {
		f.retire() // nothing was written: the file, if there is one, stays as it was
		return nil
	}
	d := f.buf.d
	if err := f.record(ctx, nil); err != nil { // an exclusive create that nothing was written to
		return err
	}
	sum, size, err := f.checksum(ctx)
	if err != nil {
		return bb.Wrap("close", f.path, err)
	}
	e := f.entry
	e.Open, e.Generation, e.Checksum, e.Size, e.Lost, e.Reason = false, f.generation, sum, size, false, ""
	if f.flushed != nil {
		e.SetFlushed(*f.flushed)
	}
	if err := f.put(ctx, e); err != nil {
		return f.superseded(err)
	}
	if f.flushed == nil {
		f.identify()
	}
	f.published.Store(true)
	if err := d.store.Seal(f.file, f.generation); err != nil {
		return bb.Wrap("close", f.path, err)
	}
	if f.old != 0 {
		f.buf.dropOld(f.file, f.old, f.was, f.wasReplica)
	}
	if f.flushed != nil {
		f.retire()
		return d.store.MarkClean(f.file, f.generation)
	}
	// Queued before it is retired: at no moment it is neither, and missed by a drain.
	f.buf.closed(f.entry, f.path)
	f.buf.usedFrom(f.file, f.near)
	f.buf.dirty.Change(f.file, f.second.Closed)
	f.retire()
	return nil
}

// checksum returns that of the whole generation and its size. Where evicted bytes were
// partly overwritten, it needs what is left of them: they are read from the store's
// copy of the generation that this one builds on.
func (f *openFile) checksum(ctx context.Context) (sum uint64, size int64, err error) {
	s := f.buf.d.store
	sum, size, err = s.Checksum(f.file, f.generation)
	if bb.KindOf(err) != bb.Unavailable {
		return sum, size, err
	}
	snap, err := s.Snapshot(f.file, f.generation)
	if err != nil {
		return 0, 0, err
	}
	defer snap.Close()
	e := f.entry
	e.Parent, e.Name = f.at.Dir, f.at.Name
	view := f.buf.cache.View(&e, snap)
	defer view.Close()
	from := int64(-1)
	for _, x := range readcache.EvictedOf(snap.Extents(0, snap.Size(), 0)) {
		if x.Length == x.WholeLength || x.FileOffset-x.Cut == from {
			continue // another piece of the same
		}
		from = x.FileOffset - x.Cut
		whole, err := view.BypassWhole(ctx, &x)
		if err == nil {
			err = s.Trim(f.file, f.generation, from, whole)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return s.Checksum(f.file, f.generation)
}

// linger takes a writer away that may come back, as recovery does: if it does not in
// time, the file is closed with what was committed.
func (f *openFile) linger() {
	f.mu.Lock()
	f.leave()
	waits := f.writers <= 0 && !f.gone
	f.lingers = f.lingers || waits
	f.mu.Unlock()
	if waits {
		f.expireLater()
	}
}

// retire takes the file out of the open ones.
func (f *openFile) retire() {
	if !f.gone {
		close(f.ended)
	}
	f.gone = true
	f.buf.open.forget(f)
}

// openWrite opens a file for writing: joins those who write it, or begins a new
// generation.
func (b *buffer) openWrite(ctx context.Context, c access.Caller, o openOptions) (*openFile, error) {
	dir, name, err := b.paths.Parent(ctx, c, "open", o.path)
	if err == nil {
		err = b.paths.MayChange("open", o.path)
	}
	if err != nil {
		return nil, err
	}
	if o.create && o.exclusive { // which is acknowledged now, not with a commit
		if err := b.gate.Enter(ctx, "create"); err != nil {
			return nil, err
		}
		defer b.gate.Leave()
	}
	at := bb.Place{Dir: dir.ID, Name: name}
	for {
		f, made := b.openAt(at, o.path)
		if made {
			if err := b.begin(ctx, c, f, dir, o); err != nil {
				f.retire()
				f.mu.Unlock()
				return nil, err
			}
			f.writers = 1
			f.mu.Unlock()
			return f, nil
		}
		again, err := b.joinOpen(ctx, c, f, o)
		if err != nil {
			return nil, err
		}
		if !again {
			return f, nil
		}
	}
}

// joinOpen joins a file that others write; again means that it was closed meanwhile.
func (b *buffer) joinOpen(ctx context.Context, c access.Caller, f *openFile, o openOptions) (again bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.truncate = o.replaces(f.old) && (o.resumeGeneration == 0 || !f.committed)
	switch {
	case f.gone:
		return true, nil
	case o.create && o.exclusive:
		return false, bb.E(bb.Exists, "create", o.path, "the file is being written")
	case !c.Permits(f.entry.UID, f.entry.GID, f.entry.Mode, access.Write):
		return false, access.Denied("open", o.path, "write it")
	case o.fence:
		// Its writers may come back: the generation that follows has another number than theirs.
		return true, f.finish(ctx)
	case f.writers == 0 && (!f.lingers || o.truncate && f.committed):
		// Its writers are gone, and nobody has come back for it: that generation ends here. A writer at another
		// node that may come back keeps it open, unless what that one has committed is to be replaced.
		return true, f.finish(ctx)
	case o.truncate && f.committed:
		return false, bb.E(bb.Busy, "open", o.path, "others are writing the file: it cannot be truncated").
			WithRemedy("open it without truncating, or when they have closed it")
	}
	if o.truncate && f.exists {
		f.base, f.fresh = 0, true
	}
	f.writers++
	return false, nil
}

// openAt returns the file that is open at a place, or a new one, locked, which the
// caller begins or retires.
func (b *buffer) openAt(at bb.Place, path string) (f *openFile, made bool) {
	if f := b.open.at(at); f != nil {
		return f, false
	}
	f = &openFile{buf: b, at: at, path: path, ending: ending{ended: make(chan struct{})}, clients: make(map[*rpc.Session]int)}
	f.mu.Lock()
	if other := b.open.add(f); other != nil {
		f.mu.Unlock()
		return other, false
	}
	return f, true
}

// begin looks the file up and starts a generation of it. f is locked.
func (b *buffer) begin(ctx context.Context, c access.Caller, f *openFile, dir paths.Dir, o openOptions) error {
	e, err := b.ns.Lookup(ctx, f.at.Dir, f.at.Name)
	switch bb.KindOf(err) {
	case bb.NotFound:
		if !o.create {
			return bb.Wrap("open", o.path, err)
		}
		return b.beginNew(ctx, c, f, dir, o)
	default:
		if err != nil {
			return bb.Wrap("open", o.path, err)
		}
	}
	switch {
	case e.IsDir():
		return bb.E(bb.IsDirectory, "open", o.path, "a directory cannot be written")
	case o.create && o.exclusive:
		return bb.E(bb.Exists, "create", o.path, "the file exists")
	case !c.Permits(e.UID, e.GID, e.Mode, access.Write):
		return access.Denied("open", o.path, "write it")
	case e.Lost && !o.truncate:
		return lost("open", o.path, &e)
	case b.owners.Foreign(&e) && !(owner.Adoptable(&e) && (o.adopt || o.truncate)):
		return &elsewhereError{b.owners.Of(&e), owner.Adoptable(&e)}
	}
	f.entry, f.exists, f.writer = e, true, o.writer
	f.file, f.old, f.base, f.fresh = e.File, e.Generation, e.Generation, o.replaces(e.Generation) || e.Lost
	if f.generation, err = b.d.generationAfter(ctx, e.Generation); err != nil {
		return err
	}
	f.was, f.wasReplica = b.owners.Of(&e), owner.Replica(&e)
	f.entry.Holders = []bb.NodeID{b.d.cfg.Node}
	if f.fresh {
		f.base = 0
	} else if err := b.cache.Base(ctx, &e, o.path); err != nil {
		return err
	}
	b.open.begun(f)
	return nil
}

func (b *buffer) beginNew(ctx context.Context, c access.Caller, f *openFile, dir paths.Dir, o openOptions) error {
	if !dir.Permits(&c, access.Write|access.Execute) {
		return access.Denied("create", o.path, "write the directory")
	}
	if b.d.draining.Active() && b.d.cluster != nil && !c.Relayed {
		if nodes := b.d.cluster.Candidates(0, ""); len(nodes) > 0 {
			return &elsewhereError{node: nodes[0]}
		}
	}
	f.file, f.generation, f.exclusive = bb.FileID(b.d.nextID()), bb.Generation(b.d.nextID()), o.exclusive
	f.writer = o.writer
	f.entry = bb.Entry{
		Parent: f.at.Dir, Name: f.at.Name, Type: bb.TypeFile, File: f.file,
		Holders: []bb.NodeID{b.d.cfg.Node}, Mode: o.mode, UID: c.UID, GID: c.GIDs[0], MTime: time.Now(),
	}
	b.open.begun(f)
	if !o.exclusive {
		return nil
	}
	// Exclusive: the namespace decides who made it, now.
	if err := f.record(ctx, nil); err != nil {
		return err
	}
	return f.publish(ctx)
}

// resume finds the generation that a client was writing when its connection broke.
// Nil and no error: it was closed, nothing is left to do.
func (b *buffer) resume(ctx context.Context, c access.Caller, o openOptions) (*openFile, *bb.Entry, error) {
	f := b.open.of(o.resumeFile)
	if f != nil && f.generation == o.resumeGeneration && f.join() {
		if c.Permits(f.entry.UID, f.entry.GID, f.entry.Mode, access.Write) {
			return f, nil, nil
		}
		f.abandon(ctx)
		return nil, nil, access.Denied("open", o.path, "write it")
	}
	e, err := b.paths.Lookup(ctx, c, "open", o.path)
	if err == nil && e.File == o.resumeFile && e.Generation == o.resumeGeneration && !e.Open {
		if e.Lost { // its writer still takes it for synced
			return nil, nil, lost("open", o.path, &e)
		}
		return nil, &e, nil
	}
	if err == nil && b.owners.Foreign(&e) && e.File == o.resumeFile {
		return nil, nil, &elsewhereError{node: b.owners.Of(&e)}
	}
	if !o.resumeCommitted {
		f, err := b.openWrite(ctx, c, o)
		return f, nil, err
	}
	return nil, nil, bb.E(bb.Lost, "open", o.path, "the generation that was being written is not there any more")
}

// openOptions say how a file is opened.
type openOptions struct {
	path                        string // clean
	create, exclusive, truncate bool
	mode                        fs.FileMode
	resumeFile                  bb.FileID
	resumeGeneration            bb.Generation
	resumeCommitted             bool
	fence                       bool // end the generation that others write, and begin one that they cannot
	adopt                       bool // a clean file of a node that does not answer is written here
	writer                      string
}

// replaces reports whether the open begins from nothing where a file has the content of a generation, 0 if
// none. One that is repeated, since the owner has forgotten the generation of which nothing was committed,
// replaces what that one was to replace. Content that came later is that of others who wrote the file with it:
// it stays, and so do bytes that they have been told are safe.
func (o *openOptions) replaces(n bb.Generation) bool {
	return o.truncate && (o.resumeGeneration == 0 || n < o.resumeGeneration)
}

// stage records extents without showing them to anybody before the close. It is for
// content that comes piece by piece from a store.
func (f *openFile) stage(ctx context.Context, extents []store.NewExtent) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.usable("stage-in"); err != nil {
		return err
	}
	return f.record(ctx, extents)
}

// stagedSize is how much has been staged.
func (f *openFile) stagedSize() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size()
}

// setFlushed says that the store has the content already: the file is clean when it is closed.
func (f *openFile) setFlushed(flushed bb.Flushed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	flushed.Generation = f.generation
	f.flushed = &flushed
}

// cancel gives a generation up that was staged and not published.
func (f *openFile) cancel(ctx context.Context) {
	f.mu.Lock()
	unpublished := !f.published.Load() && f.writers <= 1 && !f.gone
	if unpublished {
		if err := f.buf.d.store.Void(f.file, f.generation); err != nil {
			f.buf.d.log.Warn("giving up a generation", "path", f.path, "err", err)
		}
		f.writers = 0
		f.retire()
	}
	f.mu.Unlock()
	if !unpublished {
		f.abandon(ctx)
	}
}
