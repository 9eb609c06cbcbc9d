package nslog

import (
	"context"

	"forebay/internal/bb"
	"forebay/meta/namespace"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
)

// Merged is an entry that MergeDir has moved.
type Merged struct {
	Was bb.Entry // at its old place
	Is  bb.Entry // at its new place; without a name if it was a directory that was removed
}

// MergeDir moves the entries of a directory to the same names of another directory, where these are
// free, at most so many entries (0: all). Where both have a directory, which no transaction is
// committed into, it moves the entries of that one, and removes it if it is empty then. An entry in
// the way stays, and so does the entry that it blocks. It is one change, of bounded size. More
// reports that it has to be called again. If the other directory is gone, it is NotFound, if one of
// them lies in the other, Invalid. May reports whether an entry may be moved to a directory. It is
// called while all changes wait, perhaps more than once. Nil: all may.
func (e *Engine) MergeDir(ctx context.Context, from, to bb.DirID, most int, may func(e *bb.Entry, to bb.DirID) bool) (moved []Merged, more bool, err error) {
	var m *merging // of the round's goroutine, until the change is answered
	err = e.owner.Do(ctx, "merge", from.String(), func(b *owner.Round) error {
		m = &merging{b: b, begun: b.Bytes(), most: most, may: may}
		if b.Table.Within(from, to) || b.Table.Within(to, from) {
			return bb.E(bb.Invalid, "merge", from.String(), "one of the two directories lies in the other")
		}
		_, err := m.merge(from, to)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	return m.moved, m.full, nil
}

// merging is one attempt to merge directories.
type merging struct {
	b     *owner.Round
	may   func(*bb.Entry, bb.DirID) bool
	most  int  // entries that it moves; 0: no bound
	begun int  // bytes of the round before it
	full  bool // it has as many effects as it may have
	paths bool // it renames directories, as the only one of its round
	moved []Merged
}

// merge merges a directory with another one, and reports whether all that it holds was moved.
func (m *merging) merge(from, to bb.DirID) (whole bool, err error) {
	switch {
	case !m.b.Use(to):
		return false, owner.ErrPostponed
	case !m.b.Table.HasDir(to):
		return false, dirGone("merge", to.String())
	}
	whole = true
	m.b.Table.Each(from, "", func(item pages.Item) bool {
		if m.full = m.b.Bytes()-m.begun > changeBytes || m.most > 0 && len(m.moved) >= m.most; m.full {
			whole = false
			return false
		}
		var gone bool
		gone, err = m.entry(item, to)
		whole = whole && gone
		return err == nil
	})
	return whole && err == nil, err
}

// entry merges an entry with a directory's entry of its name, and reports whether it has left its
// place.
func (m *merging) entry(item pages.Item, to bb.DirID) (gone bool, err error) {
	was, err := decode(item)
	if err != nil {
		return false, err
	}
	key := record.AppendEntryKey(nil, to, was.Name)
	there, taken := m.b.Table.Get(key)
	switch {
	case !taken && m.may != nil && !m.may(&was, to):
		return false, nil
	case !taken:
		return true, m.move(item.Key, &was, key, to)
	case !m.b.See(key):
		return false, owner.ErrPostponed
	}
	target, err := record.OpenEntry(to, was.Name, there.Value, there.Revision)
	if err != nil || !was.IsDir() || !target.IsDir() || was.Txn != 0 || target.Txn != 0 {
		return false, err
	}
	if whole, err := m.merge(was.Dir, target.Dir); err != nil || !whole {
		return false, err
	}
	if !m.b.Touch(item.Key) || !m.b.Empty(was.Dir) {
		return false, owner.ErrPostponed
	}
	m.b.Remove(item.Key)
	m.moved = append(m.moved, Merged{Was: was})
	return true, nil
}

// move moves an entry to a key that is free.
func (m *merging) move(old []byte, was *bb.Entry, key []byte, to bb.DirID) error {
	if !m.b.Touch(old) || !m.b.Touch(key) {
		return owner.ErrPostponed
	}
	// No other change of the round moves a directory, so the other one cannot come to lie in it.
	if m.paths = m.paths || was.IsDir() && m.b.ChangePaths(); was.IsDir() && !m.paths {
		return owner.ErrPostponed
	}
	moved := namespace.Move(was, bb.Place{Dir: to, Name: was.Name}, nil)
	_, value, err := encode(&moved)
	if err != nil {
		return err
	}
	moved.SetRevision(m.b.StoreEntry(key, value))
	m.b.Remove(old)
	m.moved = append(m.moved, Merged{Was: *was, Is: moved})
	return nil
}
