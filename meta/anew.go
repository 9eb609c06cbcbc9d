package meta

import (
	"context"
	"errors"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/salvage"
	"forebay/meta/nslog/shared"
	"forebay/meta/txn"
)

// If a log is gone or damaged, and there is no copy of it, it is begun anew. The holders of the
// files then decide about its names. The new log is another one, and is complete before the record
// names it:
//
//	                  new log made, readable         record names
//	damaged ────────▶ part of the old one stored ───▶ the new log
//	   ▲                  │
//	   └── a crash ◀──────┘   the new log has no buffer: Repair deletes it
//
// Repair deletes the damaged log, too, as one without a buffer.
//
// A loss of power costs the server's unsynced messages, so the new log is synced before the record names it, and the
// record before BeginAnew returns, and before Repair deletes the damaged log.

// If daemons share the log, the new one is used when each of them has restored its files (shared.RebuildKey).

// Anew describes a log that was begun anew.
type Anew struct {
	Directories, Files int
	Specials           int      // symbolic links, FIFOs and sockets
	Decided            int      // transactions whose output has yet to get its place
	Replaces           []bb.Txn // those of them whose replaced entries may stay
}

// BeginAnew begins the log of a buffer anew, with those directories that can still be read of the damaged one, and
// those files of which keep (salvage.Read) returns true. It does so only if the log cannot be opened now, for a
// Damaged reason. A log that can be read stays as it is, and any other error is returned. It may be repeated after a
// failure.
func (m *Meta) BeginAnew(ctx context.Context, of bb.Buffer, keep func(*bb.Entry) bool) (has Anew, err error) {
	const op = "rebuild"
	b, in, err := m.buffer(ctx, op, of.Name)
	switch {
	case err != nil:
		return has, err
	case !b.Created.Equal(of.Created) || b.State == bb.BufferDestroying:
		return has, bb.E(bb.NotFound, op, of.Name, "the buffer was destroyed meanwhile")
	case in.engine != EngineLog:
		return has, bb.E(bb.Unsupported, op, of.Name, "its namespace is not a log").WithRemedy("put a copy of the namespace server's folder back")
	}
	if _, err := m.Namespace(ctx, of.Name); !Damaged(err) {
		return has, err
	}
	select {
	case m.opening <- struct{}{}:
		defer func() { <-m.opening }()
	case <-ctx.Done():
		return has, bb.Wrap(op, of.Name, context.Cause(ctx))
	}
	if m.sharesLogs() {
		if is, err := m.damaged(ctx, &b, in); err != nil || !is {
			return has, err
		}
	}
	id, err := m.ids.Next(ctx)
	if err != nil {
		return has, err
	}
	now := keptIn{id, EngineLog}
	unmake, err := m.makeLog(ctx, b.Name, now)
	if err != nil {
		return has, kv.Wrap(op, b.Name, err)
	}
	if has, err = m.beginLog(ctx, &b, in, now, keep); err == nil {
		err = m.sync(ctx)
	}
	if err != nil {
		unmake()
		return has, kv.Wrap(op, b.Name, err)
	}
	if _, err = m.putBuffer(ctx, op, b, now); errors.Is(err, kv.ErrConflict) {
		unmake()
	}
	if err != nil {
		return has, err
	}
	m.log.Warn("the log of a buffer is begun anew", "buffer", b.Name, "directories", has.Directories, "files", has.Files, "links", has.Specials, "transactions", has.Decided,
		"was", bucketName(b.Name, in.id), "is", bucketName(b.Name, id))
	for i := range has.Replaces {
		m.log.Warn("a transaction was to replace files when its log was damaged: those that its output does not replace stay", "buffer", b.Name,
			"transaction", has.Replaces[i].ID, "destination", has.Replaces[i].Destination)
	}
	return has, m.sync(ctx)
}

// syncs is a server in this process that can sync all that it has stored.
type syncs interface{ Sync() error }

// sync waits until the server's records survive a loss of power.
func (m *Meta) sync(ctx context.Context) error {
	if server, ok := m.opts.InProcess.(syncs); ok {
		return server.Sync()
	}
	select {
	case <-time.After(m.settle()):
		return nil
	case <-ctx.Done():
		return bb.Wrap("sync", "the namespace's server", context.Cause(ctx))
	}
}

// beginLog stores the readable part of the damaged log in a new one.
func (m *Meta) beginLog(ctx context.Context, b *bb.Buffer, damaged, now keptIn, keep func(*bb.Entry) bool) (has Anew, err error) {
	old := m.logOf(b.Name, damaged)
	there, err := old.Exists(ctx)
	if err != nil {
		return has, err
	}
	var found salvage.Entries
	if there {
		if found, err = salvage.Read(ctx, old, salvage.Rules{Keep: keep, Record: txn.Salvage}); bb.KindOf(err) == bb.Lost {
			m.log.Warn("nothing can be read of a damaged log", "buffer", b.Name, "err", err)
		} else if err != nil {
			return has, err
		}
	}
	if m.sharesLogs() {
		found.Records = append(found.Records, salvage.Record{Key: shared.RebuildKey, Data: []byte(m.opts.Node)})
	}
	o := m.logOptions(b, now)
	root := nslog.RootOf(b)
	err = salvage.Begin(ctx, m.logOf(b.Name, now), &found, &root, owner.Options{Buffer: o.Buffer, Node: o.Node, Floor: o.Floor, Settle: o.Settle, Logger: o.Logger})
	return Anew{len(found.Dirs), len(found.Files), len(found.Specials), len(found.Decided), found.Replaces}, err
}
