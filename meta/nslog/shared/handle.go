package shared

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog"
)

// Handle answers a call that was carried to this daemon, or was made by it.
func (t *Tree) Handle(ctx context.Context, c *Call) *Answer {
	e := t.serving()
	if e == nil {
		return &Answer{Status: NotOwner}
	}
	if c.Owner != e.Incarnation() {
		return &Answer{Status: OtherIncarnation, Owner: e.Incarnation()}
	}
	if c.ID.Number != 0 {
		ctx = nslog.WithID(ctx, c.ID)
	}
	a := &Answer{Status: Served, Owner: e.Incarnation()}
	err := perform(ctx, e.As(c.From), c, a)
	if err != nil && (ctx.Err() != nil || e.Err() != nil && !errors.Is(e.Err(), kv.ErrNoBucket)) {
		return &Answer{Status: NotOwner} // it may have been carried out: its ID shows it
	}
	a.Failure = failureOf(err)
	return a
}

// perform carries out a call at the owner.
func perform(ctx context.Context, e *nslog.Engine, c *Call, a *Answer) (err error) {
	switch c.Op {
	case opPrepare:
		err = e.Prepare(ctx, &bb.Buffer{Mode: c.Entry.Mode, UID: c.Entry.UID, GID: c.Entry.GID, Created: c.Entry.MTime})
	case opCreate:
		a.Revision, err = e.Create(ctx, c.Entry)
	case opPut:
		a.Revision, err = e.Put(ctx, c.Entry)
	case opSetAttr:
		a.Entry, err = e.SetAttr(ctx, c.Dir, c.Name, c.Attr)
	case opMkdir:
		a.Entry, err = e.Mkdir(ctx, c.Dir, c.Name, c.Directory)
	case opMkdirAll:
		a.Entry, err = e.MkdirAll(ctx, c.Name, c.Directory)
	case opRename:
		r, rerr := e.Rename(ctx, c.Dir, c.Name, c.ToDir, c.ToName, c.Rename)
		a.Entry, a.Replaced, err = r.Entry, r.Replaced, rerr
	case opRemove:
		a.Entry, err = e.Remove(ctx, c.Dir, c.Name, c.Remove)
	case opDoneStoreOp:
		a.Yes, err = e.DoneStoreOp(ctx, c.Revision)
	case opTakeOverStoreOps:
		a.Count, err = e.TakeOverStoreOps(ctx, c.Node)
	case opEndSession:
		err = e.EndSession(ctx, c.ID.Session)
	default:
		return read(ctx, e, c, a)
	}
	return err
}

// read is perform of calls that change nothing.
func read(ctx context.Context, e *nslog.Engine, c *Call, a *Answer) (err error) {
	switch c.Op {
	case opRoot:
		a.Entry, err = e.Root(ctx)
	case opLookup:
		a.Entry, err = e.Lookup(ctx, c.Dir, c.Name)
	case opResolve:
		a.Entry, err = e.Resolve(ctx, c.Name)
	case opResolveParent:
		a.Dir, a.Name, err = e.ResolveParent(ctx, c.Name)
	case opEntryOf:
		a.Entry, err = e.EntryOf(ctx, c.Dir)
	case opPathOf:
		a.Name, err = e.PathOf(ctx, c.Dir)
	case opRemoved:
		a.Yes, err = e.Removed(ctx, c.Dir, c.Name, c.Entry.File, c.Revision)
	case opList:
		a.Entries, a.Yes, err = e.List(ctx, c.Dir, c.Name, c.Number)
	case opListAll:
		a.Entries, a.Yes, err = e.ListAll(ctx, c.Dir, c.Name, c.Number)
	case opScanPage:
		a.Entries, a.Revision, a.Yes, err = e.ScanPage(ctx, c.Number, c.Revision)
	case opStoreOps:
		a.Ops, err = e.StoreOps(ctx)
	case opStoreOpPending:
		a.Yes, err = e.StoreOpPending(ctx, c.Revision)
	case opOutcome:
		a.Entry, a.Yes, err = e.Outcome(ctx)
	default:
		err = bb.E(bb.Unsupported, "call", e.Buffer(), "this release does not know it").WithRemedy("use one release on all nodes")
	}
	return err
}
