package registry

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/backings"
	"forebay/bbd/bufferspec"
	"forebay/bbd/call"
	"forebay/bbd/overlap"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// Create answers a request to make a buffer.
func (s *Service[B]) Create(ctx context.Context, r call.Request, m *wire.Buffer) (proto.Message, error) {
	spec := m.AsBuffer()
	c := *r.Caller()
	if !c.System || spec.UID == 0 && spec.GID == 0 {
		spec.UID, spec.GID = c.UID, c.GIDs[0]
	}
	bufferspec.Complete(&spec, m, time.Now())
	b, held, err := s.CreateFor(ctx, c, spec, bb.MaxFound+1)
	if err != nil {
		return nil, bb.Wrap("buffer create", address(spec.Name), err)
	}
	spec = b.Spec()
	spec.Found, spec.FoundTotal = held.Name, held.Files
	return wire.FromBuffer(&spec), nil
}

// CreateFor makes a buffer for a caller. It checks everything that can be wrong before anything is changed.
// It returns too the present content of the store, counted to count.
func (s *Service[B]) CreateFor(ctx context.Context, c access.Caller, spec bb.Buffer, count int) (b B, held backings.Contents, err error) {
	var none B
	if err := s.check(&spec); err != nil {
		return none, held, err
	}
	if spec.BackingID, held, err = s.checkBacking(ctx, c, spec, count); err != nil {
		return none, held, err
	}
	shared := spec.Shared
	spec.Shared = false // of the request alone
	if err := s.checkOverlap(ctx, c, &spec, shared); err != nil {
		return none, held, err
	}
	unlock, err := s.o.Table.Lock(ctx, spec.Name)
	if err != nil {
		return none, held, bb.Wrap("buffer create", spec.Name, err)
	}
	defer unlock()
	ctx = s.ctx // carried through, since a buffer that exists must be attached
	made, err := s.o.Records.CreateBuffer(ctx, spec)
	if err != nil {
		return none, held, maybeMade(err)
	}
	if err := s.withdrawOverlap(ctx, c, &made, shared); err != nil {
		return none, held, err
	}
	b, err = s.attach(ctx, made)
	if err != nil {
		return none, held, bb.MaybeDone(err)
	}
	s.o.Emit(bb.Event{Kind: bb.EventCreated, Buffer: spec.Name})
	return b, held, nil
}

// check returns the error of a record that is not allowed, or is not possible with the present daemons.
func (s *Service[B]) check(spec *bb.Buffer) error {
	if err := bufferspec.Check(spec); err != nil {
		return err
	}
	if !s.hasDisk() {
		if err := bufferspec.CheckWithoutDisk(spec.Tiers); err != nil {
			return err
		}
	}
	if spec.Replicas > 1 && s.o.Cluster == nil {
		return bb.E(bb.Unsupported, "replicas", fmt.Sprint(spec.Replicas), "this daemon is alone: there is no second node")
	}
	if spec.Replicas > 1 {
		return s.o.Cluster.AllSupport("second copies", wire.VersionReplicas)
	}
	return nil
}

// maybeMade returns the namespace's error of a buffer that was to be made. The buffer may be
// there, unless the error is a refusal.
func maybeMade(err error) error {
	switch bb.KindOf(err) {
	case bb.Unavailable, bb.Cancelled, bb.Internal:
		return bb.MaybeDone(err)
	}
	return err
}

// hasDisk reports whether this daemon or another one of the cluster has a disk tier.
func (s *Service[B]) hasDisk() bool {
	return s.o.Disk || s.o.Cluster != nil && slices.ContainsFunc(s.o.Cluster.Members(), func(m gossip.Member) bool { return m.Disk.Capacity > 0 })
}

// checkBacking finds faults now that would otherwise fail at the first flush. A daemon that runs as
// root writes where the buffer's owner may, not where root may. It returns the present directory of
// the backing, and its content. One that does not exist is refused, not made. Most often it is one
// whose file system is not mounted.
func (s *Service[B]) checkBacking(ctx context.Context, c access.Caller, spec bb.Buffer, count int) (id string, held backings.Contents, err error) {
	if spec.Backing == "" {
		return "", held, nil
	}
	where, err := bb.ParseBacking(spec.Backing)
	if err != nil {
		return "", held, err
	}
	if where.IsDirectory() && s.o.Inside(where.Path) {
		return "", held, bb.E(bb.Invalid, "backing", spec.Backing, "lies in the daemon's own folder").WithRemedy("choose another directory")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backings.Patience, backings.NotAnswered(spec.Backing))
	defer cancel()
	id, held, err = s.o.Stores.Probe(ctx, c, spec, where, count)
	return id, held, backings.Answered(ctx, err)
}

// Two creations at once, on one daemon or on two, are decided by the order of their records in the
// namespace. Each checks again after its record is there, and the later of the two removes its own and
// is refused. A daemon that is killed between the two steps leaves both.

// checkOverlap refuses a buffer whose store overlaps that of another one, made by any daemon. Of a
// buffer that has a record, those whose records are newer do not count.
func (s *Service[B]) checkOverlap(ctx context.Context, c access.Caller, spec *bb.Buffer, shared bool) error {
	if shared || spec.Backing == "" {
		return nil
	}
	all, err := s.o.Records.Buffers(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		other := &all[i]
		if overlap.Of(spec, other) && (spec.Revision == 0 || other.Revision < spec.Revision) {
			return overlap.Refusal(c, spec, other)
		}
	}
	return nil
}

// withdrawOverlap removes the record of a new buffer if that of another whose store overlaps came
// before it since checkOverlap, and refuses the new one.
func (s *Service[B]) withdrawOverlap(ctx context.Context, c access.Caller, made *bb.Buffer, shared bool) error {
	refused := s.checkOverlap(ctx, c, made, shared)
	switch {
	case refused == nil:
		return nil
	case bb.KindOf(refused) != bb.Exists: // the buffer is there
		return bb.MaybeDone(refused)
	}
	if err := s.o.Records.DestroyBuffer(ctx, made.Name); err != nil {
		return bb.MaybeDone(err)
	}
	return refused
}

// Get answers a request for the record of a buffer.
func (s *Service[B]) Get(ctx context.Context, r call.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := s.For(ctx, r, "buffer show", m.Name)
	if err != nil {
		return nil, err
	}
	spec := b.Spec()
	return wire.FromBuffer(&spec), nil
}

// List answers a request for the records of the buffers that the session's user may enter.
func (s *Service[B]) List(ctx context.Context, r call.Request, _ *wire.Empty) (proto.Message, error) {
	specs, err := s.Specs(ctx)
	if err != nil {
		return nil, err
	}
	answer := &wire.Buffers{}
	for _, spec := range specs {
		if tokenFits(r, &spec) && r.Caller().Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			answer.Buffers = append(answer.Buffers, wire.FromBuffer(&spec))
		}
	}
	return answer, nil
}
