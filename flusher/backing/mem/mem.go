// Package mem keeps objects in memory, for tests. On a simulated crash it drops everything that a
// Put had not yet made durable, and it can be stopped at each step of a Put. It must never be put
// in front of data that matters.
package mem

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Step is a point in a Put at which it can be stopped.
type Step string

// The steps of a Put, in order.
const (
	StepBegun   Step = "begun"   // unfinished work exists
	StepWritten Step = "written" // all bytes are there, under no name
	StepVisible Step = "visible" // under the final name
)

// Store is a set of objects in memory. The zero value is not usable. See New.
type Store struct {
	owner backing.Owner
	at    func(ctx context.Context, name string, step Step) error

	mu      sync.Mutex
	closed  bool
	objects map[string]content
	temps   map[string]time.Time // unfinished Puts, by temporary name
	version uint64
	puts    map[string]int // completed Puts by name
}

type content struct {
	bytes []byte
	sum   uint64
	etag  string
	mtime time.Time
	link  bool
}

var _ backing.Store = (*Store)(nil)

// New returns an empty store. At is called at each step of each Put, and fails the Put with its
// error, leaving the remains of a crash. nil means no calls.
func New(owner backing.Owner, at func(ctx context.Context, name string, step Step) error) *Store {
	if at == nil {
		at = func(context.Context, string, Step) error { return nil }
	}
	return &Store{
		owner: owner, at: at,
		objects: map[string]content{}, temps: map[string]time.Time{}, puts: map[string]int{},
	}
}

// Reopen returns a store of the same objects, as for another life of its owner. The old one is
// closed.
func (s *Store) Reopen(owner backing.Owner) *Store {
	n := New(owner, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	n.objects, n.temps, n.version = s.objects, s.temps, s.version
	s.objects, s.temps = map[string]content{}, map[string]time.Time{}
	return n
}

// Damage changes a byte of an object.
func (s *Store) Damage(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.objects[name]
	if !ok || len(c.bytes) == 0 {
		return notFound("damage", name)
	}
	c.bytes = slices.Clone(c.bytes)
	c.bytes[len(c.bytes)/2] ^= 1
	s.objects[name] = c
	return nil
}

// Contents returns a copy of all objects.
func (s *Store) Contents() map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string][]byte, len(s.objects))
	for name, c := range s.objects {
		all[name] = slices.Clone(c.bytes)
	}
	return all
}

// Puts returns how many Puts of a name were completed.
func (s *Store) Puts(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts[name]
}

func notFound(op, name string) error { return bb.E(bb.NotFound, op, name, "no object has this name") }

// enter does the checks common to all calls. mu must be held.
func (s *Store) enter(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return bb.Wrap(op, name, err)
	}
	if s.closed {
		return bb.E(bb.Unavailable, op, name, "store is closed")
	}
	return nil
}

// Put copies the bytes part by part and then makes them visible.
func (s *Store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	if err := backing.CheckName("put", name); err != nil {
		return backing.Object{}, err
	}
	temp := path.Join(path.Dir(name), s.owner.TempName())
	if err := s.begin(ctx, temp, name); err != nil {
		return backing.Object{}, err
	}
	if err := s.at(ctx, name, StepBegun); err != nil {
		return backing.Object{}, bb.Wrap("put", name, err)
	}
	bytes, err := read(ctx, name, src)
	if err != nil {
		s.forget(temp)
		return backing.Object{}, err
	}
	if err := s.at(ctx, name, StepWritten); err != nil {
		return backing.Object{}, bb.Wrap("put", name, err)
	}
	if err := opts.LastStep(ctx); err != nil {
		s.forget(temp)
		return backing.Object{}, bb.Wrap("put", name, err)
	}
	o, err := s.publish(ctx, temp, name, bytes, src.Checksum(), &opts)
	if err == nil {
		err = bb.Wrap("put", name, s.at(ctx, name, StepVisible))
	}
	return o, err
}

