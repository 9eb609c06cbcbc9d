package wire

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
)

func TestCommonVersion(t *testing.T) {
	for _, x := range []struct {
		a, b   Versions
		want   uint32
		common bool
	}{
		{Versions{1, 2}, Versions{1, 2}, 2, true},
		{Versions{1, 2}, Versions{1, 1}, 1, true},
		{Versions{1, 2}, Versions{2, 3}, 2, true},
		{Versions{1, 2}, Versions{0, math.MaxUint32}, 2, true},
		{Versions{1, 2}, Versions{3, 4}, 0, false},
		{Versions{2, 3}, Versions{1, 1}, 0, false},
		{Versions{1, 2}, Versions{}, 0, false},
		{Versions{1, 2}, Versions{2, 1}, 0, false}, // nonsense
	} {
		for _, v := range [][2]Versions{{x.a, x.b}, {x.b, x.a}} {
			if got, common := v[0].Common(v[1]); common != x.common || common && got != x.want {
				t.Errorf("%v and %v: %d %v, want %d %v", v[0], v[1], got, common, x.want, x.common)
			}
		}
	}
}

// The rule of version.go: this version and the one before.
func TestPreviousVersionIsSpoken(t *testing.T) {
	if MaxVersion > 1 && MinVersion > MaxVersion-1 || MinVersion < 1 {
		t.Errorf("the release supports %v", Own())
	}
	for _, since := range []uint32{VersionJobs, VersionReplicas, VersionTokens, VersionRechecks, VersionTxns, VersionFences} {
		if since > MaxVersion {
			t.Errorf("something came with version %d, after the newest", since)
		}
	}
}

func TestNoCommonSaysWhatToUpgrade(t *testing.T) {
	old, young := Side{"bbctl 1.0", Versions{1, 1}}, Side{"bbd 3.0 of node n1", Versions{2, 3}}
	for _, e := range []*bb.Error{NoCommon("handshake", "", old, young), NoCommon("handshake", "", young, old)} {
		text := e.Error()
		for _, part := range []string{"bbctl 1.0 supports protocol version 1", "bbd 3.0 of node n1 supports protocol versions 2 to 3", "upgrade bbctl 1.0 to a release that supports version 2"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q lacks %q", text, part)
			}
		}
		if e.Kind != bb.Unsupported {
			t.Errorf("kind %v", e.Kind)
		}
	}
}

// On any call, a session of an older version is not sent a request or field that is unknown to it,
// or that it would ignore.
func TestSpeakable(t *testing.T) {
	for _, x := range []struct {
		typ   Type
		m     proto.Message
		since uint32
	}{
		{Type_TYPE_STAT, &PathRequest{}, 1},
		{Type_TYPE_HOLD, &Hold{}, 1},
		{Type_TYPE_TAKE, &Take{}, 1},
		{Type_TYPE_TAKE, &Take{Replica: true}, 2},
		{Type_TYPE_REPLICATE, &Replicate{}, 2},
		{Type_TYPE_RECHECK, &Recheck{}, 2},
		{Type_TYPE_NAMES, &Names{}, 2},
		{Type_TYPE_BUFFER_CREATE, &Buffer{Replicas: 1}, 1},
		{Type_TYPE_BUFFER_CREATE, &Buffer{Replicas: 2}, 2},
		{Type_TYPE_JOBS, &Empty{}, 2},
		{Type_TYPE_TXN_BEGIN, &TxnBegin{}, 2},
		{Type_TYPE_TXN_COMMIT, &TxnCommit{}, 2},
		{Type_TYPE_PLACE_RENAME, &PlaceRename{}, 2},
		{Type_TYPE_JOB, &JobRequest{}, 2},
		{Type_TYPE_JOB_CANCEL, &JobRequest{}, 2},
		{Type_TYPE_TOKEN, &TokenRequest{}, 2},
		{Type_TYPE_OPEN, &Open{Write: true}, 1},
		{Type_TYPE_OPEN, &Open{Write: true, Fence: true}, 2},
		{Type_TYPE_CANCEL, nil, 1},
	} {
		for version := uint32(1); version <= MaxVersion; version++ {
			err := Speakable(version, "bbd 0.9 of node n1", x.typ, x.m)
			if (err == nil) != (version >= x.since) || err != nil && bb.KindOf(err) != bb.Unsupported {
				t.Errorf("%v in a session of version %d: %v", x.typ, version, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "bbd 0.9 of node n1 uses version 1") || !strings.Contains(err.Error(), "upgrade")) {
				t.Errorf("it says %v", err)
			}
		}
	}
	// A request without a version in the table is one of those that were always there.
	for n := range Type_name {
		if since, _ := Since(Type(n), nil); since > MaxVersion {
			t.Errorf("%v came with version %d", Type(n), since)
		}
	}
}
