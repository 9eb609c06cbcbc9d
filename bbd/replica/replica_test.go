package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/cluster"
	"forebay/bbd/dirty"
	"forebay/bbd/owner"
	"forebay/bbd/peer"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
)

// stager writes so many bytes.
type stager func(ctx context.Context, bytes int) error

// world is the state of the tests' daemon n1, and its view of others. Calls has the operations.
type world struct {
	spec     bb.Buffer
	entry    *bb.Entry // nil: there is none
	sum      uint64    // of the file's bytes in memory
	size     int64
	has      error // of a check of it
	record   []error
	shown    func()                      // is called when a generation is to be shown
	staged   stager                      // writes into memory of the others; nil: they have none
	read     bool                        // a copy of the file has readers
	changing bool                        // another change holds the file's place
	others   []bb.NodeID                 // in the order in which they get requests
	gone     []bb.NodeID                 // of the others
	memory   map[bb.NodeID]bb.InstanceID // of the others, as gossip has it
	old      []bb.NodeID                 // of the others of a release without second copies
	refuses  error                       // of the others, to sessions and requests
	session  *peer.Session
	unheard  error      // the fate of the answers to changes of the namespace; nil: they come
	missed   int        // so many answers to changes of the namespace are lost
	mu       sync.Mutex // guards the next fields
	open     []OpenFile // being written
	calls    []string
}

// opens has files being written from now on.
func (w *world) opens(files ...OpenFile) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = files
}

func (w *world) did(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf(format, args...))
}

// done returns the calls so far, and drops them.
func (w *world) done() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

func (w *world) Lookup(context.Context, bb.DirID, string) (bb.Entry, error) {
	if w.entry == nil {
		return bb.Entry{}, bb.NotFound
	}
	return *w.entry, nil
}

func (w *world) LookupAgain(ctx context.Context, dir bb.DirID, name string) (bb.Entry, error) {
	return w.Lookup(ctx, dir, name)
}

func (w *world) Update(ctx context.Context, dir bb.DirID, name string, change func(*bb.Entry) error) (bb.Entry, error) {
	e, err := w.Lookup(ctx, dir, name)
	if err == nil {
		err = change(&e)
	}
	if err == nil {
		w.entry = &e
	}
	if err == nil && w.missed > 0 {
		w.missed--
		return bb.Entry{}, fmt.Errorf("%w: %w", bb.Unavailable, bb.ErrUnknownOutcome)
	}
	if err == nil && w.unheard != nil {
		return bb.Entry{}, w.unheard
	}
	return e, err
}

// files are the files at n1.
type files struct{ w *world }

func (f files) Spec() bb.Buffer { return f.w.spec }
func (f files) Open() []OpenFile {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	return f.w.open
}

func (f files) Pin(context.Context, *bb.Entry, *store.Snapshot) (*store.Pinned, []store.Extent, error) {
	return nil, nil, errors.New("there is no memory")
}

func (f files) Stage(ctx context.Context, _ *peer.Session, extents []*wire.NewExtent, bytes [][]byte) ([]*wire.NewExtent, func(), error) {
	if f.w.staged == nil {
		return nil, nil, errors.New("there is no memory")
	}
	total := 0
	for _, p := range bytes {
		total += len(p)
	}
	if err := f.w.staged(ctx, total); err != nil {
		return nil, nil, err
	}
	return extents, func() { f.w.did("done %d", total) }, nil
}

func (f files) ForgetIdle(bb.FileID, bb.Generation) bool { return !f.w.read }
func (f files) Reserve(at bb.Place, _ string) (func(), bool) {
	if f.w.changing {
		return nil, false
	}
	f.w.did("reserve %s", at.Name)
	return func() { f.w.did("release %s", at.Name) }, true
}

func (f files) Requeue(_ context.Context, e *bb.Entry) {
	f.w.did("requeue %d/%d", e.File, e.Generation)
}
func (f files) DropFile(e *bb.Entry) { f.w.did("drop file %d/%d", e.File, e.Generation) }
func (f files) ReportLost(_ context.Context, e *bb.Entry) error {
	f.w.did("lost %d/%d", e.File, e.Generation)
	return nil
}

// memory is n1's.
type memory struct{ w *world }

func (m memory) LeasedBytes(bb.LeaseID, int64, int64) ([]byte, error) { return nil, nil }
func (m memory) Size(bb.FileID, bb.Generation) (int64, error)         { return m.w.size, m.w.has }

func (m memory) Snapshot(bb.FileID, bb.Generation) (*store.Snapshot, error) {
	if m.w.shown != nil {
		m.w.shown()
	}
	return nil, bb.NotFound
}

func (m memory) Checksum(bb.FileID, bb.Generation) (uint64, int64, error) {
	return m.w.sum, m.w.size, m.w.has
}

func (m memory) Commit(c ...store.Commit) (err error) {
	m.w.did("commit %d/%d", c[0].File, c[0].Generation)
	if len(m.w.record) > 0 {
		err, m.w.record = m.w.record[0], m.w.record[1:]
	}
	return err
}

func (m memory) Seal(file bb.FileID, n bb.Generation) error {
	m.w.did("seal %d/%d", file, n)
	return nil
}

