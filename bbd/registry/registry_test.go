package registry

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/aside"
	"forebay/bbd/backings"
	"forebay/bbd/fate"
	"forebay/bbd/freeze"
	"forebay/bbd/store"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/meta"
	"forebay/meta/gossip"
	metatxn "forebay/meta/txn"
)

// served is a buffer that is served.
type served struct {
	spec  bb.Buffer
	gate  *freeze.Gate
	saved error
}

func (b *served) Name() string                { return b.spec.Name }
func (b *served) Spec() bb.Buffer             { return b.spec }
func (b *served) Replace(spec bb.Buffer)      { b.spec = spec }
func (b *served) Gate() *freeze.Gate          { return b.gate }
func (b *served) Saved(context.Context) error { return b.saved }
func (b *served) ForgetFiles()                {}

// world is all that a registry uses besides. Records has the namespace's records. errs are the errors of its
// calls by their names.
type world struct {
	records   map[string]bb.Buffer
	errs      map[string]error
	meanwhile func() // is called when a record was made
	dropped   []bb.FileID
	ended     []*served
	events    []bb.EventKind
	aside     *aside.List
	flusher   *flusher.Flusher
}

func (w *world) CreateBuffer(_ context.Context, spec bb.Buffer) (bb.Buffer, error) {
	if err := w.errs["create"]; err != nil {
		return bb.Buffer{}, err
	}
	spec.Revision = uint64(len(w.records) + 10)
	w.records[spec.Name] = spec
	if w.meanwhile != nil {
		w.meanwhile()
	}
	return spec, nil
}

func (w *world) Buffer(_ context.Context, name string) (bb.Buffer, error) {
	spec, ok := w.records[name]
	if err := w.errs["buffer"]; err != nil || !ok {
		return bb.Buffer{}, cmp.Or(err, error(bb.NotFound))
	}
	return spec, nil
}

func (w *world) Buffers(context.Context) (all []bb.Buffer, err error) {
	for _, spec := range w.records {
		all = append(all, spec)
	}
	return all, w.errs["buffers"]
}

func (w *world) DestroyBuffer(_ context.Context, name string) error {
	if err := w.errs["destroy"]; err != nil {
		return err
	}
	delete(w.records, name)
	return nil
}

func (*world) WatchBuffers(context.Context, []string, func(meta.BufferChange)) error { return nil }

func (w *world) Namespace(context.Context, string) (*metatxn.Tree, error) {
	return nil, w.errs["namespace"]
}

func (w *world) BeginAnew(context.Context, bb.Buffer, func(*bb.Entry) bool) (meta.Anew, error) {
	return meta.Anew{}, w.errs["anew"]
}

func (*world) Rebuilding(context.Context, string) (bool, error) { return false, nil }
func (*world) Rebuilt(context.Context, string) error            { return nil }

func (*world) Checksum(bb.FileID, bb.Generation) (sum uint64, size int64, err error) {
	return 0, 0, nil
}

func (*world) Files() iter.Seq[store.FileInfo] {
	return slices.Values([]store.FileInfo{{File: 1, Buffer: "a"}, {File: 2, Buffer: "b"}, {File: 3, Buffer: "a"}})
}
func (w *world) Drop(file bb.FileID) { w.dropped = append(w.dropped, file) }
func (*world) LookUp(string) string  { return "" }
func (*world) Forget(string) error   { return nil }
func (*world) Probe(context.Context, access.Caller, bb.Buffer, bb.Backing, int) (string, backings.Contents, error) {
	return "id", backings.Contents{}, nil
}

// others is a cluster of which no other daemon answers.
type others struct{ freeze.Cluster }

func (others) AllSupport(string, uint32) error             { return nil }
func (others) Members() []gossip.Member                    { return nil }
func (others) Nodes(func(*gossip.Member) bool) []bb.NodeID { return nil }

var made = time.Unix(1000, 0)

// record is the record of a buffer.
func record(name string) bb.Buffer {
	return bb.Buffer{Name: name, Created: made, Revision: 5, State: bb.BufferActive, Mode: 0o700, Durability: bb.DurabilityResident, Existing: bb.ExistingKeep}
}

