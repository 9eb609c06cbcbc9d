package registry

import (
	"context"
	"slices"
	"strings"

	"forebay/bbd/lockrank"
	"forebay/bbd/namelock"
	"forebay/internal/lockorder"
)

// Table has the buffers that a daemon serves, by name. The zero one is empty. It is safe for concurrent use.
type Table[B Buffer] struct {
	mu       lockorder.Mutex[lockrank.Buffers]
	byName   map[string]B
	restored map[string]struct{} // those of byName whose files are still being restored; in no list
	changing namelock.Locks      // see Lock
}

// Served returns a buffer that this daemon serves already, or the zero B if it does not.
func (t *Table[B]) Served(name string) B {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}

// All returns the buffers that this daemon serves, in order of their names.
func (t *Table[B]) All() []B {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]B, 0, len(t.byName))
	for name, b := range t.byName {
		if _, is := t.restored[name]; !is {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(x, y B) int { return strings.Compare(x.Name(), y.Name()) })
	return all
}

// names returns the names of the buffers.
func (t *Table[B]) names() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := make([]string, 0, len(t.byName))
	for name := range t.byName {
		names = append(names, name)
	}
	return names
}

// Lock waits until no buffer of a name is being made, attached or deleted here, and keeps it so until unlock. The
// error is that of ctx.
func (t *Table[B]) Lock(ctx context.Context, name string) (unlock func(), err error) {
	return t.changing.Lock(ctx, name)
}

// restoring keeps a name's buffer, which attach adds next, out of the list and from callers, until done.
func (t *Table[B]) restoring(name string) (done func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.restored == nil {
		t.restored = make(map[string]struct{})
	}
	t.restored[name] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.restored, name)
	}
}

// isRestoring reports whether the files of a name's buffer are still being restored.
func (t *Table[B]) isRestoring(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, is := t.restored[name]
	return is
}

// put adds a buffer, in place of one of its name.
func (t *Table[B]) put(b B) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = make(map[string]B)
	}
	t.byName[b.Name()] = b
}

// remove removes a buffer, and reports whether it was there, since another one may have its name.
func (t *Table[B]) remove(b B) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName[b.Name()] != b {
		return false
	}
	delete(t.byName, b.Name())
	return true
}
