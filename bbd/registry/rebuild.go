package registry

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/aside"
	"forebay/bbd/call"
	"forebay/bbd/fate"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta"
)

// maxRebuilt bounds how many files the answer to a request to rebuild names. Events and the log name all.
const maxRebuilt = 1000

// Rebuild answers a request to rebuild the namespace of a buffer that was set aside, since its log is gone or
// damaged, from memory. The buffer is served when it returns. Of a buffer that is served it does nothing,
// so it can be repeated. A daemon that ends meanwhile goes on with it at its next start.
func (s *Service[B]) Rebuild(ctx context.Context, r call.Request, m *wire.BufferName) (proto.Message, error) {
	const op = "buffer rebuild"
	kept, is := s.o.Aside.Find(m.Name)
	if is && !tokenFits(r, &kept.Spec) || !is && r.Token() != nil {
		return nil, bb.E(bb.Permission, op, address(m.Name), "the token is not for this buffer")
	}
	if !is {
		b, err := s.For(ctx, r, op, m.Name)
		if err != nil {
			return nil, err
		}
		if !r.Caller().Owns(b.Spec().UID) {
			return nil, access.Denied(op, address(m.Name), "rebuild another user's buffer")
		}
		return &wire.BufferRebuilt{Served: true}, nil
	}
	if !r.Caller().Owns(kept.Spec.UID) {
		return nil, access.Denied(op, address(m.Name), "rebuild another user's buffer")
	}
	answer, err := s.rebuild(ctx, &kept)
	if err != nil {
		return nil, bb.Wrap(op, address(m.Name), err)
	}
	return answer, nil
}

func (s *Service[B]) rebuild(ctx context.Context, kept *aside.Buffer) (*wire.BufferRebuilt, error) {
	if !kept.Rebuilds {
		return nil, bb.E(bb.Unsupported, "rebuild", kept.Spec.Name, "the buffer is set aside for another reason than a log that is gone or damaged").
			WithRemedy(kept.Err.Remedy)
	}
	unlock, err := s.o.Table.Lock(ctx, kept.Spec.Name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	ctx = s.ctx // carried through, as a creation
	now, is := s.o.Aside.Find(kept.Spec.Name)
	switch {
	case !is && s.served(&kept.Spec):
		return &wire.BufferRebuilt{Served: true}, nil
	case !is || !now.Spec.Created.Equal(kept.Spec.Created):
		return nil, bb.E(bb.NotFound, "rebuild", kept.Spec.Name, "the buffer was destroyed meanwhile")
	}
	held := s.o.Held(kept.Spec.Name)
	has, err := s.o.Records.BeginAnew(ctx, kept.Spec, func(e *bb.Entry) bool { return fate.Salvage(e, held[e.File], kept.Spec.Codec, s.whole) })
	if err != nil {
		return nil, err
	}
	b, was, err := s.restore(ctx, kept.Spec.Name)
	if err != nil {
		return nil, err
	}
	if err := s.o.Compare(ctx, b, held, &was); err != nil {
		s.o.Log.Warn("the store could not be asked for all files that were evicted before the namespace of their buffer was rebuilt", "buffer", kept.Spec.Name, "err", err)
	}
	answer := describe(&was, &has)
	s.o.Log.Warn("the namespace of a buffer was rebuilt from memory", "buffer", kept.Spec.Name, "files", answer.Files, "directories", answer.Directories, "read", answer.Read,
		"aside", answer.Aside, "kept", answer.Kept, "on_store", answer.OnStore, "lost", answer.Lost, "links", answer.Links, "transactions", answer.Committed)
	return answer, s.o.Aside.Restored(&kept.Spec)
}

// whole reports whether memory has all of the content of a closed file's entry.
func (s *Service[B]) whole(e *bb.Entry) bool {
	sum, size, err := s.o.Store.Checksum(e.File, e.Generation)
	return err == nil && size == e.Size && sum == e.Checksum
}

// served reports whether the buffer of a record is served.
func (s *Service[B]) served(spec *bb.Buffer) bool {
	var none B
	b := s.o.Table.Served(spec.Name)
	return b != none && b.Spec().Created.Equal(spec.Created)
}

// restore attaches a buffer and restores its files, which callers do not see until all are restored. After an error
// the daemon has all that it had before.
func (s *Service[B]) restore(ctx context.Context, name string) (b B, was fate.Reassertion, err error) {
	spec, err := s.o.Records.Buffer(ctx, name)
	if err != nil {
		return b, was, err
	}
	done := s.o.Table.restoring(name)
	defer done()
	if b, err = s.attach(ctx, spec); err != nil {
		return b, was, err
	}
	if was, err = s.o.Restore(ctx, b); err != nil {
		s.o.Table.remove(b)
		s.detach(b)
		s.forgetStore(name)
	}
	return b, was, err
}

// describe describes the fates of files.
func describe(was *fate.Reassertion, has *meta.Anew) *wire.BufferRebuilt {
	m := &wire.BufferRebuilt{
		Directories: int64(has.Directories), Read: int64(has.Files), Links: int64(has.Specials), Committed: int64(has.Decided),
		Files: int64(len(was.Remade)), Aside: int64(len(was.SetAside)), Kept: int64(len(was.Left)), OnStore: int64(len(was.OnStore)), Lost: int64(len(was.Lost)),
	}
	add := func(f *wire.RebuiltFile) {
		if len(m.Found) < maxRebuilt {
			m.Found = append(m.Found, f)
		}
	}
	for became, all := range was.Unrestored() {
		for i := range all {
			add(&wire.RebuiltFile{Path: all[i].Name(), Bytes: all[i].Bytes, Became: became, Reason: all[i].Reason})
		}
	}
	for i := range has.Replaces {
		add(&wire.RebuiltFile{Path: has.Replaces[i].Destination, Became: "not-replaced", Reason: "transaction " + has.Replaces[i].ID.String() + " was to replace what was there"})
	}
	for _, path := range was.SetAside {
		add(&wire.RebuiltFile{Path: path, Became: "aside"})
	}
	return m
}
