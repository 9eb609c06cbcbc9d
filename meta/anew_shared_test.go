package meta

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/metatest"
)

// silent are peers of which one answers no call.
type silent struct{ dead atomic.Bool }

func (s *silent) All() []Peer { return []Peer{{Node: "other", Away: true, Gone: s.dead.Load()}} }

func (*silent) SpeakLogs() error { return nil }

func (s *silent) Carry(context.Context, bb.NodeID, string, []byte) ([]byte, error) {
	return nil, errors.New("there is no answer")
}

// TestBeginAnewBesideSuspect: while another daemon is suspected, a log that is gone is not begun anew, since that daemon
// may have it in memory. It is when the other one is dead.
func TestBeginAnewBesideSuspect(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	dir := t.TempDir()
	s := startServer(t, dir)
	peers := &silent{}
	m := connectTo(t, Options{InProcess: s, Peers: peers, Engine: EngineLog})
	newBuffer(t, m, "b")
	spec, err := m.Buffer(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	s.Shutdown()
	was := metatest.StreamDir(t, dir, "NS_forebay-b-")
	if err := os.RemoveAll(was); err != nil {
		t.Fatal(err)
	}
	m = connectTo(t, Options{InProcess: startServer(t, dir), Peers: peers})
	anew := func(want bb.Kind) {
		t.Helper()
		_, err := m.BeginAnew(ctx, spec, func(*bb.Entry) bool { return false })
		wantKind(t, "beginning the log anew", err, want)
	}
	anew(bb.Unavailable)
	peers.dead.Store(true)
	anew(0)
	if now := metatest.StreamDir(t, dir, "NS_forebay-b-"); now == was {
		t.Errorf("the log is in %s as before", now)
	}
}
