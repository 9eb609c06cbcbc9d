package registry

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/aside"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/bbd/fate"
	"forebay/bbd/freeze"
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
	if c := r.Caller(); c.Relayed && c.System {
		return s.restoreOwn(ctx, m.Name)
	}
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
		answer, err := s.resume(b.Name())
		if err != nil {
			return nil, bb.Wrap(op, address(m.Name), err)
		}
		return answer, nil
	}
	if !r.Caller().Owns(kept.Spec.UID) {
		return nil, access.Denied(op, address(m.Name), "rebuild another user's buffer")
	}
	answer, err := s.rebuild(ctx, &kept)
	if err == nil {
		// Without the lock, since another daemon may rebuild it at the same time, and wait for this one.
		err = s.finish(meta.Restoring(s.ctx), m.Name, answer)
	}
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
	ctx = meta.Restoring(s.ctx) // carried through, as a creation
	now, is := s.o.Aside.Find(kept.Spec.Name)
	switch {
	case !is && s.served(&kept.Spec):
		return &wire.BufferRebuilt{Served: true}, nil
	case !is || !now.Spec.Created.Equal(kept.Spec.Created):
		return nil, bb.E(bb.NotFound, "rebuild", kept.Spec.Name, "the buffer was destroyed meanwhile")
	}
	held := s.o.Held(kept.Spec.Name)
	has, err := s.o.Records.BeginAnew(ctx, kept.Spec, func(e *bb.Entry) bool {
		return s.o.Elsewhere(e) || fate.Salvage(e, held[e.File], kept.Spec.Codec, s.whole)
	})
	if err != nil {
		return nil, err
	}
	was, err := s.restoreKept(ctx, kept, held)
	if err != nil {
		return nil, err
	}
	answer := describe(&was, &has)
	s.o.Log.Warn("the namespace of a buffer was rebuilt from memory", "buffer", kept.Spec.Name, "files", answer.Files, "directories", answer.Directories, "read", answer.Read,
		"aside", answer.Aside, "kept", answer.Kept, "on_store", answer.OnStore, "lost", answer.Lost, "links", answer.Links, "transactions", answer.Committed)
	return answer, s.o.Aside.Restored(&kept.Spec)
}

// restoreKept restores the files of a buffer that was set aside, and compares them with the store.
func (s *Service[B]) restoreKept(ctx context.Context, kept *aside.Buffer, held map[bb.FileID]*fate.Held) (fate.Reassertion, error) {
	b, was, err := s.restore(ctx, kept.Spec.Name)
	if err != nil {
		return was, err
	}
	if err := s.o.Compare(ctx, b, held, &was); err != nil {
		s.o.Log.Warn("the store could not be asked for all files that were evicted before the namespace of their buffer was rebuilt", "buffer", kept.Spec.Name, "err", err)
	}
	return was, nil
}

// restoreOwn restores the files of this daemon in a buffer that another one rebuilds.
func (s *Service[B]) restoreOwn(ctx context.Context, name string) (*wire.BufferRebuilt, error) {
	unlock, err := s.o.Table.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	kept, is := s.o.Aside.Find(name)
	if !is {
		return &wire.BufferRebuilt{Served: true}, nil
	}
	was, err := s.restoreKept(meta.Restoring(s.ctx), &kept, s.o.Held(name))
	if err != nil {
		return nil, err
	}
	s.o.Log.Warn("the files of this node are restored in a namespace that was rebuilt", "buffer", name, "files", len(was.Remade), "aside", len(was.SetAside), "kept", len(was.Left), "lost", len(was.Lost))
	return describe(&was, &meta.Anew{}), s.o.Aside.Restored(&kept.Spec)
}

// resume continues to rebuild the namespace of a buffer that is not set aside here. That has ended early, or there is
// nothing to do.
func (s *Service[B]) resume(name string) (*wire.BufferRebuilt, error) {
	ctx := meta.Restoring(s.ctx)
	if rebuilding, err := s.o.Records.Rebuilding(ctx, name); err != nil || !rebuilding {
		return &wire.BufferRebuilt{Served: true}, err
	}
	answer := &wire.BufferRebuilt{}
	return answer, s.finish(ctx, name, answer)
}

// finish has all other daemons restore their files, adds the fates of these, and has the namespace used from then on.
func (s *Service[B]) finish(ctx context.Context, name string, answer *wire.BufferRebuilt) error {
	if s.o.Cluster == nil {
		return nil
	}
	for _, node := range freeze.Serving(s.o.Cluster) {
		var theirs wire.BufferRebuilt
		session, err := s.o.Cluster.Session(ctx, node, cluster.Who(access.Daemon()))
		if err == nil {
			_, err = session.Ask(ctx, wire.Type_TYPE_BUFFER_REBUILD, &wire.BufferName{Name: name}, nil, &theirs)
		}
		if err != nil {
			return (&bb.Error{Kind: bb.KindOf(err), Op: "rebuild", Path: name, Node: node, Err: fmt.Errorf("node %s has not restored its files, so that no file can be used yet: %w", node, err)}).
				WithRemedy("repeat it when that daemon is there")
		}
		answer.Files, answer.Aside, answer.Kept = answer.Files+theirs.Files, answer.Aside+theirs.Aside, answer.Kept+theirs.Kept
		answer.OnStore, answer.Lost = answer.OnStore+theirs.OnStore, answer.Lost+theirs.Lost
		answer.Found = append(answer.Found, theirs.Found[:min(len(theirs.Found), maxRebuilt-len(answer.Found))]...)
	}
	return s.o.Records.Rebuilt(ctx, name)
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
