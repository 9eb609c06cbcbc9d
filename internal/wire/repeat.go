package wire

import (
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
)

// A connection may break between a request and its answer. The request may have been
// carried out then, and others may have changed its subject since. So each request
// has a repetition, which decides whether its sender may send it again.

// repetition is the effect of a second execution of a request.
type repetition uint8

const (
	// inSession: the request is about its session, and ends with it.
	inSession repetition = 1 + iota
	// reading: the request changes nothing.
	reading
	// keyed: the request names its subject by an id or key that is never used again,
	// and leads to the same end at every repetition.
	keyed
	// resumed: the sender of the request has rules of its own for going on in a new session.
	resumed
	// onceOnly: a second execution may undo others' changes after the first.
	onceOnly
)

var repetitions = map[Type]repetition{
	Type_TYPE_HELLO:  inSession,
	Type_TYPE_PROVE:  inSession,
	Type_TYPE_PULSE:  inSession,
	Type_TYPE_CANCEL: inSession,
	Type_TYPE_UNPIN:  inSession,
	Type_TYPE_CLOSE:  inSession,
	Type_TYPE_LEASE:  inSession,
	Type_TYPE_RETURN: inSession,
	Type_TYPE_HOLD:   inSession,
	Type_TYPE_FOLLOW: inSession,

	Type_TYPE_STATUS:      reading,
	Type_TYPE_SUBSCRIBE:   reading,
	Type_TYPE_BUFFER_GET:  reading,
	Type_TYPE_BUFFER_LIST: reading,
	Type_TYPE_STAT:        reading,
	Type_TYPE_XATTRS:      reading,
	Type_TYPE_LIST:        reading,
	Type_TYPE_LOST:        reading,
	Type_TYPE_EXTENTS:     reading,
	Type_TYPE_VERIFY:      reading,
	Type_TYPE_RECEIPT:     reading,
	Type_TYPE_NODES:       reading,
	Type_TYPE_NODE_LOSS:   reading,
	Type_TYPE_JOBS:        reading,
	Type_TYPE_JOB:         reading,
	Type_TYPE_LIFETIMES:   reading,
	Type_TYPE_TXN_GET:     reading,
	Type_TYPE_TXN_LIST:    reading,

	Type_TYPE_DRAIN:          keyed, // Drain.key; a second flush of the same bytes changes nothing
	Type_TYPE_STAGE_IN:       keyed, // Stage.key
	Type_TYPE_STAGE_OUT:      keyed, // Stage.key
	Type_TYPE_NODE_DRAIN:     keyed, // ends when nothing is left on the node
	Type_TYPE_TOKEN:          keyed, // the first token is in no hands
	Type_TYPE_JOB_CANCEL:     keyed,
	Type_TYPE_LIFETIME_OPEN:  keyed,
	Type_TYPE_LIFETIME_LEAVE: keyed,
	Type_TYPE_LIFETIME_END:   keyed,
	Type_TYPE_TXN_BEGIN:      keyed, // unless it has no key (see MayRepeat)
	Type_TYPE_TXN_ADOPT:      keyed,
	Type_TYPE_TXN_COMMIT:     keyed,
	Type_TYPE_TXN_ABORT:      keyed,
	Type_TYPE_TXN_RENEW:      keyed,
	Type_TYPE_REPLICATE:      keyed, // a file's generation
	Type_TYPE_TAKE:           keyed, // the same
	Type_TYPE_BUFFER_REBUILD: keyed, // of a buffer that is served, it does nothing
	Type_TYPE_RECHECK:        keyed, // compares with the store, and flushes differing files
	Type_TYPE_PLACE_RENAME:   keyed, // PlaceRename.expect
	Type_TYPE_PLACE_REMOVE:   keyed, // PlaceRemove.expect
	Type_TYPE_NAMES:          keyed, // a change has its session and number

	Type_TYPE_OPEN:   resumed, // Open.resume_file, resume_generation; an exclusive create and a fence are not repeated
	Type_TYPE_COMMIT: resumed, // Commit.writer, number

	Type_TYPE_BUFFER_CREATE:  onceOnly,
	Type_TYPE_BUFFER_DESTROY: onceOnly,
	Type_TYPE_MKDIR:          onceOnly,
	Type_TYPE_MKNOD:          onceOnly,
	Type_TYPE_RENAME:         onceOnly,
	Type_TYPE_EXCHANGE:       onceOnly,
	Type_TYPE_REMOVE:         onceOnly,
	Type_TYPE_SETATTR:        onceOnly,
	Type_TYPE_SET_XATTR:      onceOnly,
	Type_TYPE_NODE_UNDRAIN:   onceOnly, // it may have been drained again
	Type_TYPE_NODE_FORGET:    onceOnly, // the node may have come back, and gone again with more
	Type_TYPE_LIFETIME_DUE:   onceOnly, // a newer date, or a warning, may be there
	Type_TYPE_DISCARD:        onceOnly, // of a buffer; there may be a new one of its name
}

// MayRepeat reports whether a request that was sent, and whose answer is lost, may be sent
// again as it is.
func MayRepeat(typ Type, m proto.Message) bool {
	switch repetitions[typ] {
	case reading:
		return true
	case keyed:
		begin, ok := m.(*TxnBegin)
		return !ok || begin.Key != ""
	}
	return false
}

// Changes reports whether a request creates, writes or removes more than its session's state.
func Changes(typ Type, m proto.Message) bool {
	switch repetitions[typ] {
	case onceOnly:
		return true
	case resumed:
		open, ok := m.(*Open)
		return !ok || open.Write
	}
	return false
}

// saysOutcome reports whether daemons mark the errors of requests of a type after which it may
// have been carried out.
func saysOutcome(typ Type) bool {
	switch typ {
	case Type_TYPE_MKDIR, Type_TYPE_MKNOD, Type_TYPE_RENAME, Type_TYPE_EXCHANGE, Type_TYPE_REMOVE, Type_TYPE_SETATTR, Type_TYPE_SET_XATTR, Type_TYPE_OPEN, Type_TYPE_BUFFER_CREATE:
		return true
	}
	return false
}

// mayBeDone reports whether a request may have been carried out whose answer is an error. Where the
// answer has no mark, the kind decides. Most kinds are refusals.
func mayBeDone(typ Type, outcome uint32, kind bb.Kind) bool {
	switch outcome {
	case outcomeNone:
		return false
	case outcomeUnknown:
		return true
	}
	return (repetitions[typ] == onceOnly || repetitions[typ] == resumed) &&
		(kind == bb.Unavailable || kind == bb.Cancelled || kind == bb.Internal)
}
