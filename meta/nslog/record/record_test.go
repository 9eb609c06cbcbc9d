package record

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/namespace"
)

func randomFlushed(rnd *rand.Rand) bb.Flushed {
	return bb.Flushed{
		Generation: bb.Generation(1 + rnd.IntN(300)), ETag: "etag", Size: rnd.Int64N(1 << 40), Checksum: rnd.Uint64(), Codec: "zstd",
		Layout: "-c 4 -p flash"[:13*rnd.IntN(2)], By: "node", At: time.Unix(rnd.Int64N(1<<31), 5).UTC(), Rest: unknown(rnd, 1000),
	}
}

// unknown is a field of a newer release, or none.
func unknown(rnd *rand.Rand, number protowire.Number) string {
	if rnd.IntN(2) == 0 {
		return ""
	}
	return string(protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), "newer"))
}

// random returns an entry of which each part is there as often as not.
func random(rnd *rand.Rand) bb.Entry {
	some := func(set func()) {
		if rnd.IntN(2) == 0 {
			set()
		}
	}
	e := bb.Entry{Parent: bb.DirID(rnd.Uint64()), Name: "name", Revision: rnd.Uint64(), Type: bb.TypeFile, File: bb.FileID(1 + rnd.Uint64N(1<<63))}
	some(func() { e.Type, e.File, e.Dir = bb.TypeDirectory, 0, bb.DirID(1+rnd.Uint64N(1<<63)) })
	some(func() { e.Generation, e.Size = bb.Generation(rnd.IntN(1000)), rnd.Int64N(bb.MaxFileSize) })
	some(func() { e.Checksum, e.Open = rnd.Uint64(), true })
	some(func() { e.Holders = []bb.NodeID{"a", "node"}[:1+rnd.IntN(2)] })
	some(func() { e.Mode, e.UID, e.GID = 0o750, rnd.Uint32(), rnd.Uint32() })
	some(func() { e.MTime = time.Unix(rnd.Int64N(1<<32)-1<<31, 7).UTC() })
	some(func() { e.Lost, e.Reason = true, "gone" })
	some(func() { e.Txn = bb.TxnID(rnd.Uint64()) })
	var before bb.Before
	some(func() { before.Attempts = []bb.Content{{Size: 1, Checksum: rnd.Uint64()}, {Size: 0, Checksum: 3}} })
	if e.Generation != 0 {
		some(func() { e.Closed = bb.Closing{Generation: e.Generation, Revision: 1 + rnd.Uint64N(e.Revision)} })
	}
	some(func() { e.Rest = unknown(rnd, 2000) })
	some(func() {
		e.Xattrs = string(xattr.Make(xattr.Attr{Name: "user.a", Value: "1", Stored: true}, xattr.Attr{Name: "user.b"}))
	})
	if rnd.IntN(2) == 0 {
		e.Flushed = randomFlushed(rnd)
	} else {
		some(func() { before.Replaced = randomFlushed(rnd) })
	}
	e.SetBefore(before.Replaced, before.Attempts)
	return e
}

// The encoding by hand equals that of protobuf, and is read back the same.
func TestEntries(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		e := random(rnd)
		value, err := AppendEntry(nil, &e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := OpenEntry(e.Parent, e.Name, value, e.Revision)
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Fatalf("%+v\nwas read as\n%+v (%v)", e, got, err)
		}
		if PeekDir(value) != e.Dir {
			t.Fatalf("the directory of %+v is %v", e, PeekDir(value))
		}
		var m metapb.Entry
		if err := proto.Unmarshal(value, &m); err != nil {
			t.Fatal(err)
		}
		if m.GetSize() != e.Size || m.GetChecksum() != e.Checksum || m.GetUid() != e.UID || !kv.FromNanos(m.Mtime).Equal(e.MTime) ||
			len(m.GetHolders()) != len(e.Holders) || m.GetFlushed().GetEtag() != e.Flushed.ETag || m.GetFlushed().GetLayout() != e.Flushed.Layout || kv.Rest(&m) != e.Rest ||
			m.GetReplaced().GetFlushed().GetEtag() != e.Replaced().ETag || len(m.GetAttempts()) != len(e.Attempts()) ||
			string(m.GetXattrs()) != e.Xattrs {
			t.Fatalf("protobuf reads %+v as %v", e, &m)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil || !bytes.Equal(again, value) {
			t.Fatalf("protobuf encodes %+v as\n%x, not as\n%x", e, again, value)
		}
	}
}

