package backingtest

import (
	"os"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/xattr"
)

// describe returns the attributes of an object by a reader of n bytes of it.
func describe(t *testing.T, s backing.Store, name string, n int64) xattr.List {
	t.Helper()
	r, err := s.Get(t.Context(), name, 0, n)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o, _ := backing.Described(r)
	return o.Xattrs
}

// xattrs puts objects and directories with extended attributes. A reader and a listing return those that the Put of an
// object has reported as kept.
func xattrs(t *testing.T, h Harness) {
	s := h.Open(t)
	attrs := backing.Attrs{
		Mode: 0o750, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), MTime: time.Unix(1_600_000_000, 0),
		Xattrs: xattr.Make(xattr.Attr{Name: "user.a", Value: "text"}, xattr.Attr{Name: "user.bytes", Value: "\x00\xff"}, xattr.Attr{Name: "user.empty"}),
	}
	var kept xattr.List
	replaced := ""
	for name, size := range map[string]int64{"d/empty": 0, "d/small": 10, "d/large": h.Large} {
		put := func(attrs *backing.Attrs) backing.Object {
			t.Helper()
			o, err := s.Put(t.Context(), name, backing.NewBytes(Data(size, 1)), backing.PutOptions{Attrs: attrs, Replaces: replaced})
			if err != nil {
				t.Fatal(err)
			}
			replaced = o.ETag
			return o
		}
		o := put(&attrs)
		kept = o.Xattrs
		if rest := kept.Without(attrs.Xattrs); rest != "" {
			t.Errorf("%s: a Put reports attributes that it was not given: %q", name, rest)
		}
		for _, n := range []int64{0, -1, size} {
			if got := describe(t, s, name, n); !got.Equal(kept) {
				t.Errorf("a reader of %d bytes of %s has the attributes %q, want %q", n, name, got, kept)
			}
		}
		moved := name + " moved"
		if err := s.Rename(t.Context(), name, moved); err != nil {
			t.Fatal(err)
		}
		if got := describe(t, s, moved, 0); !got.Equal(kept) {
			t.Errorf("%s has the attributes %q, want %q", moved, got, kept)
		}
		replaced = ""
		put(&attrs)
		put(&backing.Attrs{Mode: 0o640, UID: attrs.UID, GID: attrs.GID})
		if got := describe(t, s, name, 0); got != "" {
			t.Errorf("%s, replaced by an object without attributes, has %q", name, got)
		}
		replaced = ""
	}
	dirXattrs(t, s, attrs, kept)
}

// dirXattrs makes a directory with attributes, then with another one, and with a mode that forbids the user to set them.
func dirXattrs(t *testing.T, s backing.Store, attrs backing.Attrs, kept xattr.List) {
	t.Helper()
	more := attrs
	more.Mode, more.Xattrs = 0o550, xattr.Make(xattr.Attr{Name: "user.a", Value: "other"}, xattr.Attr{Name: "user.more", Value: "more"})
	last := more
	last.Xattrs = xattr.Make(xattr.Attr{Name: "user.last", Value: "last"})
	for _, now := range []backing.Attrs{attrs, more, last} {
		if err := s.MakeDir(t.Context(), "none", backing.DirOptions{Attrs: now}); err != nil {
			t.Fatal(err)
		}
	}
	want := xattr.List("")
	if kept != "" {
		want = kept.With(more.Xattrs).With(last.Xattrs)
	}
	found := xattr.List("")
	err := s.Others(t.Context(), "", func(o backing.Other) error {
		if o.Name == "none" {
			found = o.Xattrs
			if !o.Bare && o.Mode.Perm() != last.Mode {
				t.Errorf("the directory has the mode %v, want %v", o.Mode, last.Mode)
			}
		}
		return nil
	})
	if err != nil || !found.Equal(want) {
		t.Errorf("the directory has the attributes %q (%v), want %q", found, err, want)
	}
}
