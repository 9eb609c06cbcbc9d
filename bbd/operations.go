package bbd

import "forebay/internal/wire"

// operations says how each request is carried out: quick ones on the session's
// reading goroutine, waiting ones on their own, those on a handle in order.
var operations = map[wire.Type]operation{
	wire.Type_TYPE_HELLO:     quick((*request).greeted),
	wire.Type_TYPE_PROVE:     quick((*request).greeted),
	wire.Type_TYPE_CANCEL:    quick((*request).cancel),
	wire.Type_TYPE_STATUS:    waiting((*request).status),
	wire.Type_TYPE_SUBSCRIBE: waiting((*request).subscribe),

	wire.Type_TYPE_BUFFER_CREATE:  waiting((*request).bufferCreate),
	wire.Type_TYPE_BUFFER_GET:     waiting((*request).bufferGet),
	wire.Type_TYPE_BUFFER_LIST:    waiting((*request).bufferList),
	wire.Type_TYPE_BUFFER_DESTROY: waiting((*request).bufferDestroy),

	wire.Type_TYPE_STAT:    waiting((*request).stat),
	wire.Type_TYPE_LIST:    waiting((*request).list),
	wire.Type_TYPE_MKDIR:   waiting((*request).mkdir),
	wire.Type_TYPE_RENAME:  waiting((*request).rename),
	wire.Type_TYPE_REMOVE:  waiting((*request).remove),
	wire.Type_TYPE_SETATTR: waiting((*request).setAttr),
	wire.Type_TYPE_LOST:    waiting((*request).lost),

	wire.Type_TYPE_OPEN:    openOperation((*session).openFile),
	wire.Type_TYPE_COMMIT:  inOrder((*handle).mayCommitQuickly, (*request).commit),
	wire.Type_TYPE_EXTENTS: inOrder((*handle).mayReadQuickly, (*request).extents),
	wire.Type_TYPE_CLOSE:   inOrder((*handle).mayCloseQuickly, (*request).close),
	wire.Type_TYPE_UNPIN:   quick((*request).unpin),
	wire.Type_TYPE_LEASE:   waiting((*request).lease),
	wire.Type_TYPE_RETURN:  quick((*request).returnLease),

	wire.Type_TYPE_DRAIN:     waiting((*request).drain),
	wire.Type_TYPE_STAGE_IN:  waiting((*request).stageIn),
	wire.Type_TYPE_STAGE_OUT: waiting((*request).stageOut),
	wire.Type_TYPE_VERIFY:    waiting((*request).verify),
	wire.Type_TYPE_RECEIPT:   waiting((*request).receipt),

	wire.Type_TYPE_NODES:        waiting((*request).nodes),
	wire.Type_TYPE_NODE_DRAIN:   waiting((*request).drainNode),
	wire.Type_TYPE_NODE_UNDRAIN: waiting((*request).undrainNode),
	wire.Type_TYPE_NODE_FORGET:  waiting((*request).forget),
	wire.Type_TYPE_NODE_LOSS:    waiting((*request).nodeLoss),

	wire.Type_TYPE_TOKEN:      waiting((*request).token),
	wire.Type_TYPE_JOBS:       waiting((*request).jobs),
	wire.Type_TYPE_JOB:        waiting((*request).job),
	wire.Type_TYPE_JOB_CANCEL: waiting((*request).cancelJob),

	wire.Type_TYPE_LIFETIME_OPEN:  waiting((*request).lifetimeOpen),
	wire.Type_TYPE_LIFETIME_LEAVE: waiting((*request).lifetimeLeave),
	wire.Type_TYPE_LIFETIME_END:   waiting((*request).lifetimeEnd),
	wire.Type_TYPE_LIFETIME_DUE:   waiting((*request).lifetimeDue),
	wire.Type_TYPE_LIFETIMES:      waiting((*request).lifetimes),

	wire.Type_TYPE_TXN_BEGIN:  waiting((*request).txnBegin),
	wire.Type_TYPE_TXN_ADOPT:  waiting((*request).txnAdopt),
	wire.Type_TYPE_TXN_COMMIT: waiting((*request).txnCommit),
	wire.Type_TYPE_TXN_ABORT:  waiting((*request).txnAbort),
	wire.Type_TYPE_TXN_RENEW:  waiting((*request).txnRenew),
	wire.Type_TYPE_TXN_GET:    waiting((*request).txnGet),
	wire.Type_TYPE_TXN_LIST:   waiting((*request).txnList),

	wire.Type_TYPE_TAKE:      waiting((*request).take),
	wire.Type_TYPE_REPLICATE: waiting((*request).replicate),
	wire.Type_TYPE_HOLD:      waiting((*request).hold),
	wire.Type_TYPE_DISCARD:   waiting((*request).discard),
	wire.Type_TYPE_RECHECK:   waiting((*request).recheckFiles),

	wire.Type_TYPE_PLACE_RENAME: waiting((*request).renamePlace),
	wire.Type_TYPE_PLACE_REMOVE: waiting((*request).removePlace),
}
