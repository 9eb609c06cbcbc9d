package bbd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// speaking sets other versions for a member in gossip.
func (n *node) speaking(v wire.Versions) {
	daemon := n.daemon // the others request it while this one stops
	n.members.set(n.name, func() gossip.Member {
		m := daemon.Self()
		m.MinVersion, m.MaxVersion = v.Min, v.Max
		return m
	})
}

func wantSaid(t *testing.T, what string, err error, kind bb.Kind, parts ...string) {
	t.Helper()
	if bb.KindOf(err) != kind {
		t.Errorf("%s: %v, want %v", what, err, kind)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", what, err, part)
		}
	}
}

// While a member has the previous version, all do their common work as it does.
func TestOlderMember(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	older := wire.Versions{Min: 1, Max: wire.VersionJobs - 1}
	nodes[1].speaking(older)
	c := nodes[0].dial()
	b, dir := nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	for _, n := range nodes {
		write(t, n.dial().Buffer("b"), "f"+string(n.name), random(100_000))
	}
	_, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "two", Replicas: 2})
	wantSaid(t, "second copies", err, bb.Unsupported, "came with protocol version 2", "bbd test of node n2 uses version 1", "upgrade", "bbctl nodes")
	r, err := admin.Drain(t.Context(), c, "b", time.Minute, nil)
	if err != nil || r.FilesDone != r.FilesTotal {
		t.Errorf("drained %+v %v", r, err)
	}
	for _, n := range nodes { // some may have been flushed before
		if info, err := os.Stat(filepath.Join(dir, "f"+string(n.name))); err != nil || info.Size() != 100_000 {
			t.Errorf("on the store after a drain: %v, %v", info, err)
		}
	}
	to := t.TempDir()
	if _, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "b", URL: "file://" + to + "/out"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "b", Path: "in", URL: "file://" + to + "/out"}, nil); err != nil {
		t.Fatal(err)
	}
	// A file that is dirty elsewhere cannot be replaced now, and the error has the reason.
	keep, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "kept", NoFlush: []string{"*"}})
	if err := keep.Mkdir(t.Context(), "in", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, nodes[2].dial().Buffer("kept"), "in/fn1", []byte("dirty"))
	report, err := admin.StageIn(t.Context(), c, admin.StageRequest{Buffer: "kept", Path: "in", URL: "file://" + to + "/out"}, nil)
	if len(report.Failed) != 1 || report.Failed[0].Kind != client.ErrBusy || !strings.Contains(report.Failed[0].Reason, "its owner, node n3, and only a job can replace it there (drain the buffer first, or upgrade") {
		t.Errorf("stage-in over what is dirty elsewhere: %+v %v", report, err)
	}
	if jobs, err := admin.Operations(t.Context(), c); err != nil || len(jobs) != 0 {
		t.Errorf("jobs that an older member would never end: %+v %v", jobs, err)
	}
	if ns, err := admin.Nodes(t.Context(), c); err != nil || len(ns) != 3 || ns[1].Refused != "" || ns[1].MaxVersion != older.Max {
		t.Errorf("%+v %v", ns, err)
	}
	wantFile(t, b, "in/fn2", must(b.ReadFile(t.Context(), "fn2")))

	// It is upgraded.
	nodes[1].speaking(wire.Own())
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "two", Replicas: 2}); err != nil {
		t.Error(err)
	}
	drain(t, c, "b")
	if jobs, err := admin.Operations(t.Context(), c); err != nil || len(jobs) != 1 {
		t.Errorf("jobs: %+v %v", jobs, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A member without a common version gets no request. Calls that need it fail with that error.
// Others continue.
func TestStrangerAmongMembers(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	nodes[1].faults.Set(fault.Rule{Op: "put", Kind: fault.Refused}) // its files are to be missing in the drain
	write(t, nodes[1].dial().Buffer("b"), "theirs", random(1000))
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	nodes[1].speaking(wire.Versions{Min: 7, Max: 9})
	said := []string{"bbd test of node n2 supports protocol versions 7 to 9", "bbd test of node n1 supports protocol versions 1 to 2", "upgrade bbd test of node n1 to a release that supports version 7"}
	_, err := b.ReadFile(t.Context(), "theirs")
	wantSaid(t, "reading its file", err, bb.Unsupported, said...)
	wantSaid(t, "renaming its file", b.Rename(t.Context(), "theirs", "ours"), bb.Unsupported, said...)
	wantSaid(t, "renaming a directory, of which it might flush something", b.Rename(t.Context(), "d", "e"), bb.Unsupported, said...)
	_, err = admin.DrainNode(t.Context(), c, "n2", nil)
	wantSaid(t, "draining its node", err, bb.Unsupported, said...)
	ns, err := admin.Nodes(t.Context(), c)
	if err != nil || len(ns) != 3 || ns[0].Refused != "" || ns[2].Refused != "" {
		t.Fatalf("%+v %v", ns, err)
	}
	for _, part := range said {
		if !strings.Contains(ns[1].Refused, part) {
			t.Errorf("the list of nodes says %q, not %q", ns[1].Refused, part)
		}
	}
	write(t, b, "ours", random(1000))
	wantFile(t, nodes[2].dial().Buffer("b"), "ours", must(b.ReadFile(t.Context(), "ours")))
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "two", Replicas: 2}); err != nil {
		t.Errorf("it counts for what the others can do: %v", err)
	}
	r, err := admin.Drain(t.Context(), c, "b", time.Minute, nil)
	if err == nil || len(r.Failed) != 1 || r.Failed[0].Path != "theirs" {
		t.Errorf("a drain without it: %+v %v", r, err)
	}

	// One that starts does not begin to serve beside it. No daemon waits for one that does not
	// serve itself.
	nodes[2].stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantSaid(t, "starting beside it", nodes[2].tryStart(ctx), bb.Unsupported, said[0], "bbd test of node n3 supports protocol versions 1 to 2")
	nodes[1].members.set("n2", func() gossip.Member {
		return gossip.Member{Node: "n2", State: gossip.Starting, MinVersion: 7, MaxVersion: 9}
	})
	nodes[2].start()
	if err := b.Rename(t.Context(), "d", "e"); err != nil {
		t.Errorf("renaming a directory while it waits: %v", err)
	}
}

