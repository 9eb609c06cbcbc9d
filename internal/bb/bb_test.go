package bb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSplitPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "/": "", "a": "a", "/a/b/": "a|b", "a//b": "a|b", "./a/./b": "a|b", "a b/ü": "a b|ü",
	} {
		names, err := SplitPath(in)
		if err != nil || strings.Join(names, "|") != want {
			t.Errorf("%q: %v %v", in, names, err)
		}
	}
	for name, in := range map[string]string{
		"parent": "a/../b", "leading parent": "../x", "NUL": "a\x00b", "not UTF-8": "a\xff", "long name": strings.Repeat("n", 300),
		"deep": strings.Repeat("d/", 1000), "long": strings.Repeat("a/", MaxPath),
	} {
		if _, err := SplitPath(in); !errors.Is(err, Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseAddress(t *testing.T) {
	a, err := ParseAddress("bb://ckpt-1/run//7/x")
	if err != nil || a != (Address{"ckpt-1", "run/7/x"}) || a.String() != "bb://ckpt-1/run/7/x" {
		t.Errorf("%+v %v", a, err)
	}
	if a.Join("y").String() != "bb://ckpt-1/run/7/x/y" {
		t.Errorf("joined: %v", a.Join("y"))
	}
	for _, bad := range []string{"", "ckpt/x", "s3://b/x", "bb:///x", "bb://UPPER/x", "bb://a.b/x", "bb://b/../x", "bb://" + strings.Repeat("b", 64)} {
		if _, err := ParseAddress(bad); !errors.Is(err, Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestErrorKinds(t *testing.T) {
	for _, c := range []struct {
		err  error
		kind Kind
	}{
		{nil, 0},
		{errors.New("x"), Internal},
		{fmt.Errorf("w: %w", os.ErrNotExist), NotFound},
		{&os.PathError{Err: syscall.ENOTEMPTY}, NotEmpty},
		{&os.PathError{Err: syscall.EEXIST}, Exists},
		{syscall.ENOSPC, NoSpace},
		{context.Canceled, Cancelled},
		{context.DeadlineExceeded, Unavailable},
		{Wrap("op", "p", E(Lost, "read", "q", "gone")), Lost},
		{Busy, Busy},
	} {
		if got := KindOf(c.err); got != c.kind {
			t.Errorf("%v: %v, want %v", c.err, got, c.kind)
		}
	}
	err := Wrap("open", "bb://b/x", os.ErrNotExist)
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, NotFound) || errors.Is(err, Exists) {
		t.Errorf("%v", err)
	}
	if Wrap("open", "x", nil) != nil {
		t.Error("no error became one")
	}
}

func TestErrorIsOneLine(t *testing.T) {
	err := E(NoSpace, "write", "bb://b/x", "its capacity is used up").WithRemedy("drain it")
	if got := err.Error(); got != "write: bb://b/x: no space: its capacity is used up (drain it)" {
		t.Errorf("%s", got)
	}
}

func TestErrorSaysNothingTwice(t *testing.T) {
	inner := E(NotFound, "lookup", "x", "there is no such file").WithRemedy("look again")
	err := Wrap("cat", "bb://b/d/x", Wrap("open", "bb://b/d/x", inner))
	if got := err.Error(); got != "cat: bb://b/d/x: not found: there is no such file (look again)" {
		t.Errorf("%s", got)
	}
	if !errors.Is(err, inner) {
		t.Error("the inner error is not in the chain")
	}
	other := Wrap("flush", "bb://b/x", E(NoSpace, "put", "/lustre/x", "the disk is full"))
	if got := other.Error(); got != "flush: bb://b/x: put: /lustre/x: no space: the disk is full" {
		t.Errorf("%s", got)
	}
}

func TestEntryState(t *testing.T) {
	e := Entry{Type: TypeFile, Generation: 3}
	if e.State() != StateDirty {
		t.Errorf("%v", e.State())
	}
	e.Flushed.Generation = 2
	if e.State() != StateDirty {
		t.Errorf("flushed before: %v", e.State())
	}
	e.Flushed.Generation = 3
	if e.State() != StateClean {
		t.Errorf("flushed: %v", e.State())
	}
	e.Open = true
	if e.State() != StateOpen {
		t.Errorf("open: %v", e.State())
	}
	e.Lost = true
	if e.State() != StateLost {
		t.Errorf("lost: %v", e.State())
	}
}

func FuzzSplitPath(f *testing.F) {
	for _, s := range []string{"a/b", "/", "../..", "a\x00", "ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		names, err := SplitPath(s)
		if err != nil {
			return
		}
		again, err := SplitPath(strings.Join(names, "/"))
		if err != nil || len(again) != len(names) {
			t.Fatalf("%q: %q, again %q (%v)", s, names, again, err)
		}
		for _, n := range names {
			if CheckName(n) != nil {
				t.Fatalf("%q let %q pass", s, n)
			}
		}
	})
}

func TestPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"":                 "",
		"run 1/größe.ckpt": "run 1/größe.ckpt",
		"a\nb\tc":          `a\nb\tc`,
		"\x1b[31mred":      `\x1b[31mred`,
		`back\slash`:       `back\\slash`,
		"\u202egpj.exe":    `\u202egpj.exe`, // turns the direction of the following text
	} {
		if got := Printable(name); got != want {
			t.Errorf("%q is printed as %s, want %s", name, got, want)
		}
	}
	err := E(NotFound, "open", "bb://b/a\nb", "it is gone")
	if want := `open: bb://b/a\nb: not found: it is gone`; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestUnrecorded(t *testing.T) {
	first, second := Content{1, 1}, Content{2, 2}
	e := Entry{Type: TypeFile, File: 1, Generation: 1, Open: true}
	check := func(when string, want ...Content) {
		t.Helper()
		if got := e.Unrecorded(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	next := func(c Content, open bool) {
		e.Supersede()
		e.Generation++
		e.Size, e.Checksum, e.Open, e.Lost = c.Size, c.Checksum, open, false
	}
	check("open")
	next(first, false)
	check("closed", first)
	next(Content{}, true)
	check("open again", first)
	next(second, false)
	check("closed again", first, second)
	next(first, false)
	check("as it was", second, first)
	e.Lost = true
	check("lost", second, first)
	e.Size, e.Checksum = 0, 0
	check("lost while it was open", first, second)
	e.Size, e.Checksum, e.Lost = 1, 1, false
	e.SetFlushed(Flushed{Generation: e.Generation})
	check("flushed")
	next(second, false)
	check("written after that", second)
	for n := range int64(MaxAttempts + 10) {
		next(Content{100 + n, 1}, false)
	}
	if all := e.Unrecorded(); len(all) != MaxAttempts || all[0] != (Content{110, 1}) {
		t.Errorf("%d contents from %v on", len(all), all[0])
	}
	next(Content{}, true)
	if n := len(e.Attempts()); n != MaxAttempts {
		t.Errorf("%d attempts", n)
	}
}

// TestErrorsSayNothingTwice wraps errors of the same operation, buffer or file, as daemon and client do.
func TestErrorsSayNothingTwice(t *testing.T) {
	t.Parallel()
	path := func(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: syscall.ENOENT} }
	for want, err := range map[string]error{
		"stage-in: bb://b/z: file:///no: not found: no such file or directory (make it)": Wrap("stage-in", "bb://b/z",
			Wrap("stage-in", "file:///no", E(NotFound, "", "", "no such file or directory").WithRemedy("make it"))),
		"receipt: b: not found: there is no such buffer": Wrap("receipt", "b", E(NotFound, "receipt", "bb://b/", "there is no such buffer")),
		"create buffer: b: open backing: /no/y: not found: no such file or directory": Wrap("create buffer", "b",
			Wrap("buffer create", "bb://b/", Wrap("open backing", "/no/y", path("open", "/no/y")))),
		"stage-in: ftp://x: invalid: has an unknown scheme":                 Wrap("stage-in", "ftp://x", E(Invalid, "backing", `"ftp://x"`, "has an unknown scheme")),
		"stat: hostname/a: not found: no such file or directory":            Wrap("stat", "hostname/a", path("statat", "hostname/a")),
		"make: /a/b: not found: mkdir /a: no such file or directory":        Wrap("make", "/a/b", path("mkdir", "/a")),
		"drain: b: stat: bb://other/: not found: there is no such buffer":   Wrap("drain", "b", E(NotFound, "stat", "bb://other/", "there is no such buffer")),
		"stage-in: bb://b/z: file:///no: node n2: not found: there is none": Wrap("stage-in", "bb://b/z", &Error{Kind: NotFound, Op: "stage-in", Path: "file:///no", Node: "n2", Err: errors.New("there is none")}),
	} {
		if got := err.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
