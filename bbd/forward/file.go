// Package forward writes files that another node owns. At each commit it puts their bytes into memory
// leased from the owner, and commits them there. It must never depend on the choice of a file's
// owner, nor on the owner's use of the bytes.
package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/dedup"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/mapped"
	"forebay/internal/wire"
)

// Leases are the segments of this node's memory that clients fill.
type Leases interface {
	LeasedBytes(id bb.LeaseID, offset, length int64) ([]byte, error)
}

// Reader reads from the node that owns a file.
type Reader interface {
	// Layout opens the generation that m describes there, and returns its extents and its size.
	Layout(ctx context.Context, node bb.NodeID, m *wire.Open) ([]store.MirrorExtent, int64, error)
}

// Options are the environment of forwarding.
type Options struct {
	Cluster *cluster.Cluster
	Leases  Leases
	Inline  int64        // bytes of a commit that travel in the message
	Go      func(func()) // starts a goroutine that ends soon, or with the daemon
	Log     *slog.Logger
}

// Buffer forwards writes to the files of one buffer. Its methods may be called concurrently.
type Buffer struct {
	o      Options
	ctx    context.Context // ends when the daemon stops
	name   string
	reader Reader
	segments
}

// New returns the forwarding of writes to a buffer's files, which works until ctx ends.
func New(ctx context.Context, o Options, name string, reader Reader) *Buffer {
	b := &Buffer{o: o, ctx: ctx, name: name, reader: reader}
	b.mu.by = make(map[segmentKey]*segment)
	return b
}

func (b *Buffer) address(path string) string { return bb.Address{Buffer: b.name, Path: path}.String() }

// File is a file that a client of this daemon writes and that another node owns. The client fills
// segments here, as always. At each commit their bytes are put into segments that are leased from
// the owner, with one-sided writes, and committed there. It is used by one goroutine at a time.
//
// When the connection breaks, the owner keeps the generation open for a while. The file is opened
// again and the commit that was not acknowledged is repeated, whose bytes are here still. The owner
// carries out commits of one number once (package dedup).
type File struct {
	b    *Buffer
	c    access.Caller
	node bb.NodeID
	tier bb.Tier // where the owner is to keep its bytes
	open wire.Open

	session    *peer.Session // nil: to be opened again
	handle     uint64
	file       bb.FileID
	generation bb.Generation
	committed  bool
	writer     uint64 // for commits without a number of the client
	number     uint64 // of the last of them
}

// patience is how long an owner is tried to be reached again before a commit fails.
const patience = 20 * time.Second

