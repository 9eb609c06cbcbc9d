package bbd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/peer"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// elsewhereError says that a file is to be written at its home, another node.
type elsewhereError struct {
	node      bb.NodeID
	adoptable bool // it may be written here if that node does not answer
}

func (e *elsewhereError) Error() string { return "its home is node " + string(e.node) }

// errSuperseded says that a generation cannot become the file's, since another node
// has begun one meanwhile: its writers go on with that.
var errSuperseded = errors.New("another node has begun a generation of this file meanwhile")

// relay is a file that a client of this daemon writes and whose home is another one.
// The client fills segments here, as always; at each commit the relay puts their bytes
// into segments that it leases from the home, with one-sided writes, and commits them
// there. It belongs to a handle, and is used by its requests alone, one at a time.
//
// When the connection breaks, the home keeps the generation open for a while; the relay
// opens it again and repeats the commit that was not acknowledged, whose bytes are here
// still. The home carries out once what has the same number (repeats.go).
type relay struct {
	b    *buffer
	c    access.Caller
	node bb.NodeID
	tier bb.Tier // where the home is to keep its bytes
	open wire.Open

	session    *peer.Session // nil: to be opened again
	handle     uint64
	file       bb.FileID
	generation bb.Generation
	committed  bool
	writer     uint64 // for commits that the client gave no number
	number     uint64 // of the last of them
}

// relayPatience is how long a relay tries to reach a home again before it says so.
const relayPatience = 20 * time.Second

// openRelay opens a file at its home for writing.
func (b *buffer) openRelay(ctx context.Context, c access.Caller, node bb.NodeID, m *wire.Open) (*relay, *wire.Opened, error) {
	r := &relay{b: b, c: c, node: node, tier: b.tierOf(ctx, clean(m.Path)), writer: b.d.nextID(), open: wire.Open{
		Buffer: b.name, Path: m.Path, Write: true, Create: m.Create, Exclusive: m.Exclusive, Truncate: m.Truncate, Mode: m.Mode, Fence: m.Fence,
		ResumeFile: m.ResumeFile, ResumeGeneration: m.ResumeGeneration, ResumeCommitted: m.ResumeCommitted,
	}}
	opened, err := r.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	return r, opened, nil
}

// connect opens the file in a session that works.
func (r *relay) connect(ctx context.Context) (*wire.Opened, error) {
	s, err := r.b.d.cluster.Session(ctx, r.node, cluster.Who(r.c))
	if err != nil {
		return nil, err
	}
	r.open.Handle = s.NewHandle()
	opened := new(wire.Opened)
	if _, err := s.Ask(ctx, wire.Type_TYPE_OPEN, &r.open, nil, opened); err != nil {
		r.b.d.closeUnheard(ctx, s, r.open.Handle)
		return nil, err
	}
	if opened.AlreadyClosed {
		return opened, nil
	}
	r.session, r.handle = s, r.open.Handle
	r.file, r.generation = bb.FileID(opened.Entry.GetFile()), bb.Generation(opened.Generation)
	return opened, nil
}

// errClosed says that the home has closed the generation.
var errClosed = errors.New("its home has closed the generation, since this node was away for too long")

// closedError is errClosed, and says which of the relay's commits the home remembers.
type closedError struct{ opened *wire.Opened }

func (e *closedError) Error() string { return errClosed.Error() }
func (e *closedError) Unwrap() error { return errClosed }

// again opens the generation again after its session broke, to repeat a commit.
func (r *relay) again(ctx context.Context, id commitID) error {
	r.open.ResumeWriter = id.writer
	r.open.Exclusive, r.open.Truncate, r.open.Fence = false, false, false
	r.open.ResumeFile, r.open.ResumeGeneration, r.open.ResumeCommitted = uint64(r.file), uint64(r.generation), r.committed
	opened, err := r.connect(ctx)
	if err == nil && opened.AlreadyClosed {
		return &closedError{opened}
	}
	return err
}

