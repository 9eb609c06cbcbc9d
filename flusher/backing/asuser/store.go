package asuser

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// User is whose rights a store is reached with.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Store is a directory that is reached as a user.
type Store struct {
	w       *Workers
	key     key
	owner   backing.Owner
	layouts []lustre.Layout
	mark    string

	mu   sync.Mutex
	root string // its identity
}

var _ backing.Store = (*Store)(nil)

// Open returns the store of an existing directory, of which opts.Owner, Root, Layouts and Mark count.
// Every call ends soon after its context does.
func Open(ctx context.Context, w *Workers, u User, dir string, opts posix.Options) (*Store, error) {
	s := &Store{w: w, key: key{u.UID, u.GID, dir}, owner: opts.Owner, layouts: opts.Layouts, mark: opts.Mark, root: opts.Root}
	return s, s.each(ctx, func(*worker, uint64) error { return nil })
}

// Identity returns which directory the store's root is, as posix.Identify does.
func (s *Store) Identity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.root
}

// Close forgets nothing that matters: the worker ends when it has been idle.
func (s *Store) Close() error {
	s.w.forget(s)
	return nil
}

// forget has the worker of a store not keep it.
func (w *Workers) forget(s *Store) {
	w.mu.Lock()
	p := w.pools[s.key]
	w.mu.Unlock()
	if p == nil {
		return
	}
	p.mu.Lock()
	one := p.current
	p.mu.Unlock()
	if one == nil {
		return
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	delete(one.open, s)
}

// each calls fn with a worker that has the store open, and again with a new one if the first is
// confined to a directory that is not there any more.
func (s *Store) each(ctx context.Context, fn func(w *worker, store uint64) error) error {
	for again := true; ; again = false {
		w, err := s.w.get(ctx, s.key)
		if err != nil {
			return err
		}
		id, err := w.openStore(ctx, s)
		if err == nil {
			err = fn(w, id)
		}
		if moved := (*movedError)(nil); errors.As(err, &moved) {
			w.p.retire(w)
			w.conn.Close()
			if again {
				w.release()
				continue
			}
			err = moved.err
		}
		w.release()
		return err
	}
}

// movedError is the error of a reply with flagMoved.
type movedError struct{ err error }

func (e *movedError) Error() string { return e.err.Error() }

// openStore returns the number that a worker knows a store by.
func (w *worker) openStore(ctx context.Context, s *Store) (uint64, error) {
	w.mu.Lock()
	o := w.open[s]
	if o == nil {
		o = &opened{done: make(chan struct{})}
		w.open[s] = o
		w.mu.Unlock()
		o.id, o.err = w.openNow(ctx, s)
		if o.err != nil {
			w.mu.Lock()
			delete(w.open, s)
			w.mu.Unlock()
		}
		close(o.done)
		return o.id, o.err
	}
	w.mu.Unlock()
	select {
	case <-o.done:
		if bb.KindOf(o.err) == bb.Cancelled && ctx.Err() == nil { // of whoever opened it
			return w.openStore(ctx, s)
		}
		return o.id, o.err
	case <-ctx.Done():
		return 0, bb.Wrap("open backing", s.key.dir, ctx.Err())
	}
}

func (w *worker) openNow(ctx context.Context, s *Store) (uint64, error) {
	options, err := json.Marshal(openOptions{
		Root: []byte(s.Identity()), Instance: s.owner.Instance, Life: s.owner.Life, Layouts: s.layouts, Mark: s.mark,
	})
	if err != nil {
		return 0, err
	}
	m := &message{op: opOpen, slot: noSlot, text: string(options)}
	reply, err := w.ask(ctx, m, s.key.dir, w.drop)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" {
		s.root = reply.text
	}
	return reply.store, nil
}

// ask is call for a request whose failure is an error about a name.
func (w *worker) ask(ctx context.Context, m *message, name string, late func(*message)) (*message, error) {
	call := w.call
	if m.op == opCommit || m.has(flagCommit) {
		call = w.finalCall
	}
	reply, err := call(ctx, m, late)
	if err != nil {
		return nil, bb.Wrap(m.op.String(), name, err)
	}
	return reply, reply.result()
}