func (m memory) Void(file bb.FileID, n bb.Generation) error {
	m.w.did("void %d/%d", file, n)
	return nil
}

func (m memory) DropGeneration(file bb.FileID, n bb.Generation) { m.w.did("drop %d/%d", file, n) }
func (m memory) IdentityOf(bb.FileID) (store.Identity, bool) {
	return store.Identity{Generation: 5, Dir: bb.RootDir, Name: "f"}, m.w.has == nil
}

// nodes are the others.
type nodes struct{ w *world }

func (n nodes) Candidates(int64, bb.NodeID) []bb.NodeID { return slices.Clone(n.w.others) }
func (n nodes) Member(node bb.NodeID) (gossip.Member, bool) {
	m := gossip.Member{Node: node, State: gossip.Ready, MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion}
	if slices.Contains(n.w.old, node) {
		m.MaxVersion = wire.VersionReplicas - 1
	}
	return m, slices.Contains(n.w.others, node)
}

func (n nodes) Incarnation(node bb.NodeID) cluster.Incarnation {
	return cluster.Incarnation{Node: node, Memory: n.w.memory[node]}
}

func (n nodes) Remains(i cluster.Incarnation) bool {
	now := n.w.memory[i.Node]
	return i.Node != "" && !slices.Contains(n.w.gone, i.Node) && (i.Memory == 0 || now == 0 || i.Memory == now)
}
func (n nodes) Sending(bb.NodeID, int64) func(error) { return func(error) {} }
func (n nodes) Session(_ context.Context, node bb.NodeID, _ peer.Who) (*peer.Session, error) {
	n.w.did("session with %s", node)
	return n.w.session, n.w.refuses
}

func (n nodes) Ask(_ context.Context, node bb.NodeID, _ access.Caller, typ wire.Type, _, _ proto.Message) error {
	n.w.did("ask %s %v", node, typ)
	return n.w.refuses
}

// start returns the repairer of n1's second copies.
func (w *world) start(ctx context.Context) (*Buffer, *dirty.Files) {
	closed := dirty.New()
	return New(ctx, Options{
		Owners: owner.Node{Self: "n1"}, Cluster: nodes{w}, Store: memory{w}, NextID: func() uint64 { return 1 },
		Forget: func(k flusher.Key) { w.did("forget %d/%d", k.File, k.Generation) }, Go: func(f func()) { f() }, Log: slog.New(slog.DiscardHandler),
	}, "b", files{w}, w, closed), closed
}

// file returns the entry of generation 5 of a file.
func file(holders ...bb.NodeID) *bb.Entry {
	return &bb.Entry{Type: bb.TypeFile, Parent: bb.RootDir, Name: "f", File: 7, Generation: 5, Size: 9, Checksum: 3, Holders: holders}
}

func changed(e *bb.Entry, change func(*bb.Entry)) *bb.Entry {
	change(e)
	return e
}

// TestCommitAsks: a commit sends its additions to the node with the copy, and else all to one after
// the other, that one first, so many times.
func TestCommitAsks(t *testing.T) {
	t.Parallel()
	ask := func(nodes ...string) (calls []string) {
		for _, n := range nodes {
			calls = append(calls, "session with "+n)
		}
		return calls
	}
	for name, c := range map[string]struct {
		world  *world
		at     bb.NodeID
		behind bool
		calls  []string
	}{
		"no copy yet":                {&world{others: []bb.NodeID{"n2", "n3"}}, "", false, nil},
		"a copy":                     {&world{others: []bb.NodeID{"n3", "n2", "n4", "n5"}}, "n2", false, ask("n2")},
		"one that lacks something":   {&world{others: []bb.NodeID{"n3", "n2"}}, "n2", true, nil},
		"one that has gone":          {&world{others: []bb.NodeID{"n3"}, gone: []bb.NodeID{"n2"}}, "n2", false, nil},
		"no other node":              {&world{}, "", false, nil},
		"none of a release that can": {&world{others: []bb.NodeID{"n2"}, old: []bb.NodeID{"n2"}}, "", false, nil},
	} {
		w := c.world
		w.spec.Replicas, w.refuses = 2, bb.Unavailable
		b, _ := w.start(t.Context())
		var of Copy
		if c.at != "" {
			of.Found(cluster.Incarnation{Node: c.at})
			of.behind = c.behind
		}
		whole, err := b.Commit(t.Context(), &of, &Generation{Entry: *file("n1")}, nil)
		if whole || bb.KindOf(err) != bb.Unavailable || of.At().Node != c.at {
			t.Errorf("%s: whole %v, at %q, %v", name, whole, of.At().Node, err)
		}
		if got := w.done(); !slices.Equal(got, c.calls) {
			t.Errorf("%s: %q, want %q", name, got, c.calls)
		}
		if c.at != "" && !of.behind {
			t.Errorf("%s: the next commit would send only what it adds", name)
		}
	}
}

