package xattr

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestXattrs(t *testing.T) {
	t.Parallel()
	var x List
	for _, step := range []struct {
		op          Op
		name, value string
		want        error
	}{
		{Set, "user.b", "2", nil},
		{Create, "user.b", "3", bb.Exists},
		{Replace, "user.a", "1", bb.NotFound},
		{Remove, "user.a", "", bb.NotFound},
		{Create, "user.a", "1\x00\xff", nil},
		{Replace, "user.b", "", nil},
		{Set, "security.capability", "x", bb.Unsupported},
		{Set, "user.", "x", bb.Invalid},
		{Set, "user.\x00", "x", bb.Invalid},
		{Set, "user." + strings.Repeat("n", 251), "x", bb.Invalid},
		{Set, "user." + strings.Repeat("n", 250), strings.Repeat("v", 7000), nil},
		{Set, "user.c", strings.Repeat("v", MaxTotal), bb.NoSpace},
		{77, "user.c", "", bb.Unsupported},
		{Remove, "user." + strings.Repeat("n", 250), "", nil},
		{Set, "user.c", strings.Repeat("v", 200), nil}, // a length of two bytes
	} {
		now, err := x.Apply(&Change{step.op, step.name, step.value})
		if !errors.Is(err, step.want) || step.want == nil && err != nil {
			t.Errorf("%v: %v, want %v", step, err, step.want)
		}
		if step.want != nil && now != x {
			t.Errorf("%v was refused and changes %q to %q", step, x, now)
		}
		if x = now; x.Check() != nil {
			t.Errorf("%v: %v", step, x.Check())
		}
	}
	want := []Attr{{"user.a", "1\x00\xff", false}, {"user.b", "", false}, {"user.c", strings.Repeat("v", 200), false}}
	if got := slices.Collect(x.All()); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if _, ok := x.Get("user.b"); !ok {
		t.Error("an empty value is there")
	}
	marked := x.Marked(func(a Attr) bool { return a.Name != "user.b" })
	if got := marked.Unstored(); !slices.Equal(got, []string{"user.b"}) || !marked.Equal(x) || marked == x {
		t.Errorf("%q", got)
	}
	again, err := marked.Apply(&Change{Set, "user.a", "new"})
	if got := again.Unstored(); err != nil || !slices.Equal(got, []string{"user.a", "user.b"}) {
		t.Errorf("after a change: %q %v", got, err)
	}
}

// For any record, nothing is read beyond its end, and a record that passes the check is in its only
// form.
func FuzzXattrs(f *testing.F) {
	f.Add("")
	f.Add(string(Make(Attr{"user.a", "1", true}, Attr{"user.b", "", false})))
	f.Add("\x06user.a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		b := make([]byte, rnd.IntN(20))
		for i := range b {
			b[i] = byte(rnd.IntN(256))
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, s string) {
		x := List(s)
		all := slices.Collect(x.All())
		if x.Check() != nil {
			return
		}
		again := Make(all...)
		if again.Check() != nil || !slices.Equal(slices.Collect(again.All()), all) || !again.Equal(x) {
			t.Fatalf("%q is encoded as %q", s, again)
		}
	})
}
