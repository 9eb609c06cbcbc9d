// Package aside has the content of a daemon's memory that it does not serve: buffers whose namespace
// could not be read at the start, and files of buffers that the namespace does not have. It must
// never depend on the reading of a buffer, and touches no bytes of files.
//
//	            recovery fails, and the buffer is the reason
//	recorded ────────────────────────────────────────────────▶ set aside: calls fail, all bytes stay
//	   ▲                                                          │   │
//	   ├─────────── the daemon starts again ◀─────────────────────┤   └─▶ destroyed, here with --discard or elsewhere
//	   └─────────── rebuilt: served at once ◀─────────────────────┘
package aside

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"forebay/bbd/access"
	"forebay/bbd/fate"
	"forebay/bbd/lockrank"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// Buffer is a buffer that was set aside.
type Buffer struct {
	Spec         bb.Buffer
	Err          *bb.Error // why, with the remedy
	Rebuilds     bool      // its namespace can be rebuilt from memory
	Files        int       // that memory has of it
	Bytes, Dirty int64     // of these files; dirty: possibly not on the store
}

// Options are the parts of its daemon that a list needs. Its functions may be called concurrently.
type Options struct {
	Context     context.Context // of changes that are carried through after their callers are gone
	DamageNotes DamageNotes
	// The buffers of the namespace, with the contracts of meta.Meta.
	Buffer        func(ctx context.Context, name string) (bb.Buffer, error)
	DestroyBuffer func(ctx context.Context, name string) error
	// Lock waits until no buffer of a name is being made or destroyed here, and keeps it so until unlock.
	Lock func(ctx context.Context, name string) (unlock func(), err error)
	Drop func(name string) // drops the daemon's parts of a buffer: bytes, and the store that is open for it
	// Rebuilds reports whether the namespace of a buffer can be rebuilt that is set aside for an error.
	Rebuilds func(error) bool
	Emit     func(bb.Event)
	Log      *slog.Logger
}

// List has the buffers and files that are kept. It is safe for concurrent use.
type List struct {
	o       Options
	mu      lockorder.Mutex[lockrank.Leaf]
	buffers map[string]Buffer
	files   map[string][]fate.Unexplained // by buffers that the namespace does not have
}

// New returns an empty list.
func New(o Options) *List { return &List{o: o} }

// DamageNotes returns the notes of buffers.
func (l *List) DamageNotes() DamageNotes { return l.o.DamageNotes }

// Concerns reports whether an error of a buffer's recovery is due to the buffer alone. The other
// errors are of the namespace's server, or end with another try.
func Concerns(err error) bool {
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Cancelled, bb.Busy:
		return false
	}
	return err != nil
}

// Put sets a buffer aside, for an error of its recovery. Held is memory's part of the buffer's files. damage
// is the note to write (DamageNotes), or "" if there is none.
func (l *List) Put(spec bb.Buffer, held map[bb.FileID]*fate.Held, damage string, why error) error {
	if damage != "" {
		if err := l.o.DamageNotes.Note(&spec, damage); err != nil {
			return err
		}
	}
	b := Buffer{Spec: spec, Rebuilds: l.o.Rebuilds(why), Files: len(held)}
	b.Err = refusal(spec.Name, why, b.Rebuilds)
	for _, h := range held {
		b.Bytes += h.Resident
		b.Dirty += h.Dirty
	}
	l.mu.Lock()
	if l.buffers == nil {
		l.buffers = make(map[string]Buffer)
	}
	l.buffers[spec.Name] = b
	l.mu.Unlock()
	l.o.Log.Error("a buffer is set aside", "buffer", spec.Name, "files", b.Files, "bytes", b.Bytes, "dirty", b.Dirty, "err", b.Err)
	l.o.Emit(bb.Event{Kind: bb.EventAside, Buffer: spec.Name, Bytes: b.Dirty, Reason: b.Err.Error()})
	return nil
}

// Destroy deletes a buffer that was set aside, with all its bytes in the daemon, for a caller that owns it.
// Another one of its name stays.
func (l *List) Destroy(ctx context.Context, c *access.Caller, spec *bb.Buffer) error {
	const op = "buffer destroy"
	address := bb.Address{Buffer: spec.Name}.String()
	if !c.Owns(spec.UID) {
		return access.Denied(op, address, "destroy another user's buffer")
	}
	unlock, err := l.o.Lock(ctx, spec.Name)
	if err != nil {
		return bb.Wrap(op, address, err)
	}
	defer unlock()
	now, err := l.o.Buffer(ctx, spec.Name)
	kept, is := l.Find(spec.Name)
	switch {
	case !is || !kept.Spec.Created.Equal(spec.Created), err == nil && !now.Created.Equal(spec.Created):
		return bb.E(bb.NotFound, op, address, "the buffer was destroyed meanwhile")
	case err == nil:
		err = l.o.DestroyBuffer(l.o.Context, spec.Name)
	}
	if err != nil && bb.KindOf(err) != bb.NotFound {
		return bb.Wrap(op, address, err)
	}
	l.drop(spec)
	l.o.Emit(bb.Event{Kind: bb.EventDestroyed, Buffer: spec.Name})
	return nil
}

// Changed notes the present record of the buffer of a name, nil if it was reported destroyed. One that was set
// aside and has been destroyed elsewhere is dropped. The caller has the name locked.
func (l *List) Changed(name string, now *bb.Buffer) {
	kept, is := l.Find(name)
	if !is {
		return
	}
	if now == nil {
		// It may have been made anew since, of which there is a change of its own.
		if _, err := l.o.Buffer(l.o.Context, name); bb.KindOf(err) != bb.NotFound {
			return
		}
	} else if !now.Created.After(kept.Spec.Created) {
		return
	}
	l.drop(&kept.Spec)
}

// drop removes a buffer that was destroyed.
func (l *List) drop(spec *bb.Buffer) {
	l.o.Drop(spec.Name)
	if err := l.o.DamageNotes.Forget(spec); err != nil {
		l.o.Log.Warn("the note of a destroyed buffer was not removed", "buffer", spec.Name, "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.buffers, spec.Name)
}

// Restored removes a buffer that is served now.
func (l *List) Restored(spec *bb.Buffer) error {
	l.mu.Lock()
	delete(l.buffers, spec.Name)
	l.mu.Unlock()
	return l.o.DamageNotes.Forget(spec)
}

// refusal is the error of calls for a buffer that was set aside.
func refusal(name string, why error, rebuilds bool) *bb.Error {
	address := bb.Address{Buffer: name}.String()
	reason, remedy := (&bb.Error{Path: address, Err: why}).Why()
	if remedy == "" {
		remedy = "remove the cause"
	}
	remedy += ", and start the daemon again; its files stay in memory until then; "
	if rebuilds {
		remedy += "without a copy, rebuild the namespace from memory: bbctl buffer rebuild " + name + "; "
	}
	return &bb.Error{
		Kind: bb.KindOf(why), Op: "buffer", Path: address,
		Err:    fmt.Errorf("the buffer was set aside when the daemon started, since its namespace cannot be read: %s", reason),
		Remedy: remedy + "or, if the buffer is not needed: bbctl buffer destroy --discard " + name,
	}
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