// answers is a node that answers requests in the order in which they come, and notes their types.
func (w *world) answers(t *testing.T, node bb.NodeID, memory bb.InstanceID) *peer.Session {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var answer proto.Message = &wire.Welcome{Version: wire.MaxVersion, Node: string(node), MaxInFlight: 100, Instance: uint64(memory)}
		in := wire.NewReader(conn)
		for {
			head, _, err := in.Next()
			if err != nil {
				return
			}
			if head.Type != wire.Type_TYPE_HELLO {
				w.did("ask %s %v", node, head.Type)
			}
			if _, err := wire.WriteFrame(conn, nil, head.Type, wire.FlagReply, head.Request, answer, nil); err != nil {
				return
			}
			answer = &wire.Empty{}
		}
	}()
	s, err := peer.Dial(t.Context(), node, l.Addr().String(), &peer.Identity{Node: "n1", Silence: time.Minute}, peer.Who{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		l.Close()
		<-ended
	})
	return s
}

// TestCommitMemory: a commit's additions go to the memory that has the earlier bytes. One that its node
// has since is not sent them, with any gossip.
func TestCommitMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		copy, now bb.InstanceID // the memory with the copy, and the one that the node has now
		sent      bool
	}{
		"the same":                       {3, 3, true},
		"another":                        {3, 4, false},
		"of an owner that did not know":  {0, 4, true},
		"of a node that does not say so": {3, 0, true},
	} {
		w := &world{spec: bb.Buffer{Replicas: 2}, others: []bb.NodeID{"n2"}}
		w.session = w.answers(t, "n2", c.now)
		b, _ := w.start(t.Context())
		var of Copy
		of.Found(cluster.Incarnation{Node: "n2", Memory: c.copy})
		of.behind = false
		want := []string{"session with n2"}
		if c.sent {
			want = append(want, "ask n2 TYPE_REPLICATE")
		}
		_, err := b.Commit(t.Context(), &of, &Generation{Entry: *file("n1")}, nil)
		if got := w.done(); !slices.Equal(got, want) || (err == nil) != c.sent || of.behind == c.sent {
			t.Errorf("%s: %q, %v; it lacks something: %v", name, got, err, of.behind)
		}
	}
}

// TestSettled: a file is not closed before its copy has all of it, unless there is none to be had.
func TestSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		world  *world
		at     bb.NodeID
		behind bool
		want   bool
	}{
		"all of it":                            {&world{others: []bb.NodeID{"n2"}}, "n2", false, true},
		"part of it":                           {&world{others: []bb.NodeID{"n2"}}, "n2", true, false},
		"part of it, without room anywhere":    {&world{}, "n2", true, false},
		"gone, and another node is there":      {&world{others: []bb.NodeID{"n3"}, gone: []bb.NodeID{"n2"}}, "n2", false, false},
		"gone, and no other node is there":     {&world{gone: []bb.NodeID{"n2"}}, "n2", false, true},
		"part of it, gone, and no other node":  {&world{gone: []bb.NodeID{"n2"}}, "n2", true, true},
		"none yet, and another node is there":  {&world{others: []bb.NodeID{"n2"}}, "", false, false},
		"none wanted":                          {&world{spec: bb.Buffer{Replicas: 1}, others: []bb.NodeID{"n2"}}, "", false, true},
		"none yet, and no other node is there": {&world{}, "", false, true},
	} {
		if c.world.spec.Replicas == 0 {
			c.world.spec.Replicas = 2
		}
		b, _ := c.world.start(t.Context())
		var of Copy
		if c.at != "" {
			of.Found(cluster.Incarnation{Node: c.at})
			of.behind = c.behind
		}
		if got := b.Settled(&of, 9, ""); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCurrentFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now         bb.NodeID
		nodes, want []bb.NodeID
	}{
		{"", []bb.NodeID{"n2", "n3"}, []bb.NodeID{"n2", "n3"}},
		{"n3", []bb.NodeID{"n2", "n3", "n4"}, []bb.NodeID{"n3", "n2", "n4"}},
		{"n5", []bb.NodeID{"n2"}, []bb.NodeID{"n5", "n2"}},
		{"n5", nil, []bb.NodeID{"n5"}},
	} {
		if got := currentFirst(c.now, slices.Clone(c.nodes)); !slices.Equal(got, c.want) {
			t.Errorf("%q before %q: %q", c.now, c.nodes, got)
		}
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	w := &world{others: []bb.NodeID{"n2", "n3", "n4"}, old: []bb.NodeID{"n3"}}
	if got := targets(nodes{w}, 9, ""); !slices.Equal(got, []bb.NodeID{"n2", "n4"}) {
		t.Errorf("%q", got)
	}
}

