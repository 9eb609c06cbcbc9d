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
	"forebay/flusher/backing/asuser/protocol"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// User is the user with whose rights a store is reached.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// Store is a directory that is reached as a user.
type Store struct {
	w       *Workers
	key     key
	owner   backing.Owner
	layouts []lustre.Rule
	mark    string
	told    lustre.Told // of all its workers, which end when they are idle

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

// Close need not end the worker, since it ends by itself when it has been idle.
func (s *Store) Close() error {
	s.w.forget(s)
	return nil
}

// forget closes a store at its worker.
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

// each calls fn with a worker that has the store open. If that worker is confined to a directory
// that is not there any more, it calls fn again with a new one.
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
			w.p.drain(w)
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

// openStore returns the number of a store at its worker.
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
		if bb.KindOf(o.err) == bb.Cancelled && ctx.Err() == nil { // of the request that opened it
			return w.openStore(ctx, s)
		}
		return o.id, o.err
	case <-ctx.Done():
		return 0, bb.Wrap("open backing", s.key.dir, ctx.Err())
	}
}

func (w *worker) openNow(ctx context.Context, s *Store) (uint64, error) {
	options, err := json.Marshal(protocol.OpenOptions{
		Root: []byte(s.Identity()), Instance: s.owner.Instance, Life: s.owner.Life, Layouts: s.layouts, Mark: s.mark,
	})
	if err != nil {
		return 0, err
	}
	m := &protocol.Message{Op: protocol.OpOpen, Slot: protocol.NoSlot, Text: string(options)}
	reply, err := w.ask(ctx, m, s.key.dir, w.drop)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == "" {
		s.root = reply.Text
	}
	return reply.Store, nil
}

// ask is call for a request with errors that are about a name.
func (w *worker) ask(ctx context.Context, m *protocol.Message, name string, late func(*protocol.Message)) (*protocol.Message, error) {
	call := w.call
	if m.Op == protocol.OpCommit || m.Has(protocol.FlagCommit) {
		call = w.finalCall
	}
	reply, err := call(ctx, m, late)
	if err != nil {
		return nil, bb.Wrap(m.Op.String(), name, err)
	}
	return reply, result(reply)
}

// result returns the error of a reply.
func result(m *protocol.Message) error {
	err := m.Failure()
	if err != nil && m.Has(protocol.FlagMoved) {
		return &movedError{err}
	}
	return err
}

// simple carries out a request whose reply holds all there is.
func (s *Store) simple(ctx context.Context, m protocol.Message) (reply *protocol.Message, err error) {
	err = s.each(ctx, func(w *worker, store uint64) (err error) {
		one := m
		one.Store, one.Slot = store, protocol.NoSlot
		reply, err = w.ask(ctx, &one, m.Name, w.drop)
		return err
	})
	return reply, err
}

func (s *Store) change(ctx context.Context, m protocol.Message) error {
	_, err := s.simple(ctx, m)
	return err
}

// Stat describes a file.
func (s *Store) Stat(ctx context.Context, name string) (backing.Object, error) {
	if err := backing.CheckName("stat", name); err != nil {
		return backing.Object{}, err
	}
	reply, err := s.simple(ctx, protocol.Message{Op: protocol.OpStat, Name: name})
	if err != nil {
		return backing.Object{}, err
	}
	i, err := reply.One()
	if err != nil {
		return backing.Object{}, bb.Wrap("stat", name, err)
	}
	o := i.Object()
	o.Name = name
	return o, nil
}

// Rename moves a file or a tree.
func (s *Store) Rename(ctx context.Context, old, newName string) error {
	if err := errors.Join(backing.CheckName("rename", old), backing.CheckName("rename", newName)); err != nil {
		return err
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpRename, Name: old, Text: newName})
}

// Remove removes a file.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpRemove, Name: name})
}

// RemoveIf removes a file if it is a version.
func (s *Store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpRemoveIf, Name: name, Items: []protocol.Item{protocol.ItemOfVersion(is), {}}})
}

// RenameIf moves a file if it is a version, to a name that has nothing or another one.
func (s *Store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpRenameIf, Name: old, Text: newName, Items: []protocol.Item{protocol.ItemOfVersion(is), protocol.ItemOfVersion(replaces)}})
}

// RemoveTree removes a file or directory and all below it.
func (s *Store) RemoveTree(ctx context.Context, name string) error {
	if name != "" {
		if err := backing.CheckName("remove tree", name); err != nil {
			return err
		}
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpRemoveTree, Name: name})
}

// RemoveDir removes an empty directory.
func (s *Store) RemoveDir(ctx context.Context, name string) error {
	if err := backing.CheckName("remove directory", name); err != nil {
		return err
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpRemoveDir, Name: name})
}

