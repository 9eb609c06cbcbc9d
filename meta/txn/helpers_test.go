package txn

import (
	"context"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/kv/kvtest"
	"forebay/meta/metatest"
	"forebay/meta/nsbucket"
	"forebay/meta/nslog"
	"forebay/meta/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mode is an engine, and a way in which it answers.
type mode struct {
	name   string
	log    bool  // its namespace is a log, in the memory of its owner
	sole   bool  // one process uses it
	copies int32 // that its bucket counts as having; with more than one, reads put barriers; 0: as it is
}

var modes = []mode{
	{"sole writer", false, true, 1},
	{"several writers", false, false, 1},
	{"several copies", false, false, 3},
	{"log", true, true, 0},
}

// eachMode runs a test in modes, each on a namespace of its own.
func eachMode(t *testing.T, of []mode, test func(*testing.T, *space)) {
	t.Helper()
	for _, m := range of {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			test(t, &space{mode: m, server: metatest.StartServer(t, t.TempDir())})
		})
	}
}

// space is a namespace on a server.
type space struct {
	mode
	server conn.InProcess
	only   *process // that uses it, where others may not
}

// process is a process that uses a namespace.
type process struct {
	*Tree
	conn    *conn.Conn
	bucket  *kv.Bucket // nil: it is a log
	changes string     // prefix of the subjects of changes
}

// ids are those of one process.
type ids struct{ base, last atomic.Uint64 }

func (i *ids) Next(context.Context) (uint64, error) { return i.base.Load() + i.last.Add(1), nil }

func newIDs() *ids {
	own := &ids{}
	own.base.Store(kv.Random64() >> 1)
	return own
}

var buffer = &bb.Buffer{Name: "buf", Mode: 0o755, UID: 7}

// start starts a process that uses the namespace, or returns the only one.
func (s *space) start(t testing.TB) *process {
	t.Helper()
	if s.only != nil {
		return s.only
	}
	c := kvtest.Dial(t, conn.Options{InProcess: s.server})
	p := s.startOnBucket
	if s.log {
		p = s.startOnLog
	}
	started := p(t, c)
	if s.sole {
		s.only = started
	}
	return started
}

func (s *space) startOnLog(t testing.TB, c *conn.Conn) *process {
	log := stream.New(c, "NS_buf")
	if err := log.Ensure(metatest.Context(t)); err != nil {
		t.Fatal(err)
	}
	e, err := nslog.Open(metatest.Context(t), log, newIDs(), nslog.Options{Buffer: "buf", Node: "me", Logger: metatest.Logger(t), CheckpointBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if err := e.Prepare(metatest.Context(t), buffer); err != nil {
		t.Fatal(err)
	}
	return &process{Tree: &Tree{e, New(e, e.Records())}, conn: c, changes: "NS_buf.log"}
}

func (s *space) startOnBucket(t testing.TB, c *conn.Conn) *process {
	b := kv.New(c, "forebay-buf-1", kv.BucketOptions{Gone: kv.NeverGone})
	ns := nsbucket.Open(b, newIDs(), nsbucket.Options{Buffer: "buf", Node: "me", SoleWriter: s.sole})
	if err := ns.Prepare(metatest.Context(t), buffer); err != nil {
		t.Fatal(err)
	}
	if s.copies > 0 {
		b.AssumeCopies(s.copies)
	}
	return &process{&Tree{ns, New(ns, b)}, c, b, b.Subjects()}
}
