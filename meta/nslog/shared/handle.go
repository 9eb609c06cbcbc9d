package shared

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nslog"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/shared/calls"
	"forebay/meta/nslog/shared/walk"
)

// Handle answers a call that was carried to this daemon, or was made by it.
func (t *Tree) Handle(ctx context.Context, c *calls.Call) *calls.Answer {
	switch c.Op {
	case calls.OpHold, calls.OpHeld:
		return t.handleHeld(c)
	case calls.OpRevoke:
		return t.handleRevoke(c)
	case calls.OpUnused:
		return &calls.Answer{Status: calls.Served, Yes: !t.prepared.Load()}
	}
	e := t.serving()
	if e == nil {
		a := &calls.Answer{Status: calls.NotOwner}
		if err := t.gone(); c.Op == calls.OpPrepare && c.Name == t.o.Log && (errors.Is(err, bb.Lost) || errors.Is(err, bb.Checksum)) {
			a.Status, a.Failure = calls.Served, calls.FailureOf(err) // it was to own the log, and cannot read it
		}
		return a
	}
	if c.Owner != e.Incarnation() {
		return &calls.Answer{Status: calls.OtherIncarnation, Owner: e.Incarnation()}
	}
	if c.ID.Number != 0 {
		ctx = once.With(ctx, c.ID)
	}
	a := &calls.Answer{Status: calls.Served, Owner: e.Incarnation()}
	err := t.carryOut(ctx, e, c, a)
	destroyed := errors.Is(err, bb.NotFound) && errors.Is(e.Err(), kv.ErrNoBucket)
	if err != nil && (ctx.Err() != nil || e.Err() != nil && !destroyed) {
		return &calls.Answer{Status: calls.NotOwner} // it may have been carried out, which its ID shows
	}
	a.Failure = calls.FailureOf(err)
	return a
}

// carryOut answers a call at the owner, with a lease if it wants one.
func (t *Tree) carryOut(ctx context.Context, e *nslog.Engine, c *calls.Call, a *calls.Answer) error {
	if !c.Restores {
		if err := t.complete(ctx, e); err != nil {
			return err
		}
	}
	if c.Life != [16]byte{} && c.From != t.o.Node {
		return grant(ctx, e, c, a)
	}
	return perform(ctx, e.As(c.From), c, a)
}

// perform carries out a call at the owner.
func perform(ctx context.Context, e *nslog.Engine, c *calls.Call, a *calls.Answer) (err error) {
	switch c.Op {
	case calls.OpPrepare:
		err = e.Prepare(ctx, &bb.Buffer{Mode: c.Directory.Mode, UID: c.Directory.UID, GID: c.Directory.GID, Created: c.Directory.MTime})
	case calls.OpCreate:
		a.Revision, err = e.Create(ctx, c.Entry)
	case calls.OpPut:
		a.Revision, err = e.Put(ctx, c.Entry)
	case calls.OpSetAttr:
		a.Entry, err = e.SetAttr(ctx, c.Dir, c.Name, c.Attr)
	case calls.OpMkdir:
		a.Entry, err = e.Mkdir(ctx, c.Dir, c.Name, c.Directory.Owner)
	case calls.OpMkdirAll:
		a.Entry, err = e.MkdirAll(ctx, c.Name, c.Directory.Owner)
	case calls.OpRename:
		r, rerr := e.Rename(ctx, c.Dir, c.Name, c.ToDir, c.ToName, namespace.RenameOptions{Replace: c.Options.Replace, StoreOp: c.Options.StoreOp})
		a.Entry, a.Replaced, err = r.Entry, r.Replaced, rerr
	case calls.OpExchange:
		x, xerr := e.Exchange(ctx, c.Dir, c.Name, c.ToDir, c.ToName, c.Options.Exchange())
		err = a.Exchanged(x, xerr)
	case calls.OpRemove:
		a.Entry, err = e.Remove(ctx, c.Dir, c.Name, namespace.RemoveOptions{StoreOp: c.Options.StoreOp, Revision: c.Options.Revision})
	case calls.OpDoneStoreOp:
		a.Yes, err = e.DoneStoreOp(ctx, c.Revision)
	case calls.OpTakeOverStoreOps:
		a.Count, err = e.TakeOverStoreOps(ctx, c.Node)
	case calls.OpEndSession:
		err = e.EndSession(ctx, c.ID.Session)
	case calls.OpConfirm:
		err = e.Confirm(ctx)
	case calls.OpCommit:
		err = checkChanges(c)
		if err == nil {
			a.Revised, err = e.Records().Commit(ctx, c.Changes)
		}
	case calls.OpPutWith:
		entry := c.Entry
		err = e.PutWith(ctx, &entry, c.Changes...)
		a.Revision = entry.Revision
	default:
		return read(ctx, e, c, a)
	}
	return err
}