// MakeDir makes a directory, which belongs to the user.
func (s *Store) MakeDir(ctx context.Context, name string, opts backing.DirOptions) error {
	if err := backing.CheckName("make directory", name); err != nil {
		return err
	}
	m := protocol.Message{Op: protocol.OpMakeDir, Name: name, Attrs: opts.Attrs, Flags: protocol.FlagAttrs}
	if opts.Holds {
		m.Flags |= protocol.FlagHolds
	}
	if opts.Keep {
		m.Flags |= protocol.FlagKeep
	}
	return s.change(ctx, m)
}

// SetMode changes a file's mode.
func (s *Store) SetMode(ctx context.Context, name string, attrs backing.Attrs) error {
	if err := backing.CheckName("change mode", name); err != nil {
		return err
	}
	return s.change(ctx, protocol.Message{Op: protocol.OpSetMode, Name: name, Attrs: attrs, Flags: protocol.FlagAttrs})
}

// Check writes, syncs, reads back and removes a small file.
func (s *Store) Check(ctx context.Context) error {
	return s.change(ctx, protocol.Message{Op: protocol.OpCheck})
}

// List calls fn with the files below a prefix.
func (s *Store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	belongs := func(name string) bool { return strings.HasPrefix(name, prefix) && below("", name) }
	return s.list(ctx, protocol.Message{Op: protocol.OpList, Name: prefix}, belongs, func(i *protocol.Item) error { return fn(i.Object()) })
}

// Others calls fn with each entry below a directory that is no file.
func (s *Store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	if dir != "" {
		if err := backing.CheckName("list", dir); err != nil {
			return err
		}
	}
	belongs := func(name string) bool { return name == dir || dir == "" && name == "." || below(dir, name) }
	return s.list(ctx, protocol.Message{Op: protocol.OpOthers, Name: dir}, belongs, func(i *protocol.Item) error {
		o := i.Other()
		if err := o.Xattrs.Check(); err != nil {
			return bb.Wrap(protocol.OpOthers.String(), o.Name, err)
		}
		return fn(o)
	})
}

// list calls fn with each item of a listing, of which it requests one page after the other. An item
// that does not belong there ends it, since workers are not trusted.
func (s *Store) list(ctx context.Context, m protocol.Message, belongs func(name string) bool, fn func(*protocol.Item) error) error {
	return s.each(ctx, func(w *worker, store uint64) error {
		ask := m
		ask.Store, ask.Slot = store, protocol.NoSlot
		for {
			reply, err := w.ask(ctx, &ask, m.Name, w.drop)
			if reply == nil {
				w.close(ask.Handle)
				return err
			}
			for i := range reply.Items {
				stopped := error(nil)
				if name := reply.Items[i].Name; !belongs(name) {
					stopped = bb.E(bb.Internal, m.Op.String(), m.Name, "the store worker listed "+bb.Printable(name))
				} else {
					stopped = fn(&reply.Items[i])
				}
				if stopped != nil {
					w.close(reply.Handle)
					return stopped
				}
			}
			if err != nil || reply.Handle == 0 {
				return err
			}
			ask = protocol.Message{Op: protocol.OpNext, Handle: reply.Handle, Slot: protocol.NoSlot}
		}
	})
}

// below reports whether a name lies in a directory. "" is the root.
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