// TestRecord: all of a generation replaces bytes that are no earlier state of it, unless the file
// has readers, or this node owns it.
func TestRecord(t *testing.T) {
	t.Parallel()
	replaced := []string{"commit 7/5", "void 7/5", "commit 7/5"}
	clean := func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 5}) }
	for name, c := range map[string]struct {
		world *world
		whole bool
		waits bb.Generation // of the file, which this node owns, for its flush; 0: it does not
		kind  bb.Kind
		calls []string
	}{
		"what a commit adds":             {&world{}, false, 0, 0, []string{"commit 7/5"}},
		"which is read":                  {&world{read: true}, false, 0, 0, []string{"commit 7/5"}},
		"and does not fit":               {&world{record: []error{bb.Exists}}, false, 0, bb.Exists, []string{"commit 7/5"}},
		"all":                            {&world{}, true, 0, 0, []string{"commit 7/5"}},
		"all, in place of others":        {&world{record: []error{bb.Exists}}, true, 0, 0, replaced},
		"all, while somebody reads":      {&world{read: true}, true, 0, bb.Busy, nil},
		"what a commit added, promoted":  {&world{}, false, 5, bb.Busy, nil},
		"all, promoted":                  {&world{record: []error{bb.Exists}}, true, 5, bb.Busy, nil},
		"all, promoted and newer":        {&world{}, true, 6, bb.Busy, nil},
		"all of what has replaced it":    {&world{}, true, 4, 0, []string{"commit 7/5"}},
		"all, promoted and flushed":      {&world{record: []error{bb.Exists}, entry: changed(file("n1"), clean)}, true, 0, bb.Busy, []string{"commit 7/5"}},
		"all, of another node's":         {&world{record: []error{bb.Exists}, entry: file("n2", "n1")}, true, 0, 0, replaced},
		"all, and the name is another's": {&world{record: []error{bb.Exists}, entry: changed(file("n1"), func(e *bb.Entry) { e.File = 8 })}, true, 0, 0, replaced},
		"all, of no known place":         {&world{record: []error{bb.Exists}, has: bb.NotFound, entry: file("n1")}, true, 0, 0, replaced},
	} {
		w := c.world
		b, closed := w.start(t.Context())
		if c.waits != 0 {
			closed.Add(7, dirty.File{Generation: c.waits})
		}
		err := b.Record(t.Context(), &wire.Replicate{File: 7, Generation: 5, Whole: c.whole}, nil)
		if c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.done(); !slices.Equal(got, c.calls) {
			t.Errorf("%s: %q, want %q", name, got, c.calls)
		}
	}
}

// TestRecordWaits: nothing is recorded while it is decided whose the file is.
func TestRecordWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		b, closed := w.start(t.Context())
		unlock, err := b.Lock(t.Context(), 7)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- b.Record(t.Context(), &wire.Replicate{File: 7, Generation: 5, Whole: true}, nil) }()
		synctest.Wait()
		closed.Add(7, dirty.File{Generation: 5}) // as a promotion does before it is through
		unlock()
		if err := <-ended; bb.KindOf(err) != bb.Busy {
			t.Errorf("recorded: %v", err)
		}
		if got := w.done(); got != nil {
			t.Errorf("%q", got)
		}
	})
}

// TestPromote: a node becomes the owner of a file that it has completely.
func TestPromote(t *testing.T) {
	t.Parallel()
	sealed := []string{"seal 7/5", "reserve f", "requeue 7/5", "release f"}
	clean := func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 5}) }
	open := func(e *bb.Entry) { e.Open, e.Size, e.Checksum = true, 0, 0 }
	lost := func(e *bb.Entry) { e.Lost = true }
	for name, c := range map[string]struct {
		was, now *bb.Entry // when it was looked up, and when the entry is changed
		world    *world
		kind     bb.Kind
		calls    []string
	}{
		"all of it":                    {file("n2", "n1"), file("n2", "n1"), &world{sum: 3, size: 9}, 0, sealed},
		"the answers are lost":         {file("n2", "n1"), file("n2", "n1"), &world{sum: 3, size: 9, missed: 2}, 0, sealed},
		"flushed meanwhile":            {file("n2", "n1"), changed(file("n2", "n1"), clean), &world{sum: 3, size: 9}, 0, []string{"seal 7/5", "reserve f", "release f"}},
		"being written":                {changed(file("n2", "n1"), open), changed(file("n2", "n1"), open), &world{sum: 4, size: 12}, 0, sealed},
		"part of it":                   {file("n2", "n1"), file("n2", "n1"), &world{sum: 4, size: 8}, bb.Lost, nil},
		"its place is being changed":   {file("n2", "n1"), file("n2", "n1"), &world{sum: 3, size: 9, changing: true}, bb.Busy, []string{"seal 7/5"}},
		"other bytes":                  {file("n2", "n1"), file("n2", "n1"), &world{sum: 4, size: 9}, bb.Lost, nil},
		"nothing":                      {file("n2", "n1"), file("n2", "n1"), &world{has: bb.NotFound}, bb.NotFound, nil},
		"the second copy is another's": {file("n2", "n3"), file("n2", "n3"), &world{sum: 3, size: 9}, bb.Busy, nil},
		"its owner has moved it":       {file("n2", "n1"), file("n2", "n3"), &world{sum: 3, size: 9}, bb.Internal, []string{"seal 7/5", "reserve f", "release f"}},
		"lost meanwhile":               {file("n2", "n1"), changed(file("n2", "n1"), lost), &world{sum: 3, size: 9}, bb.Internal, []string{"seal 7/5", "reserve f", "release f"}},
	} {
		w := c.world
		w.entry = c.now
		b, _ := w.start(t.Context())
		err := b.Promote(t.Context(), c.was, 7, 5)
		if c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %v", name, err, c.kind)
		}
		if got := w.done(); !slices.Equal(got, c.calls) {
			t.Errorf("%s: %q, want %q", name, got, c.calls)
		}
		if err == nil && (w.entry.Open || w.entry.Size != w.size || w.entry.Checksum != w.sum || !slices.Equal(w.entry.Holders, []bb.NodeID{"n1"})) {
			t.Errorf("%s: the entry is %+v", name, w.entry)
		}
	}
}