// result returns the error of a reply.
func (m *message) result() error {
	err := m.failure()
	if err != nil && m.has(flagMoved) {
		return &movedError{err}
	}
	return err
}

// simple carries out a request whose reply holds all there is.
func (s *Store) simple(ctx context.Context, m message) (reply *message, err error) {
	err = s.each(ctx, func(w *worker, store uint64) (err error) {
		one := m
		one.store, one.slot = store, noSlot
		reply, err = w.ask(ctx, &one, m.name, w.drop)
		return err
	})
	return reply, err
}

func (s *Store) change(ctx context.Context, m message) error {
	_, err := s.simple(ctx, m)
	return err
}

// Stat describes a file.
func (s *Store) Stat(ctx context.Context, name string) (backing.Object, error) {
	if err := backing.CheckName("stat", name); err != nil {
		return backing.Object{}, err
	}
	reply, err := s.simple(ctx, message{op: opStat, name: name})
	if err != nil {
		return backing.Object{}, err
	}
	i, err := reply.one()
	if err != nil {
		return backing.Object{}, bb.Wrap("stat", name, err)
	}
	o := i.object()
	o.Name = name
	return o, nil
}

// Rename moves a file or a tree.
func (s *Store) Rename(ctx context.Context, old, newName string) error {
	if err := errors.Join(backing.CheckName("rename", old), backing.CheckName("rename", newName)); err != nil {
		return err
	}
	return s.change(ctx, message{op: opRename, name: old, text: newName})
}

// Remove removes a file.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	return s.change(ctx, message{op: opRemove, name: name})
}

// RemoveIf removes a file if it is a version.
func (s *Store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	return s.change(ctx, message{op: opRemoveIf, name: name, items: []item{itemOfVersion(is), {}}})
}

// RenameIf moves a file if it is a version, to a name that has nothing or another one.
func (s *Store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	return s.change(ctx, message{op: opRenameIf, name: old, text: newName, items: []item{itemOfVersion(is), itemOfVersion(replaces)}})
}

// RemoveTree removes a file or directory and all below it.
func (s *Store) RemoveTree(ctx context.Context, name string) error {
	if name != "" {
		if err := backing.CheckName("remove tree", name); err != nil {
			return err
		}
	}
	return s.change(ctx, message{op: opRemoveTree, name: name})
}

// RemoveDir removes an empty directory.
func (s *Store) RemoveDir(ctx context.Context, name string) error {
	if err := backing.CheckName("remove directory", name); err != nil {
		return err
	}
	return s.change(ctx, message{op: opRemoveDir, name: name})
}

// MakeDir makes a directory, which belongs to the user.
func (s *Store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	if err := backing.CheckName("make directory", name); err != nil {
		return err
	}
	m := message{op: opMakeDir, name: name, attrs: opts.Attrs, flags: flagAttrs}
	if opts.Holds {
		m.flags |= flagHolds
	}
	if opts.Keep {
		m.flags |= flagKeep
	}
	return s.change(ctx, m)
}

// SetMode changes a file's mode.
func (s *Store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	if err := backing.CheckName("change mode", name); err != nil {
		return err
	}
	return s.change(ctx, message{op: opSetMode, name: name, attrs: attrs, flags: flagAttrs})
}

// Check writes, syncs, reads back and removes a small file.
func (s *Store) Check(ctx context.Context) error { return s.change(ctx, message{op: opCheck}) }

// List calls fn with the files below a prefix.
func (s *Store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	belongs := func(name string) bool { return strings.HasPrefix(name, prefix) && below("", name) }
	return s.list(ctx, message{op: opList, name: prefix}, belongs, func(i *item) error { return fn(i.object()) })
}

// Others calls fn with what is no file below a directory.
func (s *Store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	if dir != "" {
		if err := backing.CheckName("list", dir); err != nil {
			return err
		}
	}
	belongs := func(name string) bool { return name == dir || dir == "" && name == "." || below(dir, name) }
	return s.list(ctx, message{op: opOthers, name: dir}, belongs, func(i *item) error { return fn(i.other()) })
}

