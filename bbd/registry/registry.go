// Package registry has the buffers that a daemon serves. They are made, attached, found, followed as other
// daemons change them, set aside and destroyed. It must never depend on the work on the files of a
// buffer.
//
//	            create, or first request here             destroyed, here or by another daemon
//	recorded ──────────────────────────────────▶ served ──────────────────────────────────────▶ gone
//	   │        start                              │
//	   └───────────────▶ recovered ────────────────┘
//	                         │ fails, and the buffer is the reason
//	                         ▼
//	                     set aside (package aside)
package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/aside"
	"forebay/bbd/call"
	"forebay/internal/bb"
	"forebay/meta"
)

// Find returns a buffer. One that another daemon has made is attached.
func (s *Service[B]) Find(ctx context.Context, name string) (b B, err error) {
	var none B
	if err := bb.CheckBufferName(name); err != nil {
		return none, err
	}
	b = s.o.Table.Served(name)
	if kept, is := s.o.Aside.Find(name); is && (b == none || s.o.Table.isRestoring(name)) {
		return none, kept.Err
	}
	if b == none && s.o.Cluster != nil {
		return s.lookUp(ctx, name)
	}
	if b == none {
		return none, s.missing(ctx, name)
	}
	return b, nil
}

// missing is the error for a buffer that this daemon, which is alone, does not serve, since its record may be one
// that this release cannot read.
func (s *Service[B]) missing(ctx context.Context, name string) error {
	_, err := s.o.Records.Buffer(ctx, name)
	if kind := bb.KindOf(err); kind == bb.Unsupported || kind == bb.Checksum {
		return bb.Wrap("buffer", name, err)
	}
	return bb.E(bb.NotFound, "buffer", name, "there is no such buffer").WithRemedy("see bbctl buffer list")
}

// For returns a buffer that the session's user may enter.
func (s *Service[B]) For(ctx context.Context, of call.Visitor, op, name string) (b B, err error) {
	var none B
	b, err = s.tokens(ctx, of, op, name)
	if err != nil {
		return none, bb.Wrap(op, address(name), err)
	}
	spec := b.Spec()
	if !of.Caller().Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
		return none, access.Denied(op, address(name), "enter this buffer")
	}
	return b, nil
}

// tokens checks the session's token, before the answer shows whether a buffer of another name
// is there.
func (s *Service[B]) tokens(ctx context.Context, of call.Visitor, op, name string) (b B, err error) {
	var none B
	refused := func() error { return bb.E(bb.Permission, op, address(name), "the token is not for this buffer") }
	if token := of.Token(); token != nil && name != token.Buffer {
		return none, refused()
	}
	b, err = s.Find(ctx, name)
	if err != nil {
		return none, err
	}
	if spec := b.Spec(); !tokenFits(of, &spec) {
		return none, refused()
	}
	return b, nil
}

// tokenFits reports whether the session's token, if it has one, is for a buffer.
func tokenFits(of call.Visitor, spec *bb.Buffer) bool {
	token := of.Token()
	return token == nil || spec.Name == token.Buffer && spec.Created.Equal(token.Created)
}

// Specs returns the records of all buffers there are, in order of their names.
func (s *Service[B]) Specs(ctx context.Context) (specs []bb.Buffer, err error) {
	if s.o.Cluster != nil {
		specs, err = s.o.Records.Buffers(ctx)
	} else {
		for _, b := range s.o.Table.All() {
			specs = append(specs, b.Spec())
		}
		for _, b := range s.o.Aside.Buffers() {
			specs = append(specs, b.Spec)
		}
	}
	slices.SortFunc(specs, func(x, y bb.Buffer) int { return strings.Compare(x.Name, y.Name) })
	return specs, err
}

// Existing returns all existing buffers, and attaches those that only other
// daemons have served so far.
func (s *Service[B]) Existing(ctx context.Context) ([]B, error) {
	if s.o.Cluster == nil {
		return s.o.Table.All(), nil
	}
	specs, err := s.o.Records.Buffers(ctx)
	if err != nil {
		return nil, err
	}
	var all []B
	for i := range specs {
		b, err := s.Find(ctx, specs[i].Name)
		if bb.KindOf(err) == bb.NotFound {
			continue // destroyed meanwhile
		}
		if err != nil {
			return all, err
		}
		all = append(all, b)
	}
	return all, nil
}

