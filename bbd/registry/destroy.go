package registry

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/freeze"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Destroy answers a request to destroy a buffer.
func (s *Service[B]) Destroy(ctx context.Context, r call.Request, m *wire.BufferDestroy) (proto.Message, error) {
	if kept, is := s.o.Aside.Find(m.Name); is && m.Discard && tokenFits(r, &kept.Spec) {
		return &wire.Empty{}, s.o.Aside.Destroy(ctx, r.Caller(), &kept.Spec)
	}
	b, err := s.For(ctx, r, "buffer destroy", m.Name)
	if err != nil {
		return nil, err
	}
	if !r.Caller().Owns(b.Spec().UID) {
		return nil, access.Denied("buffer destroy", address(m.Name), "destroy another user's buffer")
	}
	may := b.Saved
	if m.Discard {
		may = nil
	}
	if err := s.DestroyIf(ctx, b, may); err != nil {
		return nil, bb.Wrap("buffer destroy", address(m.Name), err)
	}
	return &wire.Empty{}, nil
}

// DestroyIf deletes a buffer if may, which is called while no daemon changes the buffer, returns
// nil (contract 11). Without may, all its content goes.
func (s *Service[B]) DestroyIf(ctx context.Context, b B, may func(context.Context) error) error {
	held, err := s.o.Flusher.Hold(ctx, b.Name(), "")
	if err != nil {
		return err
	}
	defer held.Release()
	if may == nil {
		return s.delete(ctx, b)
	}
	frozen, err := freeze.Everywhere(ctx, b.Gate(), s.o.Cluster, b.Name())
	if err != nil {
		return err
	}
	defer frozen.End()
	if err := may(ctx); err != nil {
		return err
	}
	if err := frozen.Intact(); err != nil {
		return err
	}
	return s.delete(ctx, b)
}

// delete removes a buffer from the namespace, and then from memory.
func (s *Service[B]) delete(ctx context.Context, b B) error {
	unlock, err := s.o.Table.Lock(ctx, b.Name())
	if err != nil {
		return err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if !s.o.Table.remove(b) {
		return bb.E(bb.NotFound, "destroy", address(b.Name()), "the buffer was destroyed meanwhile")
	}
	if err := s.o.Records.DestroyBuffer(s.ctx, b.Name()); err != nil { // carried through, as a creation
		s.o.Table.put(b)
		return err
	}
	s.drop(b)
	s.o.Emit(bb.Event{Kind: bb.EventDestroyed, Buffer: b.Name()})
	return nil
}

// drop removes a buffer that was destroyed, with all its bytes.
func (s *Service[B]) drop(b B) {
	s.detach(b)
	s.dropFiles(b.Name())
	s.o.Dropped(b)
	s.forgetStore(b.Name())
}

// Forget drops the daemon's bytes of a buffer that it does not serve.
func (s *Service[B]) Forget(name string) {
	s.dropFiles(name)
	s.forgetStore(name)
}

// forgetStore closes the store of a buffer that is served no more, since another one may get its
// name.
func (s *Service[B]) forgetStore(buffer string) {
	if err := s.o.Stores.Forget(buffer); err != nil {
		s.o.Log.Warn("closing the store of a buffer that is served no more", "buffer", buffer, "err", err)
	}
}

// detach ends the work in progress in a buffer.
func (s *Service[B]) detach(b B) {
	b.Gate().Destroyed()
	s.o.Flusher.ForgetBuffer(b.Name())
	b.ForgetFiles()
}

// dropFiles drops memory's part of a buffer.
func (s *Service[B]) dropFiles(buffer string) {
	for f := range s.o.Store.Files() {
		if f.Buffer == buffer {
			s.o.Store.Drop(f.File)
		}
	}
}
