package wire

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
)

// TestEveryRequestHasARepetition: each request has an entry on whether it may be sent again.
func TestEveryRequestHasARepetition(t *testing.T) {
	for n, name := range Type_name {
		if repetitions[Type(n)] == 0 && Type(n) != Type_TYPE_UNSPECIFIED {
			t.Errorf("%s is not in the table of repetitions", name)
		}
	}
	if MayRepeat(Type_TYPE_UNSPECIFIED, nil) {
		t.Error("an unknown request may be repeated")
	}
}

func TestMayRepeat(t *testing.T) {
	for _, c := range []struct {
		typ  Type
		m    proto.Message
		want bool
	}{
		{Type_TYPE_STAT, &PathRequest{}, true},
		{Type_TYPE_DRAIN, &Drain{}, true},
		{Type_TYPE_TXN_COMMIT, &TxnCommit{}, true},
		{Type_TYPE_TXN_BEGIN, &TxnBegin{Key: "k"}, true},
		{Type_TYPE_TXN_BEGIN, &TxnBegin{}, false},
		{Type_TYPE_MKDIR, &Mkdir{}, false},
		{Type_TYPE_MKDIR, &Mkdir{Parents: true}, false}, // others may have removed the tree
		{Type_TYPE_MKNOD, &Mknod{}, false},
		{Type_TYPE_REMOVE, &Remove{Recursive: true}, false},
		{Type_TYPE_RENAME, &Rename{NoReplace: true}, false},
		{Type_TYPE_SETATTR, &SetAttr{}, false},
		{Type_TYPE_SET_XATTR, &SetXattr{}, false},
		{Type_TYPE_XATTRS, &PathRequest{}, true},
		{Type_TYPE_BUFFER_DESTROY, &BufferDestroy{}, false},
		{Type_TYPE_NODE_FORGET, &NodeName{}, false},
		{Type_TYPE_NODE_UNDRAIN, &NodeName{}, false},
		{Type_TYPE_OPEN, &Open{}, false},
		{Type_TYPE_COMMIT, &Commit{}, false},
		{Type_TYPE_LEASE, &LeaseRequest{}, false},
	} {
		if got := MayRepeat(c.typ, c.m); got != c.want {
			t.Errorf("%v %v: %v", c.typ, c.m, got)
		}
	}
}

// TestOutcomesCrossTheWire: an error's outcome of a change reaches the requester.
func TestOutcomesCrossTheWire(t *testing.T) {
	away := bb.E(bb.Unavailable, "reach", "n1", "it does not answer")
	for _, c := range []struct {
		typ     Type
		err     error
		unknown bool
	}{
		{Type_TYPE_REMOVE, away, false},
		{Type_TYPE_REMOVE, bb.Wrap("remove", "bb://b/x", bb.MaybeDone(away)), true},
		{Type_TYPE_BUFFER_CREATE, away, false},
		{Type_TYPE_BUFFER_CREATE, bb.MaybeDone(away), true},
		{Type_TYPE_BUFFER_DESTROY, away, true}, // daemons do not report it
		{Type_TYPE_BUFFER_CREATE, bb.E(bb.Exists, "create", "b", "it is there"), false},
		{Type_TYPE_STAT, away, false},
	} {
		got := FailedReply(c.typ, c.err).AsErrorOf(c.typ)
		if got.Kind != bb.KindOf(c.err) || errors.Is(got, bb.ErrUnknownOutcome) != c.unknown {
			t.Errorf("%v, %v: %+v", c.typ, c.err, got)
		}
	}
}