// registry returns one with the records of these buffers. Its daemon is alone if cluster is nil.
func (w *world) registry(t *testing.T, cluster Cluster, names ...string) *Service[*served] {
	w.records = make(map[string]bb.Buffer)
	for _, name := range names {
		w.records[name] = record(name)
	}
	w.aside = aside.New(aside.Options{
		Context: t.Context(), DamageNotes: aside.DamageNotes{Dir: t.TempDir()}, Buffer: w.Buffer, Emit: func(bb.Event) {}, Log: slog.New(slog.DiscardHandler),
		Drop: func(string) {}, Rebuilds: func(err error) bool { return bb.KindOf(err) == bb.Lost },
	})
	w.flusher = flusher.New(flusher.Options{}) // never has a file
	t.Cleanup(func() { w.flusher.Close() })
	return New(t.Context(), Options[*served]{
		Table: new(Table[*served]), Records: w, Store: w, Stores: w, Flusher: w.flusher, Cluster: cluster, Aside: w.aside,
		Open:    func(spec bb.Buffer, _ *metatxn.Tree) *served { return &served{spec: spec, gate: freeze.New("")} },
		Inside:  func(path string) bool { return path == "/own" },
		Damage:  func(string) string { return "" },
		Held:    func(string) map[bb.FileID]*fate.Held { return map[bb.FileID]*fate.Held{1: {}} },
		Dropped: func(b *served) { w.ended = append(w.ended, b) },
		Emit:    func(e bb.Event) { w.events = append(w.events, e.Kind) }, Log: slog.New(slog.DiscardHandler),
	})
}

// attached returns the registry with its buffer "a" attached.
func (w *world) attached(t *testing.T) (*Service[*served], *served) {
	s := w.registry(t, others{}, "a")
	b, err := s.Find(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// TestFind: a buffer that another daemon has made is attached once. A daemon that is alone has all.
func TestFind(t *testing.T) {
	t.Parallel()
	w := new(world)
	s, b := w.attached(t)
	if again, err := s.Find(t.Context(), "a"); err != nil || again != b {
		t.Errorf("%p, %v; not %p again", again, err, b)
	}
	for name, kind := range map[string]bb.Kind{"other": bb.NotFound, "": bb.Invalid, "no/name": bb.Invalid} {
		if _, err := s.Find(t.Context(), name); bb.KindOf(err) != kind {
			t.Errorf("%q: %v", name, err)
		}
	}
	alone := new(world).registry(t, nil, "a")
	if _, err := alone.Find(t.Context(), "a"); bb.KindOf(err) != bb.NotFound {
		t.Errorf("alone: %v", err)
	}
}

// TestChanged: another daemon's changes of a buffer are followed, unless the news are of another buffer
// of that name.
func TestChanged(t *testing.T) {
	t.Parallel()
	with := func(created time.Time, revision uint64) *bb.Buffer {
		spec := record("a")
		spec.Created, spec.Revision = created, revision
		return &spec
	}
	for name, c := range map[string]struct {
		news     *bb.Buffer
		recorded bool // the namespace has a record
		revision uint64
		dropped  bool
	}{
		"changed":              {with(made, 6), true, 6, false},
		"old news":             {with(made, 4), true, 5, false},
		"made anew":            {with(made.Add(1), 9), true, 5, true},
		"of an earlier one":    {with(made.Add(-1), 3), true, 5, false},
		"destroyed":            {nil, false, 5, true},
		"destroyed, made anew": {nil, true, 5, false},
	} {
		w := new(world)
		s, b := w.attached(t)
		if !c.recorded {
			delete(w.records, "a")
		}
		s.changed(meta.BufferChange{Name: "a", Buffer: c.news})
		if b.spec.Revision != c.revision {
			t.Errorf("%s: revision %d", name, b.spec.Revision)
		}
		if gone := s.o.Table.Served("a") == nil; gone != c.dropped || (len(w.ended) == 1) != c.dropped || (len(w.dropped) == 2) != c.dropped {
			t.Errorf("%s: gone is %v; %d ended, files %v dropped", name, gone, len(w.ended), w.dropped)
		}
	}
}

// TestRecover: a recovery fails. If the buffer is the reason, it is set aside, and otherwise the
// start ends. A buffer that was destroyed meanwhile is dropped.
func TestRecover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err, opened, asked error
		destroyed          bool // the record is gone
		fails              bool
		state              string
	}{
		"recovered":                 {state: "served"},
		"not readable":              {err: bb.Invalid, state: "aside"},
		"cannot be opened":          {opened: bb.Invalid, state: "aside"},
		"server away":               {err: bb.Unavailable, fails: true, state: "served"},
		"destroyed":                 {err: bb.NotFound, destroyed: true, state: "gone"},
		"not found, though it is":   {err: bb.NotFound, state: "aside"},
		"not found, server away":    {err: bb.NotFound, asked: bb.Unavailable, state: "aside"},
		"cannot be opened and gone": {opened: bb.NotFound, destroyed: true, state: "absent"},
	} {
		w := &world{errs: map[string]error{"namespace": c.opened, "buffer": c.asked}}
		s := w.registry(t, nil, "a")
		if c.destroyed {
			delete(w.records, "a")
		}
		kept, err := s.Recover(t.Context(), record("a"), func(*served) error { return c.err })
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		state := "absent"
		_, found := s.Find(t.Context(), "a")
		switch _, set := w.aside.Find("a"); {
		case set && len(kept) == 1 && len(w.dropped) == 0 && strings.Contains(found.Error(), "set aside"):
			state = "aside"
		case found == nil:
			state = "served"
		case len(w.ended) == 1 && len(w.dropped) == 2:
			state = "gone"
		}
		if state != c.state {
			t.Errorf("%s: %s, not %s", name, state, c.state)
		}
	}
}