// list calls fn with each item of a listing, of which it asks for one page after the other. An
// item that does not belong there ends it: the worker is believed nothing.
func (s *Store) list(ctx context.Context, m message, belongs func(name string) bool, fn func(*item) error) error {
	return s.each(ctx, func(w *worker, store uint64) error {
		ask := m
		ask.store, ask.slot = store, noSlot
		for {
			reply, err := w.ask(ctx, &ask, m.name, w.drop)
			if reply == nil {
				w.close(ask.handle)
				return err
			}
			for i := range reply.items {
				stopped := error(nil)
				if name := reply.items[i].name; !belongs(name) {
					stopped = bb.E(bb.Internal, m.op.String(), m.name, "the store worker listed "+bb.Printable(name))
				} else {
					stopped = fn(&reply.items[i])
				}
				if stopped != nil {
					w.close(reply.handle)
					return stopped
				}
			}
			if err != nil || reply.handle == 0 {
				return err
			}
			ask = message{op: opNext, handle: reply.handle, slot: noSlot}
		}
	})
}

// below reports whether a name lies in a directory; "" is the root.
func below(dir, name string) bool {
	clean, err := bb.CleanPath(name)
	return err == nil && clean == name && name != "" && (dir == "" || strings.HasPrefix(name, dir+"/"))
}

// Sweep removes the temporary files of daemons that have ended, in the whole tree.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	found, err := s.Leftovers(ctx, backing.Within{Deep: true, Remove: true})
	removed := 0
	for i := range found {
		if found[i].Removed {
			removed++
		}
	}
	return removed, err
}

// Leftovers looks for temporary files. Which daemons have ended is known here alone.
func (s *Store) Leftovers(ctx context.Context, in backing.Within) (found []backing.Leftover, err error) {
	if in.Dir != "" {
		if err := backing.CheckName("sweep", in.Dir); err != nil {
			return nil, err
		}
	}
	m := message{op: opTemps, name: in.Dir}
	if in.Deep {
		m.flags |= flagDeep
	}
	belongs := func(name string) bool { return backing.IsTemp(name) && below(in.Dir, name) }
	err = s.list(ctx, m, belongs, func(i *item) error {
		found = append(found, backing.Leftover{
			Name: i.name, Size: i.size, Instance: backing.InstanceOf(i.name), Ended: s.owner.Ended(i.name),
		})
		return nil
	})
	if in.Remove {
		err = errors.Join(err, s.discard(ctx, found))
	}
	return found, err
}

