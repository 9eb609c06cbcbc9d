// Package salvage reads the intact parts of a damaged log, and begins another one with them. It must never depend on the
// fate of the missing names.
package salvage

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
)

// Entries are the readable entries of a damaged log.
type Entries struct {
	Dirs     []bb.Entry // each after the one that it lies in, with their attributes alone
	Files    []bb.Entry // in these directories
	Specials []bb.Entry // symbolic links, FIFOs and sockets in these directories, which the log alone has
	Ops      []namespace.StoreOp
	Records  []Record
	Decided  []bb.Txn // transactions whose output has yet to get its place
	Replaces []bb.Txn // those of them whose replaced object may stay
}

// Record is a record of a transaction.
type Record struct {
	Key  string
	Data []byte
}

// Rules select the entries that are read.
type Rules struct {
	// Keep reports whether a file is, and may change its entry.
	Keep func(*bb.Entry) bool
	// Record reports whether a record of another package is stored again, and its new value. Of a transaction that
	// is not over it returns the transaction, too.
	Record func(key string, data []byte, revision uint64) (t *bb.Txn, again []byte, keep bool)
}

// Read returns the readable entries of a damaged log but the uncommitted ones of transactions: all directories,
// symbolic links, FIFOs and sockets, and those files that the rules select. Entries that an unreadable record
// removed are among them. Entries that such a record changed are as before.
//
// The operations that the store has yet to follow are among them. Since an unreadable record may have carried out
// each of them, only those are kept that compare the store's object with the buffer's flushed one.
func Read(ctx context.Context, log owner.Log, r Rules) (Entries, error) {
	t, err := owner.Salvage(ctx, log)
	if err != nil {
		return Entries{}, err
	}
	defer t.Close()
	s := look{t: t, rules: r, there: map[bb.DirID]bool{}, taken: map[bb.Place]*bb.Entry{}, decided: map[bb.DirID]bb.Txn{}}
	s.records()
	s.allDirs()
	s.files()
	s.operations()
	return s.all, nil
}

// look is a view of a table with missing parts.
type look struct {
	t       *table.Table
	rules   Rules
	all     Entries
	there   map[bb.DirID]bool      // directories that are kept
	taken   map[bb.Place]*bb.Entry // entries by place
	decided map[bb.DirID]bb.Txn    // by their destinations
	outputs []string               // their outputs
	moved   []move                 // files that the store may have under another name
}

// move is a file that was read, and where its newest entry lies.
type move struct {
	was bb.Entry
	is  bb.Place
}

// records reads the records of transactions. A decided transaction is kept if its output and its
// destination are there.
func (s *look) records() {
	decided := map[bb.TxnID]Record{}
	s.t.Others(record.OtherKey(""), func(item pages.Item) bool {
		key := string(item.Key[1:])
		t, data, keep := s.rules.Record(key, item.Value, item.Revision)
		switch {
		case !keep:
		case t == nil:
			s.all.Records = append(s.all.Records, Record{key, data})
		default:
			if s.prefer(t) {
				decided[t.ID] = Record{key, data}
			}
		}
		return true
	})
	for _, t := range s.decided {
		s.all.Decided = append(s.all.Decided, t)
	}
	slices.SortFunc(s.all.Decided, func(x, y bb.Txn) int { return cmp.Compare(x.ID, y.ID) })
	for i := range s.all.Decided {
		t := &s.all.Decided[i]
		output, _ := s.t.Path(t.Output) // prefer has found it
		s.outputs = append(s.outputs, output)
		s.all.Records = append(s.all.Records, decided[t.ID])
		if t.State == bb.TxnReplacing {
			s.all.Replaces = append(s.all.Replaces, *t)
		}
	}
}

// prefer reports whether a decided transaction goes on. Of two into one directory it is the one
// that the directory names, or else the newer one. The older one has ended.
func (s *look) prefer(t *bb.Txn) bool {
	to, err := s.t.Path(t.Dir)
	output, outputErr := s.t.Path(t.Output)
	item, there := s.t.EntryOf(t.Dir)
	if err != nil || outputErr != nil || !there || t.Output == 0 || bb.Hidden(to) || !bb.Within(output, t.Path()) {
		return false
	}
	old, another := s.decided[t.Dir]
	if e, ok := openItem(item); another && ok && (e.Txn == old.ID || e.Txn != t.ID && old.Revision > t.Revision) {
		return false
	}
	s.decided[t.Dir] = *t
	return true
}

// shown reports whether entries at a path are kept. Those of a transaction's tree are its output's alone, if the
// transaction is decided.
func (s *look) shown(path string) bool {
	return !bb.Hidden(path) || slices.ContainsFunc(s.outputs, func(output string) bool { return bb.Overlaps(path, output) })
}

type dir struct {
	bb.Entry
	depth int
}