func (s *Store) begin(ctx context.Context, temp, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, "put", name); err != nil {
		return err
	}
	s.temps[temp] = time.Now()
	return nil
}

func (s *Store) forget(temp string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.temps, temp)
}

// read copies the source in parts, as the others do.
func read(ctx context.Context, name string, src backing.Source) ([]byte, error) {
	const part = 1 << 20
	bytes := make([]byte, src.Size())
	sum, err := backing.InParts(ctx, src.Size(), part, 2, func(_ context.Context, _ int, off, n int64) (uint64, error) {
		pieces, sum, err := backing.ReadSource(name, src, nil, off, n)
		if err != nil {
			return 0, err
		}
		return sum, backing.Touch(name, func() error {
			for _, p := range pieces {
				off += int64(copy(bytes[off:], p))
			}
			return nil
		})
	})
	if err != nil {
		return nil, bb.Wrap("put", name, err)
	}
	return bytes, backing.CheckSource(name, src, sum)
}

func (s *Store) publish(ctx context.Context, temp, name string, bytes []byte, sum uint64, opts *backing.PutOptions) (backing.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.temps, temp)
	if err := s.enter(ctx, "put", name); err != nil {
		return backing.Object{}, err
	}
	if there, ok := s.objects[name]; ok && !opts.MayReplace(there.object(name).ETag) {
		return backing.Object{}, backing.Foreign("put", name)
	}
	s.version++
	s.puts[name]++
	c := content{bytes, sum, fmt.Sprintf("v%d", s.version), time.Now(), opts.Attrs.IsLink()}
	s.objects[name] = c
	return c.object(name), nil
}

func (c content) object(name string) backing.Object {
	o := backing.Object{Name: name, Size: int64(len(c.bytes)), ETag: c.etag, Checksum: c.sum, HasChecksum: true, MTime: c.mtime}
	if c.link {
		o.Mode, o.HasMode = fs.ModePerm|fs.ModeSymlink, true
	}
	return o
}

func (s *Store) find(ctx context.Context, op, name string) (content, error) {
	if err := backing.CheckName(op, name); err != nil {
		return content{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, op, name); err != nil {
		return content{}, err
	}
	c, ok := s.objects[name]
	if !ok {
		return content{}, notFound(op, name)
	}
	return c, nil
}

// Get reads a range. Contents never change once they are stored.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := backing.CheckRange("get", name, off); err != nil {
		return nil, err
	}
	c, err := s.find(ctx, "get", name)
	if err != nil {
		return nil, err
	}
	rest := c.bytes[min(off, int64(len(c.bytes))):]
	short := n > int64(len(rest))
	if n >= 0 && !short {
		rest = rest[:n]
	}
	return &reader{ctx: ctx, name: name, rest: rest, short: short}, nil
}

type reader struct {
	ctx   context.Context
	name  string
	rest  []byte
	short bool
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, bb.Wrap("get", r.name, err)
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case r.short:
		return 0, io.ErrUnexpectedEOF
	default:
		return 0, io.EOF
	}
}

func (r *reader) Close() error { return nil }

// Stat describes an object.
func (s *Store) Stat(ctx context.Context, name string) (backing.Object, error) {
	c, err := s.find(ctx, "stat", name)
	if err != nil {
		return backing.Object{}, err
	}
	return c.object(name), nil
}

// List calls fn for a snapshot.
func (s *Store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	objects, err := s.snapshot(ctx, prefix)
	for _, o := range objects {
		if err = errors.Join(err, bb.Wrap("list", prefix, ctx.Err())); err != nil {
			return err
		}
		if err = fn(o); err != nil {
			return err
		}
	}
	return err
}

// Others finds nothing, since the store holds objects only.
func (s *Store) Others(ctx context.Context, _ string, _ func(backing.Other) error) error {
	return bb.Wrap("list", "", ctx.Err())
}

func (s *Store) snapshot(ctx context.Context, prefix string) ([]backing.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []backing.Object
	for name, c := range s.objects {
		if strings.HasPrefix(name, prefix) {
			o := c.object(name)
			o.Checksum, o.HasChecksum = 0, false
			objects = append(objects, o)
		}
	}
	return objects, s.enter(ctx, "list", prefix)
}