func TestAnswered(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want answer
	}{
		{nil, promoted},
		{bb.Unavailable, away},
		{bb.Busy, away},
		{context.Canceled, away},
		{bb.NotFound, copyLost},
		{bb.Lost, copyLost},
		{bb.Checksum, copyLost},
		{bb.Invalid, copyLost},
		{errNotConcerned, unclear},
		{bb.Permission, unclear},
	} {
		if got := answered(c.err); got != c.want {
			t.Errorf("%v: %d, want %d", c.err, got, c.want)
		}
	}
}

// TestPromoteOfDead: a file is declared lost if its second copy is, and for no other error of a
// node that answers.
func TestPromoteOfDead(t *testing.T) {
	t.Parallel()
	there, moved := []bb.NodeID{"n2"}, file("n2")
	for name, c := range map[string]struct {
		world    *world
		entry    *bb.Entry
		promoted bool
		kind     bb.Kind
	}{
		"promoted":                       {&world{others: there}, file("n9", "n2"), true, 0},
		"without a second copy":          {&world{others: there}, file("n9"), false, 0},
		"the copy is lost":               {&world{others: there, refuses: bb.NotFound}, file("n9", "n2"), false, 0},
		"a request failed":               {&world{others: there, refuses: bb.Unavailable}, file("n9", "n2"), false, bb.Unavailable},
		"refused for now":                {&world{others: there, refuses: bb.Busy}, file("n9", "n2"), false, bb.Busy},
		"for a reason that is not clear": {&world{others: there, refuses: bb.Permission}, file("n9", "n2"), false, bb.Permission},
		"its node does not answer":       {&world{refuses: bb.Unavailable}, file("n9", "n2"), false, 0},
		"another's by now":               {&world{others: there, refuses: bb.Busy, entry: moved}, file("n9", "n2"), false, 0},
	} {
		w := c.world
		if w.entry == nil {
			w.entry = c.entry
		}
		b, _ := w.start(t.Context())
		promoted, err := b.PromoteOfDead(t.Context(), c.entry)
		if promoted != c.promoted || c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v, %v", name, promoted, err)
		}
	}
}

