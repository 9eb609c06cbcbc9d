package bbd

import (
	"context"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/batch"
	"forebay/bbd/buffer"
	"forebay/bbd/call"
	"forebay/bbd/change"
	"forebay/bbd/drain"
	"forebay/bbd/entries"
	"forebay/bbd/handle"
	"forebay/bbd/nodes"
	"forebay/bbd/registry"
	"forebay/bbd/rpc"
	"forebay/bbd/staging"
	"forebay/bbd/status"
	"forebay/bbd/transfer"
	"forebay/bbd/txn"
	"forebay/internal/wire"
)

// handlers has the handler of each request: quick ones on the session's
// reading goroutine, waiting ones on their own, those on a handle in order. A session with a token
// makes those that are marked so, on the files of its buffer. The memory itself stays out of its
// reach, as regions hold bytes of all buffers of a user.
func (d *Daemon) handlers() map[wire.Type]rpc.Handler {
	return map[wire.Type]rpc.Handler{
		wire.Type_TYPE_STATUS:    rpc.Waiting(late(&d.work.statuses, (*status.Service).Get)),
		wire.Type_TYPE_SUBSCRIBE: rpc.Waiting(d.subscribe),

		wire.Type_TYPE_BUFFER_CREATE:  rpc.Waiting(late(&d.work.buffers, (*registry.Service[*buffer.Buffer]).Create)),
		wire.Type_TYPE_BUFFER_GET:     rpc.Waiting(late(&d.work.buffers, (*registry.Service[*buffer.Buffer]).Get)).WithToken(),
		wire.Type_TYPE_BUFFER_LIST:    rpc.Waiting(late(&d.work.buffers, (*registry.Service[*buffer.Buffer]).List)).WithToken(),
		wire.Type_TYPE_BUFFER_DESTROY: rpc.Waiting(late(&d.work.buffers, (*registry.Service[*buffer.Buffer]).Destroy)),
		wire.Type_TYPE_BUFFER_REBUILD: rpc.Waiting(late(&d.work.buffers, (*registry.Service[*buffer.Buffer]).Rebuild)),

		wire.Type_TYPE_STAT:      rpc.Waiting(late(&d.work.entries, (*entries.Service).Stat)).WithToken(),
		wire.Type_TYPE_LIST:      rpc.Waiting(late(&d.work.entries, (*entries.Service).List)).WithToken(),
		wire.Type_TYPE_MKDIR:     rpc.Waiting(late(&d.work.entries, (*entries.Service).Mkdir)).WithToken(),
		wire.Type_TYPE_MKNOD:     rpc.Waiting(late(&d.work.entries, (*entries.Service).Mknod)).WithToken(),
		wire.Type_TYPE_RENAME:    rpc.Waiting(late(&d.work.changes, (*change.Service).Rename)).WithToken(),
		wire.Type_TYPE_EXCHANGE:  rpc.Waiting(late(&d.work.changes, (*change.Service).Exchange)).WithToken(),
		wire.Type_TYPE_REMOVE:    rpc.Waiting(late(&d.work.changes, (*change.Service).Remove)).WithToken(),
		wire.Type_TYPE_SETATTR:   rpc.Waiting(late(&d.work.entries, (*entries.Service).SetAttr)).WithToken(),
		wire.Type_TYPE_SET_XATTR: rpc.Waiting(late(&d.work.entries, (*entries.Service).SetXattr)).WithToken(),
		wire.Type_TYPE_XATTRS:    rpc.Waiting(late(&d.work.entries, (*entries.Service).Xattrs)).WithToken(),
		wire.Type_TYPE_LOST:      rpc.Waiting(late(&d.work.entries, (*entries.Service).Lost)).WithToken(),

		wire.Type_TYPE_OPEN:    rpc.Opening(d.openFile).WithToken(),
		wire.Type_TYPE_COMMIT:  handle.CommitHandler().WithToken(),
		wire.Type_TYPE_EXTENTS: handle.ExtentsHandler().WithToken(),
		wire.Type_TYPE_CLOSE:   handle.CloseHandler().WithToken(),
		wire.Type_TYPE_UNPIN:   rpc.Quick(handle.Unpin).WithToken(),
		wire.Type_TYPE_LEASE:   rpc.Waiting(d.lease).WithToken(),
		wire.Type_TYPE_RETURN:  rpc.Quick(handle.ReturnLease).WithToken(),

		wire.Type_TYPE_DRAIN:     rpc.Waiting(late(&d.work.drains, (*drain.Service).Drain)).WithToken(),
		wire.Type_TYPE_STAGE_IN:  rpc.Waiting(late(&d.work.stages, (*staging.Service).In)),
		wire.Type_TYPE_STAGE_OUT: rpc.Waiting(late(&d.work.stages, (*staging.Service).Out)),
		wire.Type_TYPE_VERIFY:    rpc.Waiting(late(&d.work.drains, (*drain.Service).Verify)),
		wire.Type_TYPE_RECEIPT:   rpc.Waiting(late(&d.work.drains, (*drain.Service).Receipt)).WithToken(),

		wire.Type_TYPE_NODES:        rpc.Waiting(late(&d.work.nodes, (*nodes.Service).List)),
		wire.Type_TYPE_NODE_DRAIN:   rpc.Waiting(late(&d.work.drains, (*drain.Service).Node)),
		wire.Type_TYPE_NODE_UNDRAIN: rpc.Waiting(late(&d.work.drains, (*drain.Service).UndoNode)),
		wire.Type_TYPE_NODE_FORGET:  rpc.Waiting(late(&d.work.nodes, (*nodes.Service).Forget)),
		wire.Type_TYPE_NODE_LOSS:    rpc.Waiting(late(&d.work.nodes, (*nodes.Service).Loss)),

		wire.Type_TYPE_TOKEN:      rpc.Waiting(d.token),
		wire.Type_TYPE_JOBS:       rpc.Waiting(late(&d.work.transfers, (*transfer.Service).List)),
		wire.Type_TYPE_JOB:        rpc.Waiting(late(&d.work.transfers, (*transfer.Service).Get)),
		wire.Type_TYPE_JOB_CANCEL: rpc.Waiting(late(&d.work.transfers, (*transfer.Service).Cancel)),

		wire.Type_TYPE_LIFETIME_OPEN:  rpc.Waiting(late(&d.work.batch, (*batch.Controller).Open)),
		wire.Type_TYPE_LIFETIME_LEAVE: rpc.Waiting(late(&d.work.batch, (*batch.Controller).Leave)),
		wire.Type_TYPE_LIFETIME_END:   rpc.Waiting(late(&d.work.batch, (*batch.Controller).End)),
		wire.Type_TYPE_LIFETIME_DUE:   rpc.Waiting(late(&d.work.batch, (*batch.Controller).Due)),
		wire.Type_TYPE_LIFETIMES:      rpc.Waiting(late(&d.work.batch, (*batch.Controller).List)),

		wire.Type_TYPE_TXN_BEGIN:  rpc.Waiting(late(&d.work.txns, (*txn.Service).Begin)).WithToken(),
		wire.Type_TYPE_TXN_ADOPT:  rpc.Waiting(late(&d.work.txns, (*txn.Service).Adopt)).WithToken(),
		wire.Type_TYPE_TXN_COMMIT: rpc.Waiting(late(&d.work.txns, (*txn.Service).Commit)).WithToken(),
		wire.Type_TYPE_TXN_ABORT:  rpc.Waiting(late(&d.work.txns, (*txn.Service).Abort)).WithToken(),
		wire.Type_TYPE_TXN_RENEW:  rpc.Waiting(late(&d.work.txns, (*txn.Service).Renew)).WithToken(),
		wire.Type_TYPE_TXN_GET:    rpc.Waiting(late(&d.work.txns, (*txn.Service).Get)).WithToken(),
		wire.Type_TYPE_TXN_LIST:   rpc.Waiting(late(&d.work.txns, (*txn.Service).List)),

		wire.Type_TYPE_TAKE:      rpc.Waiting(d.acceptMigration),
		wire.Type_TYPE_REPLICATE: rpc.Waiting(d.replicate),
		wire.Type_TYPE_HOLD:      rpc.Waiting(late(&d.work.changes, (*change.Service).Hold)),
		wire.Type_TYPE_FOLLOW:    rpc.Waiting(late(&d.work.changes, (*change.Service).Follow)),
		wire.Type_TYPE_DISCARD:   rpc.Waiting(d.discard),
		wire.Type_TYPE_RECHECK:   rpc.Waiting(d.reconcileFiles),
		wire.Type_TYPE_NAMES:     rpc.Waiting(d.namesCall),

		wire.Type_TYPE_PLACE_RENAME: rpc.Waiting(late(&d.work.changes, (*change.Service).RenamePlace)),
		wire.Type_TYPE_PLACE_REMOVE: rpc.Waiting(late(&d.work.changes, (*change.Service).RemovePlace)),
	}
}

// openFile opens a file for a session.
func (d *Daemon) openFile(r *rpc.Request, m *wire.Open) (rpc.Ordered, func(context.Context) (proto.Message, []byte, error), error) {
	return d.work.files.Open(r, m)
}

// lease grants a session a lease.
func (d *Daemon) lease(ctx context.Context, r *rpc.Request, m *wire.LeaseRequest) (proto.Message, error) {
	return d.work.files.Lease(ctx, r, m)
}

// late returns a handler that is a method of a part of the daemon, which is made after the table of
// handlers.
func late[P, M any](part *P, handle func(P, context.Context, call.Request, M) (proto.Message, error)) func(context.Context, *rpc.Request, M) (proto.Message, error) {
	return func(ctx context.Context, r *rpc.Request, m M) (proto.Message, error) { return handle(*part, ctx, r, m) }
}