// A client of the previous version works, and features that it lacks are refused with a reason.
func TestClientOfThePreviousVersion(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	n.buffer(n.dial(), admin.BufferSpec{Name: "b"})
	r := n.connect()
	var welcome wire.Welcome
	r.ok(wire.Type_TYPE_HELLO, &wire.Hello{MinVersion: 1, MaxVersion: 1, Client: "bbctl 0.9"}, nil, &welcome)
	if welcome.Version != 1 {
		t.Fatalf("the session has version %d", welcome.Version)
	}
	content := random(1000)
	commit := &wire.Commit{Handle: 1, Close: true, Extents: []*wire.NewExtent{{Length: 1000, Checksum: checksum.Sum(content)}}}
	r.ok(wire.Type_TYPE_OPEN, &wire.Open{Handle: 1, Buffer: "b", Path: "f", Write: true, Create: true, Truncate: true}, nil, &wire.Opened{})
	r.ok(wire.Type_TYPE_COMMIT, commit, content, &wire.Committed{})
	wantFile(t, n.dial().Buffer("b"), "f", content)
	for typ, m := range map[wire.Type]proto.Message{
		wire.Type_TYPE_JOBS: &wire.Empty{}, wire.Type_TYPE_TOKEN: &wire.TokenRequest{Buffer: "b", LifetimeNs: 1}, wire.Type_TYPE_BUFFER_CREATE: &wire.Buffer{Name: "two", Replicas: 2},
	} {
		wantSaid(t, typ.String(), r.call(typ, m, nil).error(t), bb.Unsupported, "came with protocol version 2, and bbctl 0.9 uses version 1 here", "upgrade")
	}
}

func TestReceiptOfALaterRelease(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	lines := strings.NewReader(`{"forebay_receipt":2,"buffer":"b","backing":"file:///nowhere"}` + "\n")
	_, err := admin.Verify(t.Context(), n.dial(), lines, admin.VerifyOptions{})
	wantSaid(t, "verify", err, bb.Unsupported, "the receipt is of version 2, this daemon reads versions up to 1", "upgrade it")
}
