package s3

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/internal/bb"
	"forebay/internal/xattr"
)

func TestParseMode(t *testing.T) {
	for _, c := range []struct {
		text string
		kind uint64
		want fs.FileMode
		ok   bool
	}{
		{"0100644", fileType, 0o644, true},
		{"100644", fileType, 0o644, true},
		{"33188", fileType, 0o644, true},
		{"33261", fileType, 0o755, true},
		{"0100000", fileType, 0, true},
		{"0104755", fileType, 0o755, true},
		{"0040750", dirType, 0o750, true},
		{"40750", dirType, 0o750, true},
		{"16877", dirType, 0o755, true},
		{"41777", dirType, 0o777, true},
		{"0644", fileType, 0o644, true},
		{"755", dirType, 0o755, true},
		{"0040750", fileType, 0, false},
		{"100644", dirType, 0, false},
		{"16877", fileType, 0, false},
		{"41471", fileType, 0, false},
		{"0120777", fileType, 0, false}, // a symbolic link of s3fs
		{"", fileType, 0, false},
		{"x", fileType, 0, false},
		{"-1", fileType, 0, false},
		{"010000644", fileType, 0, false},
		{"99999", fileType, 0, false},
		{"1e3", fileType, 0, false},
		{"0x1ff", fileType, 0, false},
		{"8", fileType, 0, false},
	} {
		if got, ok := parseMode(c.text, c.kind); ok != c.ok || ok && got != c.want {
			t.Errorf("%q of %o: %v (%v), want %v (%v)", c.text, c.kind, got, ok, c.want, c.ok)
		}
	}
	// Attributes of one program for a file or directory are not read as those of another.
	for perm := range uint64(0o10000) {
		for _, kind := range []uint64{fileType, dirType} {
			for _, form := range []string{"0%o", "%o", "%d"} {
				if got, ok := parseMode(fmt.Sprintf(form, kind|perm), kind); !ok || got != fs.FileMode(perm)&fs.ModePerm {
					t.Fatalf("%o as %s: %v (%v)", kind|perm, form, got, ok)
				}
			}
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"1600000000": time.Unix(1_600_000_000, 0), "1600000000.5": time.Unix(1_600_000_000, 500_000_000),
		"1600000000.123456789": time.Unix(1_600_000_000, 123_456_789), "1600000000.1234567891": time.Unix(1_600_000_000, 123_456_789),
		"0.000000001": time.Unix(0, 1), "1600000000.": time.Unix(1_600_000_000, 0),
	} {
		if got, ok := parseTime(text); !ok || !got.Equal(want) {
			t.Errorf("%q: %v (%v), want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "-1.5", "1.x", "1.+5", "99999999999999", "1.5e9", ".5"} {
		if got, ok := parseTime(text); ok {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// FuzzMetadata reads metadata of any program.
func FuzzMetadata(f *testing.F) {
	f.Add("0100644", "1600000000.5")
	f.Fuzz(func(t *testing.T, mode, when string) {
		for _, kind := range []uint64{fileType, dirType} {
			m, ok := parseMode(mode, kind)
			if ok && m&^fs.ModePerm != 0 {
				t.Errorf("mode %q is %v", mode, m)
			}
		}
		at, ok := parseTime(when)
		if !ok {
			return
		}
		to := map[string]string{}
		addMetadata(to, &backing.Attrs{MTime: at}, fileType)
		if again, ok := parseTime(to[keyTime]); !ok || !again.Equal(at) || at.UnixNano() < 0 {
			t.Errorf("time %q is %v, then %v", when, at, again)
		}
	})
}

// TestAttributes keeps a file's mode and time, as it is put, in parts too, and as it is renamed.
func TestAttributes(t *testing.T) {
	server := start(t)
	s := open(t, server.URL(server.Bucket(t, "attributes"), "p"), options())
	when := time.Unix(1_500_000_000, 123_456_789)
	for name, size := range map[string]int64{"small": 10, "empty": 0, "large": large} {
		attrs := &backing.Attrs{Mode: 0o641, MTime: when}
		if _, err := s.Put(t.Context(), name, backing.NewBytes(backingtest.Data(size, 1)), backing.PutOptions{Attrs: attrs}); err != nil {
			t.Fatal(err)
		}
		expect := func(name string) {
			t.Helper()
			o, err := s.Stat(t.Context(), name)
			if err != nil || !o.HasMode || o.Mode != 0o641 || !o.MTime.Equal(when) {
				t.Errorf("%s: %+v (%v)", name, o, err)
			}
		}
		expect(name)
		r, err := s.Get(t.Context(), name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := backing.Described(r); !ok || !o.HasMode || o.Mode != 0o641 || !o.MTime.Equal(when) {
			t.Errorf("%s is described as %+v (%v)", name, o, ok)
		}
		r.Close()
		if err := s.Rename(t.Context(), name, "moved/"+name); err != nil {
			t.Fatal(err)
		}
		expect("moved/" + name)
	}
	if _, err := s.Put(t.Context(), "plain", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if o, err := s.Stat(t.Context(), "plain"); err != nil || o.HasMode || time.Since(o.MTime) > time.Hour {
		t.Errorf("an object without attributes: %+v (%v)", o, err)
	}
}

// TestForms compares the metadata of objects, as the server returns them, with the forms that rclone and s3fs write and
// read. An object in these forms by another program is read the same.
func TestForms(t *testing.T) {
	server := start(t)
	s := open(t, server.URL(server.Bucket(t, "forms"), "p"), options())
	when := time.Unix(1_500_000_000, 123_456_789)
	attrs := backing.Attrs{Mode: 0o641, MTime: when, Xattrs: xattr.Make(xattr.Attr{Name: "user.origin", Value: "site A"}, xattr.Attr{Name: "user.bytes", Value: "\x00"})}
	link := backing.Attrs{Mode: fs.ModePerm | fs.ModeSymlink, MTime: when}
	for name, put := range map[string]func() error{
		"file": func() error {
			return second(s.Put(t.Context(), "file", backing.NewBytes([]byte("x")), backing.PutOptions{Attrs: &attrs}))
		},
		"large": func() error {
			return second(s.Put(t.Context(), "large", backing.NewBytes(backingtest.Data(large, 1)), backing.PutOptions{Attrs: &attrs}))
		},
		"link": func() error {
			return second(s.Put(t.Context(), "link", backing.NewBytes([]byte("file")), backing.PutOptions{Attrs: &link}))
		},
		"dir/": func() error { return s.MakeDir(t.Context(), "dir", backing.DirOptions{Attrs: attrs}) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"Mode": "0100641", "Mtime": "1500000000.123456789", "Origin": "site A"}
		switch name {
		case "link":
			want["Mode"] = "0120777"
			delete(want, "Origin")
		case "dir/":
			want["Mode"], want["Forebay-Directory"] = "0040641", "1"
		}
		info, err := s.client.StatObject(t.Context(), s.bucket, "p/"+name, minio.StatObjectOptions{})
		if err != nil || !maps.Equal(map[string]string(info.UserMetadata), want) {
			t.Errorf("%s has the metadata %q (%v), want %q", name, info.UserMetadata, err, want)
		}
	}
	foreign := minio.PutObjectOptions{UserMetadata: map[string]string{"mode": "33184", "mtime": "1400000000", "origin": "elsewhere", "Forebay-Other": "1", "uid": "7"}, DisableContentSha256: true}
	if _, err := s.client.PutObject(t.Context(), s.bucket, "p/foreign", strings.NewReader("x"), 1, "", "", foreign); err != nil {
		t.Fatal(err)
	}
	o, err := s.Stat(t.Context(), "foreign")
	if want := xattr.Make(xattr.Attr{Name: "user.origin", Value: "elsewhere"}); err != nil || o.Xattrs != want || o.Mode != 0o640 || o.MTime.Unix() != 1_400_000_000 {
		t.Errorf("%+v (%v), want the attributes %q", o, err, want)
	}
}

// second returns the error of a Put.
func second(_ backing.Object, err error) error { return err }

// TestForeignLinks reads symbolic links as other programs put them.
func TestForeignLinks(t *testing.T) {
	server := start(t)
	s := open(t, server.URL(server.Bucket(t, "links"), "p"), options())
	for _, c := range []struct {
		mode, text string
		link       bool
	}{
		{"41471", "target", true},
		{"0120777", "target", true},
		{"120777", "target", true},
		{"41471", "", false},
		{"41471", strings.Repeat("x", bb.MaxTarget+1), false}, // a link has neither target
		{"33279", "target", false},
		{"0777", "target", false},
		{"16877", "target", false},
		{"x", "target", false},
	} {
		o := minio.PutObjectOptions{UserMetadata: map[string]string{"mode": c.mode, "mtime": "1400000000"}, DisableContentSha256: true}
		if _, err := s.client.PutObject(t.Context(), s.bucket, "p/l", strings.NewReader(c.text), int64(len(c.text)), "", "", o); err != nil {
			t.Fatal(err)
		}
		if o, err := s.Stat(t.Context(), "l"); err != nil || o.IsLink() != c.link || c.link && o.Mode.Perm() != 0o777 {
			t.Errorf("%s, %d bytes: %+v (%v)", c.mode, len(c.text), o, err)
		}
	}
}

// TestMarkers keeps empty directories, and leaves the markers of other programs alone.
func TestMarkers(t *testing.T) {
	server := start(t)
	s := open(t, server.URL(server.Bucket(t, "markers"), "p"), options())
	when := time.Unix(1_500_000_000, 5)
	opts := backing.DirOptions{Attrs: backing.Attrs{Mode: 0o750, MTime: when}}
	holds, later := opts, opts
	holds.Holds, later.Attrs.Mode = true, 0o700
	put := func(key string, metadata map[string]string) {
		t.Helper()
		_, err := s.client.PutObject(t.Context(), s.bucket, "p/"+key, strings.NewReader(""), 0, "", "", minio.PutObjectOptions{UserMetadata: metadata, DisableContentSha256: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	put("foreign/", nil)
	put("s3fs/", map[string]string{"mode": "16832", "mtime": "1400000000"})
	put("file", nil)
	put("full/x", nil)
	for _, c := range []struct {
		name string
		opts backing.DirOptions
	}{{"ours", opts}, {"ours", opts}, {"ours", later}, {"deep/er", opts}, {"foreign", opts}, {"full", holds}} {
		if err := s.MakeDir(t.Context(), c.name, c.opts); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.MakeDir(t.Context(), "file", opts); !errors.Is(err, bb.Exists) {
		t.Errorf("in the place of a file: %v", err)
	}
	expect := func(dir string, want ...string) {
		t.Helper()
		var got []string
		err := s.Others(t.Context(), dir, func(o backing.Other) error {
			text := o.Name + " " + o.Mode.String()
			if o.Bare {
				text += " bare"
			} else {
				text += " " + o.MTime.UTC().Format(time.DateOnly)
			}
			got = append(got, text)
			return nil
		})
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q (%v), want %q", dir, got, err, want)
		}
	}
	// A marker that is kept is not changed, unless it is one of the same buffer.
	for _, c := range []struct {
		mark string
		mode fs.FileMode
	}{{"b.1", 0o750}, {"other.1", 0o777}, {"b.1", 0o710}} {
		o, kept := options(), opts
		o.Mark, kept.Keep, kept.Attrs.Mode = c.mark, true, c.mode
		marked := open(t, server.URL(s.bucket, "p"), o)
		for _, name := range []string{"ours", "marked"} {
			if err := marked.MakeDir(t.Context(), name, kept); err != nil {
				t.Fatal(err)
			}
		}
		want := c.mode
		if c.mark != "b.1" {
			want = 0o750
		}
		expect("marked", "marked "+(fs.ModeDir|want).String()+" 2017-07-14")
	}
	if err := s.RemoveDir(t.Context(), "marked"); err != nil {
		t.Fatal(err)
	}
	expect("", "deep/er drwxr-x--- 2017-07-14", "foreign drwxr-xr-x bare", "ours drwx------ 2017-07-14", "s3fs drwx------ 2014-05-13")
	expect("deep/er", "deep/er drwxr-x--- 2017-07-14")
	own := errors.New("enough")
	if err := s.Others(t.Context(), "", func(backing.Other) error { return own }); !errors.Is(err, own) {
		t.Errorf("stopped: %v", err)
	}
	// A marker of ours stays while something lies in the directory.
	put("ours/x", nil)
	for _, name := range []string{"ours", "foreign", "s3fs", "deep/er", "full", "none"} {
		if err := s.RemoveDir(t.Context(), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	expect("", "foreign drwxr-xr-x bare", "ours drwx------ 2017-07-14", "s3fs drwx------ 2014-05-13")
	if err := errors.Join(s.Remove(t.Context(), "ours/x"), s.RemoveDir(t.Context(), "ours")); err != nil {
		t.Fatal(err)
	}
	expect("", "foreign drwxr-xr-x bare", "s3fs drwx------ 2014-05-13")
}

// TestFitting: attributes fit an object's metadata if S3 returns their names and values as they
// were.
func TestFitting(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("v", 1000)
	all := xattr.Make(
		xattr.Attr{Name: "user.sum", Value: "abc 12"}, xattr.Attr{Name: "user.Upper", Value: "1"}, xattr.Attr{Name: "user.mode", Value: "1"},
		xattr.Attr{Name: "user.empty"}, xattr.Attr{Name: "user.space", Value: "1 "}, xattr.Attr{Name: "user.binary", Value: "\x00"},
		xattr.Attr{Name: "user.encoded", Value: "=?UTF-8?B?eA==?="}, xattr.Attr{Name: "user.dot.ted", Value: "1"},
		xattr.Attr{Name: "user.long-1", Value: long}, xattr.Attr{Name: "user.long-2", Value: long}, xattr.Attr{Name: "user.forebay-directory", Value: "1"},
	)
	var names []string
	for a := range fitting(&backing.Attrs{Xattrs: all}).All() {
		names = append(names, a.Name)
	}
	if want := []string{"user.long-1", "user.sum"}; !slices.Equal(names, want) {
		t.Errorf("%q fit, want %q", names, want)
	}
	metadata := map[string]string{}
	addMetadata(metadata, &backing.Attrs{Xattrs: all}, fileType)
	if len(metadata) != 3 || metadata["sum"] != "abc 12" || metadata[keyMode] == "" {
		t.Errorf("%q", metadata)
	}
}