// TestDestroyIf: a buffer that may not be destroyed stays, as does one whose record cannot be removed. One
// that is destroyed goes with its bytes, once.
func TestDestroyIf(t *testing.T) {
	t.Parallel()
	allowed := func(context.Context) error { return nil }
	refused := func(context.Context) error { return bb.Busy }
	for name, c := range map[string]struct {
		may       func(context.Context) error
		destroy   error
		destroyed bool
		kind      error
	}{
		"allowed":           {may: allowed, destroyed: true},
		"refused":           {may: refused, kind: bb.Busy},
		"whatever is in it": {destroyed: true},
		"server away":       {may: allowed, destroy: bb.Unavailable, kind: bb.Unavailable},
	} {
		w := &world{errs: map[string]error{"destroy": c.destroy}}
		s, b := w.attached(t)
		if err := s.DestroyIf(t.Context(), b, c.may); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v", name, err)
		}
		gone := s.o.Table.Served("a") == nil
		if gone != c.destroyed || (len(w.ended) == 1) != gone || slices.Contains(w.events, bb.EventDestroyed) != gone {
			t.Errorf("%s: gone is %v; %d ended, events %v", name, gone, len(w.ended), w.events)
		}
		if c.destroyed && (!slices.Equal(w.dropped, []bb.FileID{1, 3}) || bb.KindOf(s.DestroyIf(t.Context(), b, c.may)) != bb.NotFound) {
			t.Errorf("%s: files %v are dropped; or it is destroyed again", name, w.dropped)
		}
	}
}

// TestCreateFor: errors are found before a record is made. Of two buffers with overlapping stores
// the one whose record came later is withdrawn.
func TestCreateFor(t *testing.T) {
	t.Parallel()
	at := func(name, path string) bb.Buffer {
		spec := record(name)
		spec.Backing, spec.Revision = "file://"+path, 0
		return spec
	}
	for name, c := range map[string]struct {
		spec    bb.Buffer
		create  error
		earlier bool // another daemon makes a buffer with that store meanwhile, whose record comes first
		kind    error
		unknown bool // the buffer may be there
	}{
		"plain":                          {spec: record("new")},
		"with a store":                   {spec: at("new", "/new")},
		"second copies, alone":           {spec: func() bb.Buffer { b := record("new"); b.Replicas = 2; return b }(), kind: bb.Unsupported},
		"the daemon's own folder":        {spec: at("new", "/own"), kind: bb.Invalid},
		"a name that is none":            {spec: record("no/name"), kind: bb.Invalid},
		"over another one's store":       {spec: at("new", "/there/below"), kind: bb.Exists},
		"another one came first":         {spec: at("new", "/new"), earlier: true, kind: bb.Exists},
		"the namespace refuses":          {spec: record("new"), create: bb.Exists, kind: bb.Exists},
		"the namespace's answer is lost": {spec: record("new"), create: bb.Unavailable, kind: bb.Unavailable, unknown: true},
	} {
		w := &world{errs: map[string]error{"create": c.create}}
		s := w.registry(t, nil)
		w.records["there"] = at("there", "/there")
		if c.earlier {
			w.meanwhile = func() {
				other := at("first", "/new")
				other.BackingID, other.Revision = "id", 9
				w.records["first"] = other
			}
		}
		b, _, err := s.CreateFor(t.Context(), access.Of(0, 0), c.spec, 1)
		if !errors.Is(err, c.kind) || errors.Is(err, bb.ErrUnknownOutcome) != c.unknown {
			t.Errorf("%s: %v", name, err)
		}
		_, recorded := w.records[c.spec.Name]
		if is := err == nil; recorded != is || (b != nil) != is || slices.Contains(w.events, bb.EventCreated) != is {
			t.Errorf("%s: record %v, buffer %v, events %v", name, recorded, b, w.events)
		}
	}
}

// TestSpecs: a daemon that is alone lists its served buffers and those set aside. In a cluster the
// namespace has all.
func TestSpecs(t *testing.T) {
	t.Parallel()
	names := func(s *Service[*served]) (all []string) {
		specs, err := s.Specs(t.Context())
		if err != nil {
			t.Error(err)
		}
		for i := range specs {
			all = append(all, specs[i].Name)
		}
		return all
	}
	w := new(world)
	s := w.registry(t, nil, "c", "a", "b")
	for _, name := range []string{"c", "a"} {
		if _, err := s.Recover(t.Context(), record(name), func(*served) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	if err := w.aside.Put(record("b"), nil, "", bb.Invalid); err != nil {
		t.Error(err)
	}
	if all := names(s); !slices.Equal(all, []string{"a", "b", "c"}) {
		t.Error(all)
	}
	if all := names(new(world).registry(t, others{}, "y", "x")); !slices.Equal(all, []string{"x", "y"}) {
		t.Error(all)
	}
}