// Rename moves an object or a tree at once.
func (s *Store) Rename(ctx context.Context, old, newName string) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, "rename", old); err != nil {
		return err
	}
	moved := map[string]content{}
	for name, c := range s.objects {
		if name == old || strings.HasPrefix(name, old+"/") {
			moved[newName+name[len(old):]] = c
			delete(s.objects, name)
		}
	}
	maps.Copy(s.objects, moved)
	if len(moved) == 0 {
		return notFound("rename", old)
	}
	return nil
}

// RenameIf moves an object at once.
func (s *Store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, "rename", old); err != nil {
		return err
	}
	from, there := s.objects[old]
	switch {
	case !there:
		return notFound("rename", old)
	case s.versionOf(old) != is:
		return backing.Foreign("rename", old)
	case old == newName:
		return nil
	}
	if now := s.versionOf(newName); now != (backing.Version{}) && now != replaces {
		return backing.Foreign("rename", newName)
	}
	delete(s.objects, old)
	s.objects[newName] = from
	return nil
}

// versionOf is of the object that has a name now. mu must be held.
func (s *Store) versionOf(name string) backing.Version {
	c, ok := s.objects[name]
	if !ok {
		return backing.Version{}
	}
	return backing.Version{ETag: c.etag, Size: int64(len(c.bytes))}
}

// RemoveIf removes an object at once.
func (s *Store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, "remove", name); err != nil {
		return err
	}
	if now := s.versionOf(name); now != (backing.Version{}) && now != is {
		return backing.Foreign("remove", name)
	}
	delete(s.objects, name)
	return nil
}

// Remove removes an object.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	return s.enter(ctx, "remove", name)
}

// RemoveTree removes an object and all below it.
func (s *Store) RemoveTree(ctx context.Context, name string) error {
	if name != "" {
		if err := backing.CheckName("remove tree", name); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.enter(ctx, "remove tree", name); err != nil {
		return err
	}
	for n := range s.objects {
		if name == "" || n == name || strings.HasPrefix(n, name+"/") {
			delete(s.objects, n)
		}
	}
	return nil
}

// MakeDir does nothing, since there are no directories.
func (s *Store) MakeDir(ctx context.Context, name string, _ backing.DirOptions) error {
	if err := backing.CheckName("make directory", name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(ctx, "make directory", name)
}

// SetMode does nothing, since objects have no mode.
func (s *Store) SetMode(ctx context.Context, name string, _ backing.Attrs) error {
	_, err := s.find(ctx, "change mode", name)
	return err
}

// RemoveDir does nothing, since there are no directories.
func (s *Store) RemoveDir(ctx context.Context, name string) error {
	if err := backing.CheckName("remove directory", name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(ctx, "remove directory", name)
}

// Check succeeds until the store is closed.
func (s *Store) Check(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.enter(ctx, "check", "mem")
}

// Sweep drops abandoned Puts.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	swept := 0
	for temp, begun := range s.temps {
		if s.owner.Abandoned(temp, time.Since(begun)) {
			delete(s.temps, temp)
			swept++
		}
	}
	return swept, s.enter(ctx, "sweep", "mem")
}

// Leftovers lists Puts that have not ended.
func (s *Store) Leftovers(ctx context.Context, in backing.Within) (found []backing.Leftover, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for temp := range s.temps {
		l := backing.Leftover{Name: temp, Instance: backing.InstanceOf(temp), Ended: s.owner.Ended(temp)}
		if l.Removed = l.Ended && in.Remove; l.Removed {
			delete(s.temps, temp)
		}
		found = append(found, l)
	}
	return found, s.enter(ctx, "sweep", "mem")
}

// Close makes all further calls fail.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// Sum returns the checksum of an object's bytes as they are now.
func (s *Store) Sum(name string) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.objects[name]
	return checksum.Sum(c.bytes), ok
}
