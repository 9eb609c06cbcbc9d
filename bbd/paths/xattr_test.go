package paths

import (
	"context"
	"testing"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/namespace"
)

// SetAttr changes an entry, after what another user does before it.
func (w *world) SetAttr(_ context.Context, dir bb.DirID, name string, a namespace.Attr) (bb.Entry, error) {
	if w.before != nil {
		w.before()
		w.before = nil
	}
	e := w.entries[bb.Place{Dir: dir, Name: name}]
	if err := a.Apply(&e); err != nil {
		return bb.Entry{}, err
	}
	e.Revision++
	w.entries[e.Place()] = e
	return e, nil
}

// TestSetXattrOfWhatWasChecked: attributes are set on a file that the caller may write, even if
// another file is renamed to its name after the check.
func TestSetXattrOfWhatWasChecked(t *testing.T) {
	t.Parallel()
	change := xattr.Change{Name: "user.a", Value: "1"}
	file := func(uid uint32, id bb.FileID) bb.Entry {
		return bb.Entry{Parent: bb.RootDir, Name: "f", Type: bb.TypeFile, File: id, UID: uid, Mode: 0o644, Revision: uint64(id)}
	}
	for name, c := range map[string]struct {
		c    access.Caller
		is   bb.Entry
		then bb.Entry // the entry that takes the place after the check; no name: nothing does
		want error
	}{
		"one's own":                {user, file(1000, 7), bb.Entry{}, nil},
		"another's":                {other, file(1000, 7), bb.Entry{}, bb.Permission},
		"another's by then":        {user, file(1000, 7), file(2000, 8), bb.Permission},
		"another one of one's own": {user, file(1000, 7), file(1000, 8), nil},
	} {
		tree, w := newTree(c.is)
		if c.then.Name != "" {
			w.before = func() { w.entries[c.is.Place()] = c.then }
		}
		_, err := tree.SetXattr(t.Context(), c.c, "f", change)
		got := w.entries[c.is.Place()]
		if c.want != nil {
			if bb.KindOf(err) != c.want || got.Xattrs != "" {
				t.Errorf("%s: %v, and it has %q", name, err, got.Xattrs)
			}
		} else if value, ok := xattr.List(got.Xattrs).Get("user.a"); err != nil || !ok || value != "1" {
			t.Errorf("%s: %v, %q", name, err, got.Xattrs)
		}
		// The same goes for modes and owners.
		tree, w = newTree(c.is)
		if c.then.Name != "" {
			w.before = func() { w.entries[c.is.Place()] = c.then }
		}
		mode := PermissionBits
		_, err = tree.SetAttr(t.Context(), c.c, "f", namespace.Attr{Mode: &mode})
		if changed := w.entries[c.is.Place()].Mode == mode; bb.KindOf(err) != bb.KindOf(c.want) || changed != (c.want == nil) {
			t.Errorf("mode of %s: %v, changed: %v", name, err, changed)
		}
	}
}