// read is perform of calls that change nothing.
func read(ctx context.Context, e *nslog.Engine, c *calls.Call, a *calls.Answer) (err error) {
	switch c.Op {
	case calls.OpRoot:
		a.Entry, err = e.Root(ctx)
	case calls.OpLookup:
		a.Entry, err = e.Lookup(ctx, c.Dir, c.Name)
	case calls.OpResolve:
		a.Entry, err = e.Resolve(ctx, c.Name)
	case calls.OpResolveParent:
		a.Dir, a.Name, err = e.ResolveParent(ctx, c.Name)
	case calls.OpEntryOf:
		a.Entry, err = e.EntryOf(ctx, c.Dir)
	case calls.OpPathOf:
		a.Name, err = e.PathOf(ctx, c.Dir)
	case calls.OpRemoved:
		a.Yes, err = e.Removed(ctx, c.Dir, c.Name, c.File, c.Revision)
	case calls.OpList:
		a.Entries, a.Yes, err = e.List(ctx, c.Dir, c.Name, c.Number)
		a.Fit()
	case calls.OpListAll:
		a.Entries, a.Yes, err = e.ListAll(ctx, c.Dir, c.Name, c.Number)
		a.Fit()
	case calls.OpScanPage:
		a.Entries, a.Revision, a.Yes, err = e.ScanPage(ctx, c.Number, c.Revision)
	case calls.OpStoreOps:
		a.Ops, err = e.StoreOps(ctx)
		a.Ops, a.Yes = walk.OpsAfter(a.Ops, c.Revision)
	case calls.OpStoreOpPending:
		a.Yes, err = e.StoreOpPending(ctx, c.Revision)
	case calls.OpOutcome:
		a.Entry, a.Yes, err = e.Outcome(ctx)
	case calls.OpSample:
		a.Entries, err = e.Sample(ctx, c.Dir)
		a.Entries = a.Entries[:calls.Fitting(a.Entries)]
	case calls.OpDirGone:
		a.Yes, err = e.DirGone(ctx, c.Dir)
	case calls.OpCovers:
		a.Yes, err = e.Covers(ctx, c.Revision)
	case calls.OpRecord:
		var r kv.Record
		if r, err = e.Records().Get(ctx, c.Name); err == nil {
			a.Records = []kv.Record{r}
		}
	case calls.OpRecords:
		a.Records, a.Yes, err = pageOfRecords(ctx, e, c.Name, c.ToName)
	default:
		err = bb.E(bb.Unsupported, "call", e.Buffer(), "this release does not support it").WithRemedy("use one release on all nodes")
	}
	return err
}

// pageOfRecords returns the first records behind a key whose keys match a filter, and whether there are more.
func pageOfRecords(ctx context.Context, e *nslog.Engine, filter, after string) (page []kv.Record, more bool, err error) {
	size := 0
	err = e.Records().Scan(ctx, filter, func(r *kv.Record) error {
		if r.Key <= after {
			return nil
		}
		if size += len(r.Key) + len(r.Data) + 16; size > calls.AnswerBytes && len(page) > 0 {
			more = true
			return kv.ErrStop
		}
		page = append(page, *r)
		return nil
	})
	return page, more, err
}

// checkChanges refuses changes of no record.
func checkChanges(c *calls.Call) error {
	if len(c.Changes) == 0 {
		return bb.E(bb.Invalid, "change records", "", "there are none")
	}
	return nil
}