// allDirs adds the directories, each if all above it are there.
func (s *look) allDirs() {
	var dirs []dir
	s.t.EachDir(func(id bb.DirID, item pages.Item) {
		path, err := s.t.Path(id)
		if err != nil || !s.shown(path) {
			return
		}
		e, ok := openItem(item)
		if !ok {
			return
		}
		depth := 0
		if id != bb.RootDir {
			depth = 1 + strings.Count(path, "/")
		}
		dirs = append(dirs, dir{bb.Entry{
			Parent: e.Parent, Name: e.Name, Type: bb.TypeDirectory, Dir: e.Dir, Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.MTime, Extras: e.Extras,
			Txn: s.decided[e.Dir].ID,
		}, depth})
	})
	slices.SortFunc(dirs, func(x, y dir) int { return cmp.Or(cmp.Compare(x.depth, y.depth), cmp.Compare(x.Dir, y.Dir)) })
	for i := range dirs {
		e := &dirs[i].Entry
		s.all.Dirs, s.there[e.Dir], s.taken[e.Place()] = append(s.all.Dirs, *e), true, e
	}
}

// files adds all but the directories. An unreadable record may have renamed or removed any of them.
// So of two entries of a file, and of two of a place, the newer one counts.
func (s *look) files() {
	var found []bb.Entry
	for i := range s.all.Dirs {
		s.t.Each(s.all.Dirs[i].Dir, "", func(item pages.Item) bool {
			if e, ok := openItem(item); ok && !e.IsDir() {
				found = append(found, e)
			}
			return true
		})
	}
	slices.SortStableFunc(found, func(x, y bb.Entry) int { return cmp.Compare(y.Revision, x.Revision) })
	newest := map[bb.FileID]bb.Place{}
	for i := range found {
		was := found[i]
		if at, again := newest[was.File]; again {
			s.moved = append(s.moved, move{was, at})
			continue
		}
		e := &found[i]
		if !e.Type.Special() && !s.rules.Keep(e) {
			continue
		}
		at := e.Place()
		newest[e.File] = at
		if at != was.Place() {
			s.moved = append(s.moved, move{was, at})
		}
		if s.taken[at] != nil || !s.there[at.Dir] {
			continue
		}
		s.taken[at] = e
		if e.Type.Special() {
			s.all.Specials = append(s.all.Specials, *e)
		} else {
			s.all.Files = append(s.all.Files, *e)
		}
	}
}

// operations adds the operations that the store has yet to follow. The first are the unreadable
// renames with a new name that memory or a newer entry has.
func (s *look) operations() {
	for i := range s.moved {
		m := &s.moved[i]
		from, err := s.t.Path(m.was.Parent)
		to, toErr := s.t.Path(m.is.Dir)
		if err != nil || toErr != nil || !s.there[m.is.Dir] || m.was.Flushed.Generation == 0 || bb.Hidden(from) || bb.Hidden(to) {
			continue
		}
		s.operation(&namespace.StoreOp{
			Op: namespace.OpRename, OldPath: m.was.Place().In(from), NewPath: m.is.In(to), File: m.was.File,
			Flushed: m.was.Flushed, Left: m.was.Replaced(), Attempts: m.was.Unrecorded(),
		}, m.was.Place())
	}
	s.t.Operations(func(item pages.Item) {
		if op, err := record.OpenOp(item.Value, item.Revision); err == nil {
			op.Seq = 0 // it gets another place in the order
			s.operation(op, s.place(op.OldPath))
		}
	})
}

// operation adds an operation on a place's former entry, if it compares, and meets no object that
// another file has flushed to that name.
func (s *look) operation(op *namespace.StoreOp, at bb.Place) {
	if !op.IsDir {
		known := op.Flushed.Generation != 0 || op.Left.Generation != 0 || len(op.Attempts) > 0
		if e := s.taken[at]; !known || e != nil && e.File != op.File && sameObject(e.Stored(), op) {
			return
		}
	}
	s.all.Ops = append(s.all.Ops, *op)
}

// sameObject reports whether an operation takes a flushed object for its own.
func sameObject(f bb.Flushed, op *namespace.StoreOp) bool {
	if f.Generation == 0 {
		return false
	}
	own := []bb.Content{{Size: op.Flushed.Size, Checksum: op.Flushed.Checksum}, {Size: op.Left.Size, Checksum: op.Left.Checksum}}
	return slices.Contains(append(own, op.Attempts...), bb.Content{Size: f.Size, Checksum: f.Checksum})
}

// place returns the place of a path in the directories that are kept, or the zero Place if it leads through none of
// them.
func (s *look) place(path string) (at bb.Place) {
	at.Dir = bb.RootDir
	names := strings.Split(path, "/")
	for _, name := range names[:len(names)-1] {
		e := s.taken[bb.Place{Dir: at.Dir, Name: name}]
		if e == nil || !e.IsDir() {
			return bb.Place{}
		}
		at.Dir = e.Dir
	}
	at.Name = names[len(names)-1]
	return at
}

// openItem returns the entry of an item. It returns false if it cannot be decoded.
func openItem(item pages.Item) (bb.Entry, bool) {
	parent, name, ok := record.EntryKey(item.Key)
	if !ok {
		return bb.Entry{}, false
	}
	e, err := record.OpenEntry(parent, string(name), item.Value, item.Revision)
	return e, err == nil
}