// Open opens a file for writing at its owner, node, where its bytes are to lie in a tier. Commits without
// a number of the client have writer's.
func (b *Buffer) Open(ctx context.Context, c access.Caller, node bb.NodeID, tier bb.Tier, writer uint64, m *wire.Open) (*File, *wire.Opened, error) {
	r := &File{b: b, c: c, node: node, tier: tier, writer: writer, open: wire.Open{
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
func (r *File) connect(ctx context.Context) (*wire.Opened, error) {
	s, err := r.b.o.Cluster.Session(ctx, r.node, cluster.Who(r.c))
	if err != nil {
		return nil, err
	}
	r.open.Handle = s.NewHandle()
	opened := new(wire.Opened)
	if _, err := s.Ask(ctx, wire.Type_TYPE_OPEN, &r.open, nil, opened); err != nil {
		peer.CloseUnheard(ctx, r.b.o.Go, s, r.open.Handle)
		return nil, err
	}
	if opened.AlreadyClosed {
		return opened, nil
	}
	r.session, r.handle = s, r.open.Handle
	r.file, r.generation = bb.FileID(opened.Entry.GetFile()), bb.Generation(opened.Generation)
	return opened, nil
}

// errClosed is the error of a generation that the owner has closed.
var errClosed = errors.New("the owner has closed the generation, since this node was away for too long")

// closedError is errClosed with the owner's record of the file's commits.
type closedError struct{ opened *wire.Opened }

func (e *closedError) Error() string { return errClosed.Error() }
func (e *closedError) Unwrap() error { return errClosed }

// again opens the generation again after its session broke, to repeat a commit.
func (r *File) again(ctx context.Context, id dedup.ID) error {
	r.open.ResumeWriter = id.Writer
	r.open.Exclusive, r.open.Fence = false, false
	// An owner that was restarted has forgotten a generation of which nothing was committed. The one that it
	// begins then is to begin from nothing as well, not from the content that was to be replaced.
	r.open.Truncate = r.open.Truncate && !r.committed
	r.open.ResumeFile, r.open.ResumeGeneration, r.open.ResumeCommitted = uint64(r.file), uint64(r.generation), r.committed
	opened, err := r.connect(ctx)
	if err == nil && opened.AlreadyClosed {
		return &closedError{opened}
	}
	return err
}

// Commit commits extents at the owner. The data of the request are behind the extents without a lease. The
// others lie in leases that the client holds.
func (r *File) Commit(ctx context.Context, m *wire.Commit, data []byte, holds func(bb.LeaseID) bool) (*wire.Committed, error) {
	bytes, err := r.gather(m, data, holds)
	if err != nil {
		return nil, err
	}
	id := dedup.ID{Writer: m.Writer, Number: m.Number}
	if id.Writer == 0 {
		r.number++
		id = dedup.ID{Writer: r.writer, Number: r.number}
	}
	deadline := time.Now().Add(patience)
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

// closed is the end of a commit that finds the generation closed. The commit itself closed it if
// the answer got lost and the owner has a record of it, or shows its content.
func (r *File) closed(ctx context.Context, id dedup.ID, m *wire.Commit, now *wire.Opened) (*wire.Committed, error) {
	if now.Committed >= id.Number {
		return &wire.Committed{Size: now.GetEntry().GetSize(), Generation: uint64(r.generation), File: uint64(r.file)}, nil
	}
	late := bb.E(bb.Invalid, "commit", r.b.address(r.open.Path), errClosed.Error())
	if !m.Close {
		return nil, late
	}
	there, size, err := r.b.reader.Layout(ctx, r.node, &wire.Open{Path: r.open.Path, File: uint64(r.file), Generation: uint64(r.generation)})
	if err != nil {
		return nil, err
	}
	if !hasAll(there, m.Extents) {
		return nil, late
	}
	return &wire.Committed{Size: size, Generation: uint64(r.generation), File: uint64(r.file)}, nil
}

// hasAll reports whether a generation shows each of a commit's extents as it was written.
func hasAll(there []store.MirrorExtent, extents []*wire.NewExtent) bool {
	return !slices.ContainsFunc(extents, func(e *wire.NewExtent) bool {
		return !slices.Contains(there, store.MirrorExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum})
	})
}

// gather finds the bytes of a commit's extents.
func (r *File) gather(m *wire.Commit, data []byte, holds func(bb.LeaseID) bool) ([][]byte, error) {
	invalid := func(why string) error { return bb.E(bb.Invalid, "commit", r.b.address(r.open.Path), why) }
	bytes := make([][]byte, len(m.Extents))
	for i, e := range m.Extents {
		switch {
		case e.FileOffset < 0 || e.Length <= 0 || e.FileOffset > bb.MaxFileSize-e.Length:
			return nil, invalid(fmt.Sprintf("an extent of %d bytes at offset %d is out of bounds", e.Length, e.FileOffset))
		case e.Lease != 0 && !holds(bb.LeaseID(e.Lease)):
			return nil, invalid(fmt.Sprintf("lease %d is not this session's for this buffer", e.Lease))
		case e.Lease == 0 && e.Length > int64(len(data)):
			return nil, invalid("an extent announces more data than came")
		case e.Lease == 0:
			bytes[i], data = data[:e.Length], data[e.Length:]
			continue
		}
		var err error
		if bytes[i], err = r.b.o.Leases.LeasedBytes(bb.LeaseID(e.Lease), e.SegmentOffset, e.Length); err != nil {
			return nil, err
		}
	}
	return bytes, nil
}

// try makes one attempt at a commit.
func (r *File) try(ctx context.Context, id dedup.ID, m *wire.Commit, bytes [][]byte) (committed *wire.Committed, err error) {
	if r.session == nil || r.session.Broken() {
		if err := r.again(ctx, id); err != nil {
			return nil, err
		}
	}
	out := &wire.Commit{Handle: r.handle, Close: m.Close, Abort: m.Abort, MtimeNs: m.MtimeNs, Writer: id.Writer, Number: id.Number, Extend: m.Extend}
	var total int64
	for _, p := range bytes {
		total += int64(len(p))
	}
	arrived := r.b.o.Cluster.Sending(r.node, total)
	defer func() { arrived(err) }()
	var inline []byte
	if total <= r.b.o.Inline {
		if inline, err = mapped.Gather(nil, r.b.address(r.open.Path), bytes...); err != nil {
			return nil, err
		}
		for _, e := range m.Extents {
			out.Extents = append(out.Extents, &wire.NewExtent{FileOffset: e.FileOffset, Length: e.Length, Checksum: e.Checksum})
		}
	} else {
		placed, err := r.b.Stage(ctx, r.session, r.tier, m.Extents, bytes)
		if err != nil {
			return nil, err
		}
		defer placed.Done()
		out.Extents = placed.Extents
	}
	answer := new(wire.Committed)
	if _, err := r.session.Ask(ctx, wire.Type_TYPE_COMMIT, out, inline, answer); err != nil {
		return nil, err
	}
	r.committed = true
	r.file, r.generation = bb.FileID(answer.File), bb.Generation(answer.Generation)
	answer.Alone = false // the generation may be another one than the client has opened (see again)
	return answer, nil
}

// Node returns the owner.
func (r *File) Node() bb.NodeID { return r.node }

// Generation returns the file and the generation that is written.
func (r *File) Generation() (bb.FileID, bb.Generation) { return r.file, r.generation }

// Abandon abandons a file that was not closed.
func (r *File) Abandon(ctx context.Context) {
	if r.session == nil || r.session.Broken() {
		return // the owner abandons the writer when it does not come back
	}
	// Though the client may be gone. Otherwise the file stays open at its owner.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	m := &wire.Commit{Handle: r.handle, Close: true, Abort: true}
	if _, err := r.session.Ask(ctx, wire.Type_TYPE_COMMIT, m, nil, nil); err != nil {
		r.b.o.Log.Warn("the close of a file did not reach its owner", "path", r.open.Path, "node", r.node, "err", err)
	}
}