// attach makes a buffer one that this daemon serves.
func (s *Service[B]) attach(ctx context.Context, spec bb.Buffer) (b B, err error) {
	ns, err := s.o.Records.Namespace(ctx, spec.Name)
	if err != nil {
		return b, err
	}
	b = s.o.Open(spec, ns)
	s.o.Stores.LookUp(spec.Backing)
	s.o.Table.put(b)
	return b, nil
}

// lookUp attaches a buffer that another daemon has made.
func (s *Service[B]) lookUp(ctx context.Context, name string) (b B, err error) {
	var none B
	unlock, err := s.o.Table.Lock(ctx, name)
	if err != nil {
		return none, err
	}
	defer unlock()
	if b = s.o.Table.Served(name); b != none {
		return b, nil
	}
	spec, err := s.o.Records.Buffer(ctx, name)
	if err != nil {
		return none, err
	}
	return s.attach(ctx, spec)
}

// Follow follows the buffers that other daemons change and destroy, until the daemon stops. These
// include buffers that they have destroyed since this one attached them.
func (s *Service[B]) Follow() {
	for s.ctx.Err() == nil {
		known := s.o.Table.names()
		for _, kept := range s.o.Aside.Buffers() {
			known = append(known, kept.Spec.Name)
		}
		err := s.o.Records.WatchBuffers(s.ctx, known, s.changed)
		if s.ctx.Err() == nil {
			s.o.Log.Warn("following the buffers that others change", "err", err)
			select {
			case <-time.After(time.Second):
			case <-s.ctx.Done():
			}
		}
	}
}

// changed follows one change of another daemon.
func (s *Service[B]) changed(now meta.BufferChange) {
	unlock, err := s.o.Table.Lock(s.ctx, now.Name)
	if err != nil {
		return // the daemon stops
	}
	defer unlock()
	var none B
	b := s.o.Table.Served(now.Name)
	if b == none {
		s.o.Aside.Changed(now.Name, now.Buffer)
		return // attached at the first request for it
	}
	known := b.Spec()
	same := now.Buffer != nil && now.Buffer.Created.Equal(known.Created)
	if same && now.Buffer.Revision > known.Revision {
		b.Replace(*now.Buffer)
	}
	older := now.Buffer != nil && now.Buffer.Created.Before(known.Created)
	if same || older {
		return
	}
	if now.Buffer == nil {
		// It may have been made anew under its name since.
		if _, err := s.o.Records.Buffer(s.ctx, now.Name); bb.KindOf(err) != bb.NotFound {
			return // the watch reports that, too
		}
	}
	s.o.Table.remove(b)
	s.drop(b)
}

// Recover attaches a buffer at a start, and calls restore with it. A buffer that another daemon destroys
// meanwhile is dropped. One that cannot be recovered is set aside, and memory's part of it is in kept. One
// buffer keeps no daemon from starting. Errors are those that are not of the buffer alone.
func (s *Service[B]) Recover(ctx context.Context, spec bb.Buffer, restore func(B) error) (kept []bb.FileID, err error) {
	var none B
	b, err := s.attach(ctx, spec)
	if err == nil {
		if err = restore(b); err == nil {
			return nil, s.o.Aside.DamageNotes().Forget(&spec)
		}
	}
	if bb.KindOf(err) != bb.NotFound {
		return s.SetAside(ctx, spec, b, err)
	}
	now, lookupErr := s.o.Records.Buffer(ctx, spec.Name)
	if bb.KindOf(lookupErr) != bb.NotFound {
		if lookupErr != nil || now.State != bb.BufferDestroying && now.Created.Equal(spec.Created) {
			return s.SetAside(ctx, spec, b, err)
		}
	}
	if b != none {
		s.o.Table.remove(b)
		s.drop(b)
	}
	return nil, nil
}

// SetAside ends the use of a buffer whose recovery has failed, with all that memory has of it kept. B is the zero
// one if it could not be attached.
func (s *Service[B]) SetAside(ctx context.Context, spec bb.Buffer, b B, why error) (kept []bb.FileID, err error) {
	var none B
	if !aside.Concerns(why) || ctx.Err() != nil {
		return nil, why
	}
	if b != none {
		s.o.Table.remove(b)
		s.detach(b)
		s.forgetStore(b.Name())
	}
	held := s.o.Held(spec.Name)
	for file := range held {
		kept = append(kept, file)
	}
	return kept, s.o.Aside.Put(spec, held, s.o.Damage(spec.Name), why)
}
