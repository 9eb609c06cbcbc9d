package kernel

import (
	"testing"

	"forebay/client"
	"forebay/internal/bb"
)

// TestView opens a file in every order that matters. Pages are kept only when they are certainly those of the file.
func TestView(t *testing.T) {
	t.Parallel()
	entry := func(g bb.Generation) *client.Entry {
		return &client.Entry{Size: 10, Generation: g, State: client.StateClean}
	}
	fresh := func() *View {
		v := new(View)
		v.Tell(10)
		return v
	}
	open := func(v *View, g bb.Generation, want bool) Opening {
		t.Helper()
		size, pages, o := v.Agrees(entry(g))
		if !size || pages != want {
			t.Errorf("generation %d: size %v, pages kept %v, want %v", g, size, pages, want)
		}
		return o
	}

	v := fresh()
	v.Dropped(open(v, 1, false))
	open(v, 1, true)
	open(v, 2, false) // its opener has not read
	open(v, 2, false) // so the kernel may still have the pages of generation 1

	v = fresh()
	first := open(v, 1, false)
	second := open(v, 1, false)
	v.Dropped(first)
	open(v, 1, false) // the second opening's pages are not known
	v.Dropped(second)
	open(v, 1, false) // nor are they after the third one's
	v.Dropped(open(v, 1, false))
	open(v, 1, true)

	v = fresh()
	o := open(v, 1, false)
	v.Wrote(5)
	v.Dropped(o)
	open(v, 1, false)

	for _, failed := range []bool{false, true} {
		v = fresh()
		v.Writing(0)
		v.Wrote(10)
		if failed {
			v.Forget()
		}
		v.Closed(3)
		open(v, 3, !failed)
	}

	for _, again := range []bool{false, true} { // bytes of others are in the pages beside those of a direct write
		v = new(View)
		v.Writing(0)
		v.Wrote(5)
		v.Passed(10)
		if again {
			v.Wrote(10)
		}
		v.Closed(3)
		v.Dropped(open(v, 3, false))
		open(v, 3, true)
	}

	v = fresh()
	growing := &client.Entry{Size: 10, Generation: 1, State: client.StateOpen}
	_, _, o = v.Agrees(growing)
	v.Dropped(o)
	open(v, 1, false)
	if size, pages, _ := v.Agrees(&client.Entry{Size: 11, Generation: 1, State: client.StateClean}); size || pages {
		t.Errorf("another size agrees: %v, %v", size, pages)
	}
}