// Leftovers looks for temporary files. Only this side has the list of ended daemons.
func (s *Store) Leftovers(ctx context.Context, in backing.Within) (found []backing.Leftover, err error) {
	if in.Dir != "" {
		if err := backing.CheckName("sweep", in.Dir); err != nil {
			return nil, err
		}
	}
	m := protocol.Message{Op: protocol.OpTemps, Name: in.Dir}
	if in.Deep {
		m.Flags |= protocol.FlagDeep
	}
	belongs := func(name string) bool { return backing.IsTemp(name) && below(in.Dir, name) }
	err = s.list(ctx, m, belongs, func(i *protocol.Item) error {
		found = append(found, backing.Leftover{
			Name: i.Name, Size: i.Size, Instance: backing.InstanceOf(i.Name), Ended: s.owner.Ended(i.Name),
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
		reply, err := s.simple(ctx, protocol.Message{Op: protocol.OpDiscard, Names: names})
		if reply != nil {
			for _, i := range which {
				found[i].Removed = slices.Contains(reply.Names, found[i].Name)
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
		if size += len(found[i].Name) + 8; size > protocol.MaxPage {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// parallel is how many pieces of a large file are on their way at a time.
const parallel = protocol.WriteSlots

// Put writes a file. The bytes go through slots, and their checksum is taken on the way.
func (s *Store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (o backing.Object, err error) {
	if err := backing.CheckName("put", name); err != nil {
		return backing.Object{}, err
	}
	err = s.each(ctx, func(w *worker, store uint64) error {
		p := put{w: w, name: name, src: src, opts: &opts}
		o, err = p.run(ctx, store)
		p.end()
		if s.told.First(p.fewer) {
			s.w.o.Logger.Warn(p.fewer, "uid", s.key.uid, "directory", s.key.dir)
		}
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
	fewer  string        // see posix.Pending
}

// end removes a file that did not get its name.
func (p *put) end() { p.w.close(p.handle.Load()) }

// begun takes the handle from a reply that came in time, or too late.
func (p *put) begun(reply *protocol.Message) { p.handle.Store(reply.Handle) }

func (p *put) run(ctx context.Context, store uint64) (backing.Object, error) {
	m := &protocol.Message{Op: protocol.OpPut, Store: store, Slot: protocol.NoSlot, Name: p.name, N: p.src.Size(), Text: p.opts.Replaces}
	if p.opts.Keep {
		m.Flags |= protocol.FlagKeep
	}
	if p.opts.Attrs != nil {
		m.Flags |= protocol.FlagAttrs
		m.Attrs = *p.opts.Attrs
	}
	if m.N > protocol.SlotSize {
		return p.inParts(ctx, m)
	}
	m.Flags |= protocol.FlagWhole
	if p.opts.Last == nil {
		m.Flags |= protocol.FlagCommit
	}
	reply, sum, err := p.send(ctx, m, 0, m.N, p.w.drop)
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
func (p *put) inParts(ctx context.Context, m *protocol.Message) (backing.Object, error) {
	size := m.N
	reply, err := p.w.ask(ctx, m, p.name, p.w.drop)
	if err != nil {
		return backing.Object{}, err
	}
	p.begun(reply)
	part := int64(protocol.SlotSize)
	if reply.N > 0 && reply.N < part {
		part = reply.N
	}
	sum, err := backing.InParts(ctx, size, part, parallel, func(ctx context.Context, _ int, off, n int64) (uint64, error) {
		part := &protocol.Message{Op: protocol.OpWrite, Handle: reply.Handle, Off: off, N: n}
		_, sum, err := p.send(ctx, part, off, n, p.w.drop)
		return sum, err
	})
	if err == nil {
		err = backing.CheckSource(p.name, p.src, sum)
	}
	if err != nil {
		return backing.Object{}, bb.Wrap("put", p.name, err)
	}
	finish := &protocol.Message{Op: protocol.OpFinish, Handle: reply.Handle, Slot: protocol.NoSlot}
	if p.opts.Last == nil {
		finish.Flags = protocol.FlagCommit
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
	reply, err := p.w.ask(ctx, &protocol.Message{Op: protocol.OpCommit, Handle: p.handle.Load(), Slot: protocol.NoSlot}, p.name, p.w.drop)
	if err != nil {
		return backing.Object{}, err
	}
	p.handle.Store(0)
	return p.object(reply)
}

func (p *put) object(reply *protocol.Message) (backing.Object, error) {
	i, err := reply.One()
	if err != nil {
		return backing.Object{}, bb.Wrap("put", p.name, err)
	}
	o := i.Object()
	if !lustre.IsText(o.Layout) {
		o.Layout = ""
	}
	if lustre.IsText(reply.Text) {
		p.fewer = reply.Text
	}
	return o, nil
}

// send sends a range of the source with a request, and returns its checksum. The bytes of a whole
// file are compared with their checksum before the request.
func (p *put) send(ctx context.Context, m *protocol.Message, off, n int64, late func(*protocol.Message)) (reply *protocol.Message, sum uint64, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, bb.Wrap("put", p.name, err)
	}
	pieces, err := backing.Pieces(p.name, p.src, nil, off, n)
	if err != nil {
		return nil, 0, err
	}
	from := p.w.writes
	if m.Has(protocol.FlagWhole) && n <= protocol.SmallSize {
		from = p.w.smalls
	}
	if m.Slot, err = from.take(ctx, p.w.gone); err != nil {
		return nil, 0, bb.Wrap("put", p.name, p.w.why(err))
	}
	slot := m.Slot
	if sum, err = gather(p.name, protocol.InSlot(p.w.mem, slot, n), pieces); err == nil && m.Has(protocol.FlagWhole) {
		err = backing.CheckSource(p.name, p.src, sum)
	}
	if err != nil {
		from.give(slot)
		return nil, 0, err
	}
	reply, err = p.w.ask(ctx, m, p.name, func(reply *protocol.Message) {
		from.give(slot)
		late(reply)
	})
	if reply != nil {
		from.give(slot)
	}
	return reply, sum, err
}

// why returns the reason why a call to a worker that is gone failed.
func (w *worker) why(err error) error {
	if errors.Is(err, errGone) {
		return w.goneError(&protocol.Message{Op: protocol.OpPut})
	}
	return err
}