func TestEntriesThatAreRefused(t *testing.T) {
	t.Parallel()
	for what, e := range map[string]bb.Entry{"no type": {}, "no id": {Type: bb.TypeFile}, "a negative size": {Type: bb.TypeFile, File: 1, Size: -1}} {
		if _, err := AppendEntry(nil, &e); !errors.Is(err, bb.Invalid) {
			t.Errorf("encoding %s: %v", what, err)
		}
	}
	e := bb.Entry{Type: bb.TypeFile, File: 9, Size: 77, Holders: []bb.NodeID{"n"}}
	value, err := AppendEntry(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenEntry(1, "f", value[:len(value)-1], 1); !errors.Is(err, bb.Checksum) {
		t.Errorf("an entry that is cut off: %v", err)
	}
	if _, err := OpenEntry(1, "f", nil, 1); !errors.Is(err, bb.Checksum) {
		t.Errorf("no entry at all: %v", err)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	claim := Head{Owner: Owner{1, 2}, Previous: 300, First: 7, Lease: 1500 * time.Millisecond, Node: "n1"}
	kind, body, err := Open(claim.ClaimMessage())
	if err != nil || kind != Claim {
		t.Fatal(kind, err)
	}
	if got, _, err := OpenHead(kind, body); err != nil || got != claim {
		t.Errorf("%+v (%v), want %+v", got, err, claim)
	}

	changes := Head{Owner: Owner{1, 2}, Previous: 301, First: 1000, Lease: time.Second, Node: "n2"}
	want := []Effect{
		{Key: AppendEntryKey(nil, 7, "a"), Value: []byte("value"), Revision: 1000},
		{Key: OpKey(5), Value: []byte{}, Revision: 1003},
		{Key: OutcomeKey(Session{3}, 9), Revision: 1004},
	}
	b := changes.BeginChanges(nil)
	b = AppendStore(b, want[0].Key, want[0].Value)
	b = AppendStore(b, want[1].Key, want[1].Value)
	b = Seal(AppendRemove(b, want[2].Key))
	kind, body, err = Open(b)
	if err != nil || kind != Changes {
		t.Fatal(kind, err)
	}
	got, effects, err := OpenHead(kind, body)
	if err != nil || got != changes {
		t.Errorf("%+v (%v), want %+v", got, err, changes)
	}
	var found []Effect
	next, err := Effects(effects, got.First, func(e Effect) error { found = append(found, e); return nil })
	if err != nil || next != 1006 || !reflect.DeepEqual(found, want) {
		t.Errorf("%+v, next %d (%v)", found, next, err)
	}
	if OfOperation(found[0].Revision) || !OfOperation(found[1].Revision) {
		t.Error("a revision does not tell what it is of")
	}
	for i := range b {
		b[i] ^= 4
		if _, _, err := Open(b); err == nil {
			t.Errorf("byte %d was changed, and nobody saw it", i)
		}
		b[i] ^= 4
	}

	manifest := &Contents{Start: 4, Next: 1006, Spans: []Span{{2, 10}, {1000, 6}}, Pages: []uint64{0, 8, 9}}
	kind, body, err = Open(manifest.Message())
	if err != nil || kind != Manifest {
		t.Fatal(kind, err)
	}
	if got, err := OpenManifest(body); err != nil || !reflect.DeepEqual(got, manifest) {
		t.Errorf("%+v (%v)", got, err)
	}
	page := Seal(append(BeginPage(nil, 700), "items"...))
	kind, body, err = Open(page)
	number, items, perr := OpenPage(body)
	if err != nil || perr != nil || kind != Page || number != 700 || string(items) != "items" {
		t.Errorf("%c %d %q (%v, %v)", kind, number, items, err, perr)
	}
	outcome := Outcome{{Key: []byte("k"), Revision: 6, Value: []byte("v")}, {Key: []byte("l"), Revision: 8, Value: []byte("w")}}
	if got, err := OpenOutcome(outcome.Value()); err != nil || !reflect.DeepEqual(got, outcome) {
		t.Errorf("%+v (%v)", got, err)
	}
}

// So are operations.
func TestOperations(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		op := namespace.StoreOp{
			Seq: rnd.Uint64(), Revision: 9, Op: namespace.OpRename, OldPath: "a", NewPath: "b", File: bb.FileID(rnd.Uint64()), By: "n",
			IsDir: rnd.IntN(2) == 0, Flushed: randomFlushed(rnd), Replaced: randomFlushed(rnd), Left: randomFlushed(rnd), Rest: unknown(rnd, 900),
			Attempts: []bb.Content{{Size: 1, Checksum: 2}}, ReplacedAttempts: []bb.Content{{Size: 0, Checksum: 2}, {Size: 4}},
		}
		value := OpValue(&op)
		if got, err := OpenOp(value, 9); err != nil || !reflect.DeepEqual(*got, op) {
			t.Fatalf("%+v\nwas read as\n%+v (%v)", op, got, err)
		}
		var m metapb.StoreOp
		if err := proto.Unmarshal(value, &m); err != nil {
			t.Fatal(err)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
		if err != nil || !bytes.Equal(again, value) {
			t.Fatalf("protobuf encodes %+v as\n%x, not as\n%x", op, again, value)
		}
	}
}

// FuzzBodies: no bytes make a reader of them panic or read beyond its end.
func FuzzBodies(f *testing.F) {
	e := bb.Entry{Type: bb.TypeFile, File: 9, Size: 77, Holders: []bb.NodeID{"n"}, Flushed: bb.Flushed{Generation: 1, ETag: "e"}}
	value, err := AppendEntry(nil, &e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add((&Contents{Start: 4, Spans: []Span{{2, 10}}, Pages: []uint64{0, 8}}).Message()[Header:])
	f.Add(AppendRemove(AppendStore(nil, RootKey, value), RootKey))
	f.Add(Outcome{{Key: RootKey, Value: value}}.Value())
	f.Fuzz(func(t *testing.T, b []byte) {
		if e, err := OpenEntry(1, "n", b, 1); err == nil {
			again, err := AppendEntry(nil, &e)
			if err != nil {
				t.Fatalf("%+v was read and is refused: %v", e, err)
			}
			if same, err := OpenEntry(1, "n", again, 1); err != nil || !reflect.DeepEqual(same, e) {
				t.Fatalf("%+v is read again as %+v (%v)", e, same, err)
			}
		}
		PeekDir(b)
		_, _ = OpenManifest(b)
		_, _, _ = OpenPage(b)
		_, _ = OpenOutcome(b)
		_, _ = OpenOp(b, 1)
		_, _ = Effects(b, 2, func(e Effect) error { KindOf(e.Key); return nil })
		for _, kind := range []byte{Claim, Changes, Page} {
			_, _, _ = OpenHead(kind, b)
		}
		_, _, _ = Open(b)
	})
}

// TestClosed: a close is at the revision of its record, and nowhere once a daemon of a release without closes has
// changed the record, which keeps unknown fields.
func TestClosed(t *testing.T) {
	t.Parallel()
	e := bb.Entry{Parent: 1, Name: "f", Type: bb.TypeFile, File: 2, Generation: 3, Size: 4, Holders: []bb.NodeID{"a"}, Closed: bb.Closing{Generation: 3}}
	value, err := AppendEntry(nil, &e)
	if err != nil {
		t.Fatal(err)
	}
	closed, err := OpenEntry(1, "f", value, 7)
	if err != nil || closed.ClosedAt() != 7 {
		t.Fatalf("closed at %d, want 7 (%v)", closed.ClosedAt(), err)
	}
	if value, err = AppendEntry(nil, &closed); err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[uint64]uint64{9: 7, 7: 7, 6: 0} { // at 6, the namespace had gone back
		if again, err := OpenEntry(1, "f", value, revision); err != nil || again.ClosedAt() != want {
			t.Errorf("at revision %d: closed at %d, want %d (%v)", revision, again.ClosedAt(), want, err)
		}
	}
	for name, older := range map[string]func(*metapb.Entry){
		"flushed":         func(m *metapb.Entry) { m.Flushed = &metapb.Flushed{Generation: 3} },
		"other mode":      func(m *metapb.Entry) { m.Mode = 0o600 },
		"other time":      func(m *metapb.Entry) { m.Mtime = proto.Int64(5) },
		"moved":           func(m *metapb.Entry) { m.Holders = []string{"b"} },
		"next generation": func(m *metapb.Entry) { m.Generation++ },
		"lost":            func(m *metapb.Entry) { m.Lost = true },
	} {
		var m metapb.Entry
		fresh, _ := AppendEntry(nil, &e)
		if err := proto.Unmarshal(fresh, &m); err != nil {
			t.Fatal(err)
		}
		older(&m)
		changed, err := proto.Marshal(&m)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := OpenEntry(1, "f", changed, 8); err != nil || now.Closed != (bb.Closing{}) {
			t.Errorf("%s: closed at %+v (%v)", name, now.Closed, err)
		}
	}
	if moved, err := OpenEntry(1, "g", value[:len(value):len(value)], 9); err != nil || moved.ClosedAt() != 7 {
		t.Errorf("renamed: %+v (%v)", moved.Closed, err)
	}
}