// commit commits extents at the home. What came as data is behind the extents without
// a lease; the others lie in this session's leases.
func (r *relay) commit(ctx context.Context, s *rpc.Session, m *wire.Commit, data []byte) (*wire.Committed, error) {
	bytes, err := r.gather(s, m, data)
	if err != nil {
		return nil, err
	}
	id := commitOf(m)
	if id.writer == 0 {
		r.number++
		id = commitID{r.writer, r.number}
	}
	deadline := time.Now().Add(relayPatience)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		answer, err := r.try(ctx, id, m, bytes)
		if late := (*closedError)(nil); errors.As(err, &late) {
			answer, err = r.closed(ctx, id, m, late.opened)
		}
		if err == nil || bb.KindOf(err) != bb.Unavailable || ctx.Err() != nil {
			return answer, err
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// closed is the end of a commit that finds the generation closed: that was its own
// doing, if the answer got lost and the home remembers it, or shows what it holds.
func (r *relay) closed(ctx context.Context, id commitID, m *wire.Commit, now *wire.Opened) (*wire.Committed, error) {
	if now.Committed >= id.number {
		return &wire.Committed{Size: now.GetEntry().GetSize(), Generation: uint64(r.generation), File: uint64(r.file)}, nil
	}
	late := bb.E(bb.Invalid, "commit", r.b.address(r.open.Path), errClosed.Error())
	if !m.Close {
		return nil, late
	}
	s, handle, opened, err := r.b.openAtHome(ctx, r.node, &wire.Open{Path: r.open.Path, File: uint64(r.file), Generation: uint64(r.generation)})
	if err != nil {
		return nil, err
	}
	defer closeAtHome(s, handle)
	there, err := r.b.layout(ctx, s, handle)
	if err != nil {
		return nil, err
	}
	for _, e := range m.Extents {
		if !slices.Contains(there, store.MirrorExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum}) {
			return nil, late
		}
	}
	return &wire.Committed{Size: opened.GetEntry().GetSize(), Generation: uint64(r.generation), File: uint64(r.file)}, nil
}

// gather finds the bytes of a commit's extents.
func (r *relay) gather(s *rpc.Session, m *wire.Commit, data []byte) ([][]byte, error) {
	invalid := func(why string) error { return bb.E(bb.Invalid, "commit", r.b.address(r.open.Path), why) }
	bytes := make([][]byte, len(m.Extents))
	for i, e := range m.Extents {
		switch {
		case e.FileOffset < 0 || e.Length <= 0 || e.FileOffset > bb.MaxFileSize-e.Length:
			return nil, invalid(fmt.Sprintf("an extent of %d bytes at offset %d is out of bounds", e.Length, e.FileOffset))
		case e.Lease != 0 && !holdsLease(s, bb.LeaseID(e.Lease), r.b):
			return nil, invalid(fmt.Sprintf("lease %d is not this session's for this buffer", e.Lease))
		case e.Lease == 0 && e.Length > int64(len(data)):
			return nil, invalid("an extent announces more data than came")
		case e.Lease == 0:
			bytes[i], data = data[:e.Length], data[e.Length:]
			continue
		}
		var err error
		if bytes[i], err = r.b.d.store.LeasedBytes(bb.LeaseID(e.Lease), e.SegmentOffset, e.Length); err != nil {
			return nil, err
		}
	}
	return bytes, nil
}

// try makes one attempt at a commit.
func (r *relay) try(ctx context.Context, id commitID, m *wire.Commit, bytes [][]byte) (committed *wire.Committed, err error) {
	if r.session == nil || r.session.Broken() {
		if err := r.again(ctx, id); err != nil {
			return nil, err
		}
	}
	out := &wire.Commit{Handle: r.handle, Close: m.Close, Abort: m.Abort, MtimeNs: m.MtimeNs, Writer: id.writer, Number: id.number}
	var total int64
	for _, p := range bytes {
		total += int64(len(p))
	}
	arrived := r.b.d.cluster.Sending(r.node, total)
	defer func() { arrived(err) }()
	var inline []byte
	if total <= r.b.d.cfg.Limits.Inline {
		if inline, err = gathered(nil, r.b.address(r.open.Path), bytes...); err != nil {
			return nil, err
		}
		for _, e := range m.Extents {
			out.Extents = append(out.Extents, &wire.NewExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum})
		}
	} else {
		placed, err := r.b.remotes.in(r.session, r.tier).place(ctx, m.Extents, bytes)
		if err != nil {
			return nil, err
		}
		defer placed.done()
		out.Extents = placed.extents
	}
	answer := new(wire.Committed)
	if _, err := r.session.Ask(ctx, wire.Type_TYPE_COMMIT, out, inline, answer); err != nil {
		return nil, err
	}
	r.committed = true
	r.file, r.generation = bb.FileID(answer.File), bb.Generation(answer.Generation)
	return answer, nil
}

// abandon lets go of a file that was not closed.
func (r *relay) abandon(ctx context.Context) {
	if r.session == nil || r.session.Broken() {
		return // the home gives the writer up when it does not come back
	}
	// Though whoever asked for it may be gone: else the file stays open at its home.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), relayPatience)
	defer cancel()
	m := &wire.Commit{Handle: r.handle, Close: true, Abort: true}
	if _, err := r.session.Ask(ctx, wire.Type_TYPE_COMMIT, m, nil, nil); err != nil {
		r.b.d.log.Warn("leaving a file to its home", "path", r.open.Path, "node", r.node, "err", err)
	}
}
