package bbd

import "forebay/internal/wire"

// handlers says how each request is carried out: quick ones on the session's
// reading goroutine, waiting ones on their own, those on a handle in order.
func (d *Daemon) handlers() map[wire.Type]operation {
	return map[wire.Type]operation{
		wire.Type_TYPE_HELLO:     quick(greeted),
		wire.Type_TYPE_PROVE:     quick(greeted),
		wire.Type_TYPE_CANCEL:    quick(cancel),
		wire.Type_TYPE_STATUS:    waiting(d.status),
		wire.Type_TYPE_SUBSCRIBE: waiting(d.subscribe),

		wire.Type_TYPE_BUFFER_CREATE:  waiting(d.bufferCreate),
		wire.Type_TYPE_BUFFER_GET:     waiting(d.bufferGet),
		wire.Type_TYPE_BUFFER_LIST:    waiting(d.bufferList),
		wire.Type_TYPE_BUFFER_DESTROY: waiting(d.bufferDestroy),

		wire.Type_TYPE_STAT:    waiting(d.stat),
		wire.Type_TYPE_LIST:    waiting(d.list),
		wire.Type_TYPE_MKDIR:   waiting(d.mkdir),
		wire.Type_TYPE_RENAME:  waiting(d.rename),
		wire.Type_TYPE_REMOVE:  waiting(d.remove),
		wire.Type_TYPE_SETATTR: waiting(d.setAttr),
		wire.Type_TYPE_LOST:    waiting(d.lost),

		wire.Type_TYPE_OPEN:    openOperation(openHandle),
		wire.Type_TYPE_COMMIT:  inOrder((*handle).mayCommitQuickly, (*handle).commitRequest),
		wire.Type_TYPE_EXTENTS: inOrder((*handle).mayReadQuickly, (*handle).extentsRequest),
		wire.Type_TYPE_CLOSE:   inOrder((*handle).mayCloseQuickly, (*handle).closeRequest),
		wire.Type_TYPE_UNPIN:   quick(d.unpin),
		wire.Type_TYPE_LEASE:   waiting(d.lease),
		wire.Type_TYPE_RETURN:  quick(d.returnLease),

		wire.Type_TYPE_DRAIN:     waiting(d.drain),
		wire.Type_TYPE_STAGE_IN:  waiting(d.stageIn),
		wire.Type_TYPE_STAGE_OUT: waiting(d.stageOut),
		wire.Type_TYPE_VERIFY:    waiting(d.verify),
		wire.Type_TYPE_RECEIPT:   waiting(d.receipt),

		wire.Type_TYPE_NODES:        waiting(d.nodes),
		wire.Type_TYPE_NODE_DRAIN:   waiting(d.nodeDrain),
		wire.Type_TYPE_NODE_UNDRAIN: waiting(d.undrainNode),
		wire.Type_TYPE_NODE_FORGET:  waiting(d.forget),
		wire.Type_TYPE_NODE_LOSS:    waiting(d.nodeLoss),

		wire.Type_TYPE_TOKEN:      waiting(d.token),
		wire.Type_TYPE_JOBS:       waiting(d.jobs),
		wire.Type_TYPE_JOB:        waiting(d.job),
		wire.Type_TYPE_JOB_CANCEL: waiting(d.cancelJob),

		wire.Type_TYPE_LIFETIME_OPEN:  waiting(d.lifetimeOpen),
		wire.Type_TYPE_LIFETIME_LEAVE: waiting(d.lifetimeLeave),
		wire.Type_TYPE_LIFETIME_END:   waiting(d.lifetimeEnd),
		wire.Type_TYPE_LIFETIME_DUE:   waiting(d.lifetimeDue),
		wire.Type_TYPE_LIFETIMES:      waiting(d.lifetimes),

		wire.Type_TYPE_TXN_BEGIN:  waiting(d.txnBegin),
		wire.Type_TYPE_TXN_ADOPT:  waiting(d.txnAdopt),
		wire.Type_TYPE_TXN_COMMIT: waiting(d.txnCommit),
		wire.Type_TYPE_TXN_ABORT:  waiting(d.txnAbort),
		wire.Type_TYPE_TXN_RENEW:  waiting(d.txnRenew),
		wire.Type_TYPE_TXN_GET:    waiting(d.txnGet),
		wire.Type_TYPE_TXN_LIST:   waiting(d.txnList),

		wire.Type_TYPE_TAKE:      waiting(d.take),
		wire.Type_TYPE_REPLICATE: waiting(d.replicate),
		wire.Type_TYPE_HOLD:      waiting(d.hold),
		wire.Type_TYPE_DISCARD:   waiting(d.discard),
		wire.Type_TYPE_RECHECK:   waiting(d.recheckFiles),

		wire.Type_TYPE_PLACE_RENAME: waiting(d.renamePlace),
		wire.Type_TYPE_PLACE_REMOVE: waiting(d.removePlace),
	}
}
