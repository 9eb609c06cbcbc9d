package backingtest

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
)

// links puts symbolic links, with any target, and treats them as objects.
func links(t *testing.T, h Harness) {
	s := h.Open(t)
	when := time.Unix(1_600_000_000, 123_456_000)
	attrs := &backing.Attrs{Mode: fs.ModePerm | fs.ModeSymlink, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), MTime: when}
	put := func(name, target string, opts backing.PutOptions) (backing.Object, error) {
		opts.Attrs = attrs
		return s.Put(t.Context(), name, backing.NewBytes([]byte(target)), opts)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"d/file": "f", "d/out": "/etc/passwd", "d/up": "../../..", "d/nowhere": "none", "d/self": "self", "d/dir": ".",
		"d/long": strings.Repeat("x/", bb.MaxTarget/2), "d/bytes": "\xff\n",
	} {
		o, err := put(name, target, backing.PutOptions{})
		must(err)
		if o.Size != int64(len(target)) || o.ETag == "" {
			t.Errorf("%s: %+v", name, o)
		}
		now, err := s.Stat(t.Context(), name)
		if err != nil || !now.IsLink() || now.Version() != o.Version() {
			t.Errorf("%s: %+v (%v), was put as %+v", name, now, err, o)
		}
		expect(t, s, name, []byte(target))
	}
	expectNames(t, s, "d/", "d/file", "d/out", "d/up", "d/nowhere", "d/self", "d/dir", "d/long", "d/bytes")
	must(s.Others(t.Context(), "d", func(o backing.Other) error {
		if !o.Mode.IsDir() {
			t.Errorf("%s, a link, is no object", o.Name)
		}
		return nil
	}))

	// A file takes the place of a link, and a link that of a file, and neither reaches the link's target.
	was, err := put("swap", "target", backing.PutOptions{})
	must(err)
	_, err = s.Put(t.Context(), "target", backing.NewBytes([]byte("stays")), backing.PutOptions{})
	must(err)
	file, err := s.Put(t.Context(), "swap", backing.NewBytes([]byte("file")), backing.PutOptions{Keep: true, Replaces: was.ETag})
	must(err)
	expect(t, s, "target", []byte("stays"))
	_, err = put("swap", "other", backing.PutOptions{Keep: true, Replaces: was.ETag})
	if !isForeign(err) {
		t.Errorf("a link over a file that is not the one to replace: %v", err)
	}
	link, err := put("swap", "target", backing.PutOptions{Keep: true, Replaces: file.ETag})
	must(err)

	must(s.RenameIf(t.Context(), "swap", "moved", link.Version(), backing.Version{}))
	now, err := s.Stat(t.Context(), "moved")
	if err != nil || !now.IsLink() {
		t.Errorf("the link that was renamed: %+v (%v)", now, err)
	}
	expect(t, s, "moved", []byte("target"))
	if err := s.RemoveIf(t.Context(), "moved", file.Version()); !isForeign(err) {
		t.Errorf("removing a link as another version: %v", err)
	}
	must(s.RemoveIf(t.Context(), "moved", now.Version()))
	must(s.Remove(t.Context(), "d/out"))
	must(s.RemoveTree(t.Context(), "d"))
	expectNames(t, s, "", "target")
	expect(t, s, "target", []byte("stays"))
}