// TestPromoteLater: a file that both nodes have lost is reported as lost.
func TestPromoteLater(t *testing.T) {
	t.Parallel()
	w := &world{refuses: bb.NotFound}
	b, _ := w.start(t.Context())
	b.PromoteLater(file("n1", "n2"))
	if got, want := w.done(), []string{"ask n2 TYPE_TAKE", "lost 7/5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestDrop: bytes go unless the namespace relies on them (TestDiscardedCounts).
func TestDrop(t *testing.T) {
	t.Parallel()
	generation := []string{"forget 7/5", "drop 7/5"}
	for name, c := range map[string]struct {
		world *world
		asks  bb.NodeID
		n     bb.Generation
		kind  bb.Kind
		calls []string
		waits bool // for its flush
	}{
		"a second copy that was never this node's": {&world{has: bb.NotFound}, "n2", 5, 0, generation, false},
		"another's, by its owner":                  {&world{entry: file("n2", "n1")}, "n2", 5, 0, generation, false},
		"another's, by a third node":               {&world{entry: file("n2", "n1")}, "n3", 5, bb.Busy, nil, true},
		"its own":                                  {&world{entry: file("n1")}, "n2", 5, bb.Busy, nil, true},
		"its own, forgotten by the namespace":      {&world{}, "n2", 5, bb.Busy, nil, true},
		"all of a file that is removed":            {&world{}, "n2", 0, 0, []string{"drop file 7/5"}, true},
	} {
		w := c.world
		b, closed := w.start(t.Context())
		closed.Add(7, dirty.File{Generation: 5})
		err := b.Drop(t.Context(), c.asks, 7, c.n)
		if c.kind == 0 && err != nil || c.kind != 0 && bb.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.done(); !slices.Equal(got, c.calls) {
			t.Errorf("%s: %q, want %q", name, got, c.calls)
		}
		if _, ok := closed.Of(7); ok != c.waits {
			t.Errorf("%s: it waits for its flush: %v", name, ok)
		}
	}
}

// writing is a file that is being written.
type writing struct {
	w         *world
	file      bb.FileID
	published bool
	takes     time.Duration // the making of its copy
	bytes     int64         // of that; 0: 1
	does      func()        // is called when it is made; nil: nothing
	copy      Copy
}

func (f *writing) File() bb.FileID { return f.file }
func (f *writing) Published() bool { return f.published }
func (f *writing) Replica() *Copy  { return &f.copy }
func (f *writing) Rereplicate(ctx context.Context) (int64, error) {
	if f.takes > 0 {
		select {
		case <-time.After(f.takes):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	if f.does != nil {
		f.does()
	}
	f.w.did("replicate %d", f.file)
	f.copy.Found(cluster.Incarnation{Node: "n3"})
	return max(1, f.bytes), nil
}

// TestLacking counts each file once, and none that is not visible yet.
func TestLacking(t *testing.T) {
	t.Parallel()
	w := &world{spec: bb.Buffer{Replicas: 2}, gone: []bb.NodeID{"n2"}}
	b, closed := w.start(t.Context())
	at := func(node bb.NodeID) dirty.File { return dirty.File{Second: cluster.Incarnation{Node: node}} }
	there, away := &writing{file: 3, published: true}, &writing{file: 4, published: true}
	there.copy.Found(cluster.Incarnation{Node: "n3"})
	away.copy.Found(cluster.Incarnation{Node: "n2"})
	w.open = []OpenFile{&writing{file: 1}, &writing{file: 2, published: true}, there, away}
	for id, f := range map[bb.FileID]dirty.File{4: at("n2"), 5: at("n2"), 6: at("n3"), 7: {}} {
		closed.Add(id, f)
	}
	var got []bb.FileID
	for _, l := range b.underReplicated() {
		got = append(got, l.file)
	}
	slices.Sort(got)
	if want := []bb.FileID{2, 4, 5, 7}; !slices.Equal(got, want) || b.Lacking() != len(want) {
		t.Errorf("%v, %d, want %v", got, b.Lacking(), want)
	}
	w.spec.Replicas = 1
	if n := b.Lacking(); n != 0 {
		t.Errorf("%d where none is wanted", n)
	}
}

// TestIsOf: a copy is made of files that the owner has not flushed yet.
func TestIsOf(t *testing.T) {
	t.Parallel()
	l := lacking{file: 7, closed: dirty.File{Generation: 5}}
	for name, c := range map[string]struct {
		entry *bb.Entry
		want  bool
	}{
		"dirty":          {file("n1"), true},
		"another file":   {changed(file("n1"), func(e *bb.Entry) { e.File = 8 }), false},
		"newer":          {changed(file("n1"), func(e *bb.Entry) { e.Generation = 6 }), false},
		"clean":          {changed(file("n1"), func(e *bb.Entry) { e.SetFlushed(bb.Flushed{Generation: 5}) }), false},
		"open":           {changed(file("n1"), func(e *bb.Entry) { e.Open = true }), false},
		"another node's": {file("n2"), false},
	} {
		if got := l.isOf(owner.Node{Self: "n1"}, c.entry); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestRepairTime: a large copy of a closed file has longer than a small one, and at the rate of all copies enough.
func TestRepairTime(t *testing.T) {
	t.Parallel()
	if got := repairTime(0); got != repairTimeout {
		t.Errorf("nothing: %v", got)
	}
	for _, bytes := range []int64{1, 1 << 30, 1 << 40, bb.MaxFileSize} {
		if got := repairTime(bytes); got < repairTimeout || got.Seconds() < 2*float64(bytes)/repairRate {
			t.Errorf("%d bytes: %v", bytes, got)
		}
	}
}

// TestStagePaced: background copies go in pieces, no faster than the limit. If one piece fails, all
// of the copy is dropped.
func TestStagePaced(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	var extents []*wire.NewExtent
	var bytes [][]byte
	for i, size := range []int{4 * mib, 12 * mib, 1 * mib, 40 * mib, 8 * mib, 7 * mib} {
		extents = append(extents, &wire.NewExtent{FileOffset: int64(i), Length: int64(size)})
		bytes = append(bytes, make([]byte, size))
	}
	for name, fails := range map[string]bool{"all": false, "one fails": true} {
		synctest.Test(t, func(t *testing.T) {
			var at []string
			began := time.Now()
			w := &world{staged: func(_ context.Context, bytes int) error {
				at = append(at, fmt.Sprintf("%d MiB after %v", bytes/mib, time.Since(began)))
				if fails && len(at) == 4 {
					return bb.Unavailable
				}
				return nil
			}}
			b, _ := w.start(t.Context())
			staged, done, err := b.stage(t.Context(), nil, extents, bytes, pacedBy(rate.NewLimiter(repairRate, repairBurst)))
			want := []string{"16 MiB after 0s", "1 MiB after 7.8125ms", "40 MiB after 320.3125ms", "15 MiB after 437.5ms"}
			if !slices.Equal(at, want) {
				t.Errorf("%s: %q, want %q", name, at, want)
			}
			if fails != (err != nil) || !fails && !slices.Equal(staged, extents) {
				t.Errorf("%s: %d extents, %v", name, len(staged), err)
			}
			ends := []string{"done 16777216", "done 1048576", "done 41943040"}
			if !fails {
				if got := w.done(); got != nil {
					t.Errorf("%s: %q before the commit", name, got)
				}
				done()
				ends = append(ends, "done 15728640")
			}
			if got := w.done(); !slices.Equal(got, ends) {
				t.Errorf("%s: %q, want %q", name, got, ends)
			}
		})
	}
}

// pieces returns extents of so many pieces that are paced one by one.
func pieces(n int) (extents []*wire.NewExtent, bytes [][]byte) {
	for range n {
		extents = append(extents, &wire.NewExtent{Length: repairBurst})
		bytes = append(bytes, make([]byte, repairBurst))
	}
	return extents, bytes
}

// TestStageStalls: a node without room for the next piece fails the copy, which returns its leases.
func TestStageStalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		w := &world{staged: func(ctx context.Context, _ int) error {
			if n++; n < 3 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		b, _ := w.start(t.Context())
		began := time.Now()
		extents, bytes := pieces(4)
		_, _, err := b.stage(t.Context(), nil, extents, bytes, func(context.Context, int64) error { return nil })
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != pieceTime {
			t.Errorf("%v after %v", err, took)
		}
		if got, want := w.done(), []string{"done 16777216", "done 16777216"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// TestRecordCopyElsewhere: of two copies that were made, the one goes that the namespace does not have.
func TestRecordCopyElsewhere(t *testing.T) {
	t.Parallel()
	in := func(node bb.NodeID) cluster.Incarnation { return cluster.Incarnation{Node: node, Memory: 4} }
	for name, c := range map[string]struct {
		unsure bb.NodeID // made before, without an answer of the namespace
		now    *bb.Entry // when the copy at n4 is recorded
		want   bb.NodeID // of the second copy
		calls  []string
	}{
		"none before":              {"", file("n1"), "n4", nil},
		"at another node":          {"n3", file("n1"), "n4", []string{"ask n3 TYPE_DISCARD"}},
		"at the same node":         {"n4", file("n1"), "n4", nil},
		"recorded there meanwhile": {"n4", file("n1", "n4"), "n4", nil},
		"elsewhere meanwhile":      {"n3", file("n1", "n3"), "", []string{"ask n4 TYPE_DISCARD"}},
	} {
		w := &world{spec: bb.Buffer{Replicas: 2}, entry: c.now}
		b, closed := w.start(t.Context())
		f := dirty.File{Generation: 5}
		if c.unsure != "" {
			f.Unsure = in(c.unsure)
		}
		closed.Add(7, f)
		if err := b.recordCopy(file("n1"), &b.underReplicated()[0], in("n4")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f, _ = closed.Of(7); f.Second.Node != c.want {
			t.Errorf("%s: the second copy is at %q, want %q", name, f.Second.Node, c.want)
		}
		if got := w.done(); !slices.Equal(got, c.calls) {
			t.Errorf("%s: %q, want %q", name, got, c.calls)
		}
	}
}

// TestRereplicateNeedless: a copy stops before the next piece once its file is flushed or has a newer
// generation, which is no failure.
func TestRereplicateNeedless(t *testing.T) {
	t.Parallel()
	at := bb.Place{Dir: bb.RootDir, Name: "f"}
	for name, c := range map[string]struct {
		meanwhile func(*dirty.Files)
		needless  bool
	}{
		"nothing happens": {func(*dirty.Files) {}, false},
		"flushed":         {func(closed *dirty.Files) { closed.Forget(7, 5) }, true},
		"written again":   {func(closed *dirty.Files) { closed.Add(7, dirty.File{At: at, Generation: 6}) }, true},
	} {
		w := &world{spec: bb.Buffer{Replicas: 2}, entry: file("n1"), others: []bb.NodeID{"n2", "n3"}}
		b, closed := w.start(t.Context())
		lacks := func() *lacking {
			closed.Forget(7, 6) // an older generation takes no newer one's place
			closed.Add(7, dirty.File{At: at, Generation: 5})
			return &b.underReplicated()[0]
		}
		pace := func(context.Context, int64) error { return nil }
		l, sent := lacks(), 0
		w.staged = func(context.Context, int) error {
			if sent++; sent == 2 {
				c.meanwhile(closed)
			}
			return nil
		}
		extents, bytes := pieces(3)
		_, _, err := b.stage(t.Context(), nil, extents, bytes, b.whileNeeded(l, pace))
		if want := map[bool]int{false: 3, true: 2}[c.needless]; sent != want || errors.Is(err, errNeedless) != c.needless {
			t.Errorf("%s: %d pieces, want %d; %v", name, sent, want, err)
		}
		l, shown := lacks(), 0
		w.shown = func() {
			shown++
			c.meanwhile(closed)
		}
		if ok := b.rereplicate(t.Context(), l, pace); ok != c.needless {
			t.Errorf("%s: it counts as made: %v", name, ok)
		}
		if want := map[bool]int{false: 2, true: 1}[c.needless]; shown != want {
			t.Errorf("%s: %d nodes were to have it, want %d", name, shown, want)
		}
	}
}

// TestRereplicateTries: a copy for which no node has room ends after some of them.
func TestRereplicateTries(t *testing.T) {
	t.Parallel()
	w := &world{spec: bb.Buffer{Replicas: 2}, entry: file("n1"), others: []bb.NodeID{"n2", "n3", "n4", "n5", "n6"}}
	b, closed := w.start(t.Context())
	closed.Add(7, dirty.File{At: bb.Place{Dir: bb.RootDir, Name: "f"}, Generation: 5})
	shown := 0
	w.shown = func() { shown++ }
	if b.rereplicate(t.Context(), &b.underReplicated()[0], func(context.Context, int64) error { return nil }) || shown != tries {
		t.Errorf("%d nodes were to have it, want %d", shown, tries)
	}
}

// TestRereplicateOpen: the copy of a file that is being written, for which its commits wait, is not waited for
// longer than a minute, however large it is.
func TestRereplicateOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{spec: bb.Buffer{Replicas: 2}}
		b, _ := w.start(t.Context())
		f := &writing{w: w, file: 1, published: true, takes: time.Hour, bytes: 1 << 40}
		began := time.Now()
		ok := b.rereplicate(t.Context(), &lacking{file: 1, open: f}, func(context.Context, int64) error { return nil })
		if took := time.Since(began); ok || took != time.Minute {
			t.Errorf("%v after %v", ok, took)
		}
	})
}

// TestRecordCopyUnheard: the namespace did not answer whether it has a second copy. The copy counts
// once the entry names its node, if that node still has the memory in which the copy was made.
func TestRecordCopyUnheard(t *testing.T) {
	t.Parallel()
	made := cluster.Incarnation{Node: "n3", Memory: 4}
	for name, c := range map[string]struct {
		memory  bb.InstanceID // of n3, now
		holders []bb.NodeID   // in the entry, now
		want    cluster.Incarnation
	}{
		"it has it":                           {4, []bb.NodeID{"n1", "n3"}, made},
		"it has it, and the memory is gone":   {5, []bb.NodeID{"n1", "n3"}, cluster.Incarnation{Node: "n2"}},
		"it does not have it":                 {4, []bb.NodeID{"n1", "n2"}, cluster.Incarnation{Node: "n2"}},
		"another one was recorded since then": {4, []bb.NodeID{"n1", "n4"}, cluster.Incarnation{Node: "n2"}},
	} {
		w := &world{spec: bb.Buffer{Replicas: 2}, gone: []bb.NodeID{"n2"}, entry: file("n1", "n2"), unheard: bb.Unavailable}
		b, closed := w.start(t.Context())
		closed.Add(7, dirty.File{At: bb.Place{Dir: bb.RootDir, Name: "f"}, Generation: 5, Second: cluster.Incarnation{Node: "n2"}})
		lacks := func() *lacking {
			t.Helper()
			list := b.underReplicated()
			if len(list) != 1 {
				t.Fatalf("%s: %d files lack a copy", name, len(list))
			}
			return &list[0]
		}
		if err := b.recordCopy(w.entry, lacks(), made); bb.KindOf(err) != bb.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
		w.unheard, w.memory, w.entry = nil, map[bb.NodeID]bb.InstanceID{"n3": c.memory, "n4": 1}, file(c.holders...)
		if err := b.rereplicateClosed(t.Context(), lacks(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if f, _ := closed.Of(7); f.Second != c.want {
			t.Errorf("%s: its second copy is at %+v", name, f.Second)
		}
	}
}

// TestRepair: a node that is only started again keeps its copies. Where there was none, one is made at once.
func TestRepair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{spec: bb.Buffer{Replicas: 2}, others: []bb.NodeID{"n3"}, gone: []bb.NodeID{"n2"}}
		b, _ := w.start(ctx)
		never, away := &writing{w: w, file: 1, published: true}, &writing{w: w, file: 2, published: true}
		away.copy.Found(cluster.Incarnation{Node: "n2"})
		w.open = []OpenFile{never, away}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Repair(ctx, nodes{w}, 30*time.Second, func() []*Buffer { return []*Buffer{b} })
		}()
		time.Sleep(repairEvery + time.Millisecond)
		synctest.Wait()
		if got := w.done(); !slices.Equal(got, []string{"replicate 1"}) {
			t.Errorf("at the first look: %q", got)
		}
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if got := w.done(); got != nil {
			t.Errorf("while it may come back: %q", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := w.done(); !slices.Equal(got, []string{"replicate 2"}) {
			t.Errorf("after that: %q", got)
		}
		cancel()
		<-ended
	})
}

// TestRepairComesBack: a node that comes back while another copy is made keeps its own.
func TestRepairComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{spec: bb.Buffer{Replicas: 2}, others: []bb.NodeID{"n3"}, gone: []bb.NodeID{"n2"}}
		b, _ := w.start(ctx)
		first := &writing{w: w, file: 1, published: true}
		first.does = func() { w.gone = nil }
		away := &writing{w: w, file: 2, published: true}
		for _, f := range []*writing{first, away} {
			f.copy.Found(cluster.Incarnation{Node: "n2"})
			w.open = append(w.open, f)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Repair(ctx, nodes{w}, 30*time.Second, func() []*Buffer { return []*Buffer{b} })
		}()
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if got := w.done(); !slices.Equal(got, []string{"replicate 1"}) {
			t.Errorf("%q", got)
		}
	})
}

// TestRepairSlow: the rate used by a copy of a file that is being written is waited for, however long that
// takes.
func TestRepairSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{spec: bb.Buffer{Replicas: 2}, others: []bb.NodeID{"n3"}}
		b, _ := w.start(ctx)
		slow := &writing{w: w, file: 1, published: true, takes: 50 * time.Second, bytes: 600 * repairRate}
		w.opens(slow)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Repair(ctx, nodes{w}, time.Second, func() []*Buffer { return []*Buffer{b} })
		}()
		time.Sleep(50*time.Second + 2*repairEvery)
		synctest.Wait()
		if got := w.done(); !slices.Equal(got, []string{"replicate 1"}) {
			t.Errorf("after 50 seconds: %q", got)
		}
		next := &writing{w: w, file: 2, published: true}
		w.opens(next)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if got := w.done(); got != nil {
			t.Errorf("while the first is paid for: %q", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := w.done(); !slices.Equal(got, []string{"replicate 2"}) {
			t.Errorf("after that: %q", got)
		}
		cancel()
		<-ended
	})
}