// discard removes leftovers whose daemon has ended, some at a time.
func (s *Store) discard(ctx context.Context, found []backing.Leftover) error {
	var names []string
	var which []int
	size := 0
	flush := func() error {
		if len(names) == 0 {
			return nil
		}
		reply, err := s.simple(ctx, message{op: opDiscard, names: names})
		if reply != nil {
			for _, i := range which {
				found[i].Removed = slices.Contains(reply.names, found[i].Name)
			}
		}
		if err != nil {
			return err
		}
		names, which, size = nil, nil, 0
		return nil
	}
	for i := range found {
		if !found[i].Ended {
			continue
		}
		names, which = append(names, found[i].Name), append(which, i)
		if size += len(found[i].Name) + 8; size > maxPage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// parallel is how many pieces of a large file are on their way at a time.
const parallel = writeSlots

// Put writes a file. The bytes go through slots, and their checksum is taken on the way.
func (s *Store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (o backing.Object, err error) {
	if err := backing.CheckName("put", name); err != nil {
		return backing.Object{}, err
	}
	err = s.each(ctx, func(w *worker, store uint64) error {
		p := put{w: w, name: name, src: src, opts: &opts}
		o, err = p.run(ctx, store)
		p.end()
		return err
	})
	if err != nil {
		return backing.Object{}, err
	}
	o.Name, o.Checksum, o.HasChecksum = name, src.Checksum(), true
	return o, nil
}

// put is one Put by one worker.
type put struct {
	w      *worker
	name   string
	src    backing.Source
	opts   *backing.PutOptions
	handle atomic.Uint64 // of the file, as long as it has no name; 0: none
}

// end removes a file that did not get its name.
func (p *put) end() { p.w.close(p.handle.Load()) }

// begun takes the handle from a reply that came in time, or too late.
func (p *put) begun(reply *message) { p.handle.Store(reply.handle) }

func (p *put) run(ctx context.Context, store uint64) (backing.Object, error) {
	m := &message{op: opPut, store: store, slot: noSlot, name: p.name, n: p.src.Size(), text: p.opts.Replaces}
	if p.opts.Keep {
		m.flags |= flagKeep
	}
	if p.opts.Attrs != nil {
		m.flags |= flagAttrs
		m.attrs = *p.opts.Attrs
	}
	if m.n > slotSize {
		return p.inParts(ctx, m)
	}
	m.flags |= flagWhole
	if p.opts.Last == nil {
		m.flags |= flagCommit
	}
	reply, sum, err := p.send(ctx, m, 0, m.n, p.w.drop)
	if err == nil && sum != p.src.Checksum() {
		err = bb.E(bb.Internal, "put", p.name, "a file with another checksum was written")
	}
	if err != nil {
		return backing.Object{}, err
	}
	if p.opts.Last == nil {
		return p.object(reply)
	}
	p.begun(reply)
	return p.commit(ctx)
}

// inParts writes a file that is larger than a slot.
func (p *put) inParts(ctx context.Context, m *message) (backing.Object, error) {
	size := m.n
	reply, err := p.w.ask(ctx, m, p.name, p.w.drop)
	if err != nil {
		return backing.Object{}, err
	}
	p.begun(reply)
	sum, err := backing.InParts(ctx, size, slotSize, parallel, func(ctx context.Context, _ int, off, n int64) (uint64, error) {
		part := &message{op: opWrite, handle: reply.handle, off: off, n: n}
		_, sum, err := p.send(ctx, part, off, n, p.w.drop)
		return sum, err
	})
	if err == nil {
		err = backing.CheckSource(p.name, p.src, sum)
	}
	if err != nil {
		return backing.Object{}, bb.Wrap("put", p.name, err)
	}
	finish := &message{op: opFinish, handle: reply.handle, slot: noSlot}
	if p.opts.Last == nil {
		finish.flags = flagCommit
	}
	reply, err = p.w.ask(ctx, finish, p.name, p.w.drop)
	if err != nil {
		return backing.Object{}, err
	}
	if p.opts.Last == nil {
		p.handle.Store(0)
		return p.object(reply)
	}
	return p.commit(ctx)
}

// commit gives a file that is finished its name.
func (p *put) commit(ctx context.Context) (backing.Object, error) {
	if err := p.opts.LastStep(ctx); err != nil {
		return backing.Object{}, bb.Wrap("put", p.name, err)
	}
	reply, err := p.w.ask(ctx, &message{op: opCommit, handle: p.handle.Load(), slot: noSlot}, p.name, p.w.drop)
	if err != nil {
		return backing.Object{}, err
	}
	p.handle.Store(0)
	return p.object(reply)
}

func (p *put) object(reply *message) (backing.Object, error) {
	i, err := reply.one()
	if err != nil {
		return backing.Object{}, bb.Wrap("put", p.name, err)
	}
	return i.object(), nil
}

// send sends a range of the source with a request, and returns its checksum. The bytes of a whole
// file are compared with their checksum before the request.
func (p *put) send(ctx context.Context, m *message, off, n int64, late func(*message)) (reply *message, sum uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, bb.Wrap("put", p.name, err)
	}
	pieces, err := backing.Pieces(p.name, p.src, nil, off, n)
	if err != nil {
		return nil, 0, err
	}
	from := p.w.writes
	if m.has(flagWhole) && n <= smallSize {
		from = p.w.smalls
	}
	if m.slot, err = from.take(ctx, p.w.gone); err != nil {
		return nil, 0, bb.Wrap("put", p.name, p.w.why(err))
	}
	slot := m.slot
	if sum, err = gather(p.name, inSlot(p.w.mem, slot, n), pieces); err == nil && m.has(flagWhole) {
		err = backing.CheckSource(p.name, p.src, sum)
	}
	if err != nil {
		from.give(slot)
		return nil, 0, err
	}
	reply, err = p.w.ask(ctx, m, p.name, func(reply *message) {
		from.give(slot)
		late(reply)
	})
	if reply != nil {
		from.give(slot)
	}
	return reply, sum, err
}

// why names what a call to a worker that is gone failed by.
func (w *worker) why(err error) error {
	if errors.Is(err, errGone) {
		return w.goneError(&message{op: opPut})
	}
	return err
}
