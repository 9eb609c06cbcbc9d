// Package aside lists what a daemon keeps in memory and does not serve: buffers whose namespace
// could not be read at the start, and files of buffers that the namespace does not have. It must
// never know how a buffer is read, and touches no bytes.
//
//	            recovery fails, and the buffer is the reason
//	recorded ────────────────────────────────────────────────▶ set aside: calls fail, all bytes stay
//	   ▲                                                          │   │
//	   └─────────── the daemon starts again ◀─────────────────────┘   └─▶ destroyed with --discard
package aside

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"forebay/bbd/fate"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Buffer is a buffer that was set aside.
type Buffer struct {
	Spec         bb.Buffer
	Err          *bb.Error // why, with the remedy
	Files        int       // that memory has of it
	Bytes, Dirty int64     // of these files; dirty: not known to be on the store
}

// List is what is kept. It is safe for concurrent use.
type List struct {
	mu      lockorder.Mutex[lockrank.Leaf]
	buffers map[string]Buffer
	files   map[string][]fate.Unexplained // by buffers that the namespace does not have
}

// Concerns reports whether an error of a buffer's recovery is due to the buffer alone. The other
// errors are of the namespace's server, or end with another try.
func Concerns(err error) bool {
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Cancelled, bb.Busy:
		return false
	}
	return err != nil
}

// Put sets a buffer aside, for an error of its recovery, and returns the entry of the list. Held is
// what memory has of the buffer's files.
func (l *List) Put(spec bb.Buffer, held map[bb.FileID]*fate.Held, why error) Buffer {
	b := Buffer{Spec: spec, Err: refusal(spec.Name, why), Files: len(held)}
	for _, h := range held {
		b.Bytes += h.Resident
		b.Dirty += h.Dirty
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buffers == nil {
		l.buffers = make(map[string]Buffer)
	}
	l.buffers[spec.Name] = b
	return b
}

// refusal is the error of calls for a buffer that was set aside.
func refusal(name string, why error) *bb.Error {
	address := bb.Address{Buffer: name}.String()
	reason, remedy := (&bb.Error{Path: address, Err: why}).Why()
	if remedy == "" {
		remedy = "mend the cause"
	}
	return &bb.Error{
		Kind: bb.KindOf(why), Op: "buffer", Path: address,
		Err:    fmt.Errorf("the buffer was set aside when the daemon started, since its namespace cannot be read: %s", reason),
		Remedy: remedy + ", and start the daemon again; its files stay in memory until then; or, if nothing of the buffer is wanted: bbctl buffer destroy --discard " + name,
	}
}

// Remove removes a buffer that was destroyed.
func (l *List) Remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.buffers, name)
}

// Find returns a buffer that was set aside.
func (l *List) Find(name string) (Buffer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buffers[name]
	return b, ok
}

// Buffers returns the buffers that were set aside, in order of their names.
func (l *List) Buffers() []Buffer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.buffers), func(x, y Buffer) int { return strings.Compare(x.Spec.Name, y.Spec.Name) })
}

// Keep adds a file of a buffer that the namespace does not have.
func (l *List) Keep(buffer string, u fate.Unexplained) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.files == nil {
		l.files = make(map[string][]fate.Unexplained)
	}
	l.files[buffer] = append(l.files[buffer], u)
}

// Files returns the files whose buffers the namespace does not have, by buffer.
func (l *List) Files() map[string][]fate.Unexplained {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.files)
}
