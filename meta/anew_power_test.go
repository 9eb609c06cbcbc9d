package meta

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/embedded"
	"forebay/meta/metatest"
	"forebay/meta/namespace/namespacetest"
)

// syncing is a server whose folder is copied when it is synced. A loss of power leaves at least that.
type syncing struct {
	*embedded.Server
	t     *testing.T
	dir   string
	kept  string // the last copy
	syncs atomic.Int64
}

func (s *syncing) Sync() error {
	if err := s.Server.Sync(); err != nil {
		return err
	}
	s.kept = s.t.TempDir()
	s.syncs.Add(1)
	return os.CopyFS(s.kept, os.DirFS(s.dir))
}

// TestBeginAnewPower: a loss of power after a log was begun anew leaves the names in one of the two logs, and at the
// latest when the damaged log is deleted, in the new one.
func TestBeginAnewPower(t *testing.T) {
	t.Parallel()
	ctx, dir := testContext(t), t.TempDir()
	s := startServer(t, dir)
	m := connectTo(t, Options{InProcess: s, SoleWriter: true, Engine: EngineLog})
	tree := newBuffer(t, m, "b")
	namespacetest.Create(t, tree, bb.RootDir, "the-damaged-one")
	namespacetest.Create(t, tree, bb.RootDir, "f")
	spec, err := m.Buffer(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	s.Shutdown()
	metatest.FlipText(t, dir, "NS_forebay-b-", "the-damaged-one")
	has := func(dir, when string) {
		t.Helper()
		s := startServer(t, dir)
		defer s.Shutdown()
		m := connectTo(t, Options{InProcess: s, SoleWriter: true})
		defer m.Close()
		tree, err := m.Namespace(ctx, "b")
		if err == nil {
			_, err = tree.Lookup(ctx, bb.RootDir, "f")
		}
		if err != nil {
			t.Errorf("after a loss of power %s: %v", when, err)
		}
	}
	powered := &syncing{Server: startServer(t, dir), t: t, dir: dir}
	m = connectTo(t, Options{InProcess: powered, SoleWriter: true})
	if _, err := m.BeginAnew(ctx, spec, func(*bb.Entry) bool { return true }); err != nil {
		t.Fatal(err)
	}
	m.Close()
	powered.Shutdown()
	if powered.syncs.Load() < 2 {
		t.Fatalf("synced %d times, want the new log before its record, and that", powered.syncs.Load())
	}
	has(powered.kept, "when the log was begun anew")

	// The next start deletes the damaged log, perhaps of a daemon that was killed before it synced the record.
	again := &syncing{Server: startServer(t, dir), t: t, dir: dir}
	m = connectTo(t, Options{InProcess: again, SoleWriter: true})
	m.orphanAge = 0
	if err := m.Repair(ctx); err != nil {
		t.Fatal(err)
	}
	m.Close()
	again.Shutdown()
	logs, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "NS_forebay-b-*"))
	if err != nil || len(logs) != 1 || again.syncs.Load() == 0 {
		t.Fatalf("logs %q (%v) after %d syncs: want one, and none deleted before a sync", logs, err, again.syncs.Load())
	}
	has(again.kept, "when the damaged log was deleted")
}
