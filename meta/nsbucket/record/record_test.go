package record

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/kv"
	"forebay/meta/metapb"
	"forebay/meta/metatest"
)

func fullEntry() bb.Entry {
	return bb.Entry{
		Parent: 0x100000005, Name: "part-0001.parquet", Type: bb.TypeFile, File: 7, Generation: 8, Size: 9, Checksum: 10, Open: true,
		Holders: []bb.NodeID{"a", "b"}, Mode: 0o640, UID: 11, GID: 12, MTime: time.Unix(0, 1).UTC(),
		Flushed: bb.Flushed{Generation: 6, ETag: "e", Size: 5, Checksum: 4, Codec: "zstd", At: time.Unix(3, 2).UTC(), By: "c", Layout: "-c 4"},
		Lost:    true, Reason: "node c is gone", Revision: 77,
	}
}

func TestEntryRecord(t *testing.T) {
	t.Parallel()
	for what, e := range map[string]bb.Entry{
		"full":      fullEntry(),
		"small":     {Parent: 1, Name: "f", Type: bb.TypeFile, File: 1, Revision: 77},
		"replaced":  {Parent: 1, Name: "f", Type: bb.TypeFile, File: 1, Generation: 2, Before: &bb.Before{Replaced: fullEntry().Flushed}, Revision: 77},
		"symlink":   {Parent: 1, Name: "l", Type: bb.TypeSymlink, File: 3, Extras: bb.Extras{Target: "../\xff"}, Mode: 0o777, Revision: 77},
		"fifo":      {Parent: 1, Name: "p", Type: bb.TypeFIFO, File: 4, Mode: 0o600, Revision: 77},
		"closed":    {Parent: 1, Name: "f", Type: bb.TypeFile, File: 1, Generation: 2, Closed: bb.Closing{Generation: 2, Revision: 70}, Revision: 77},
		"xattrs":    {Parent: 1, Name: "f", Type: bb.TypeFile, File: 1, Extras: bb.Extras{Xattrs: string(xattr.Make(xattr.Attr{Name: "user.a", Value: "1"}))}, Revision: 77},
		"directory": {Parent: 1, Name: "d", Type: bb.TypeDirectory, Dir: 2, MTime: time.Unix(0, 0).UTC(), Revision: 77},
	} {
		key := EntryKey(e.Parent, e.Name)
		b, err := SealEntry(key, &e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := OpenEntry(key, b, 77)
		if diff := cmp.Diff(e, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", what, err, diff)
		}
		for i := range b {
			bad := bytes.Clone(b)
			bad[i] ^= 0x10
			_, err := OpenEntry(key, bad, 77)
			if i == 0 {
				metatest.WantKind(t, what+": another format", err, bb.Unsupported)
			} else {
				metatest.WantKind(t, what+": a flipped bit", err, bb.Checksum)
			}
			_, err = OpenEntry(key, b[:i], 77)
			metatest.WantKind(t, what+": truncated", err, bb.Checksum)
		}
		_, err = OpenEntry(EntryKey(e.Parent, "other"), b, 77)
		metatest.WantKind(t, what+": under another key", err, bb.Checksum)
	}
}

// TestReplacedCounts: the replaced object of a file is dropped when an older daemon, which keeps
// unknown fields, has renamed or flushed the file.
func TestReplacedCounts(t *testing.T) {
	t.Parallel()
	was := fullEntry().Flushed
	key, other := EntryKey(1, "f"), EntryKey(1, "g")
	for name, test := range map[string]struct {
		key     string
		flushed bb.Flushed
		want    bb.Flushed
	}{
		"as it was": {key, bb.Flushed{}, was},
		"renamed":   {other, bb.Flushed{}, bb.Flushed{}},
		"flushed":   {key, bb.Flushed{Generation: 3}, bb.Flushed{}},
	} {
		m := &metapb.Entry{
			Type: uint32(bb.TypeFile), File: 7, Flushed: flushedRecord(test.flushed),
			Replaced: replacedRecord(key, &bb.Entry{Before: &bb.Before{Replaced: was}}),
		}
		b, err := kv.Seal(test.key, m)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := OpenEntry(test.key, b, 1); err != nil || e.Replaced() != test.want {
			t.Errorf("%s: %+v, want %+v (%v)", name, e.Replaced(), test.want, err)
		}
	}
}

// TestClosed: the close of a file counts where an older daemon, which keeps unknown fields, has not changed the record
// that the close has stored.
func TestClosed(t *testing.T) {
	t.Parallel()
	e := bb.Entry{Parent: 1, Name: "f", Type: bb.TypeFile, File: 7, Generation: 8, Closed: bb.Closing{Generation: 8}}
	for name, test := range map[string]struct {
		key    string
		change func(*metapb.Entry)
		want   uint64
	}{
		"as it was":            {EntryKey(1, "f"), func(*metapb.Entry) {}, 77},
		"renamed":              {EntryKey(1, "g"), func(*metapb.Entry) {}, 0},
		"given another mode":   {EntryKey(1, "f"), func(m *metapb.Entry) { m.Mode = 0o600 }, 0},
		"flushed":              {EntryKey(1, "f"), func(m *metapb.Entry) { m.Flushed = flushedRecord(bb.Flushed{Generation: 8, ETag: "e"}) }, 0},
		"written again":        {EntryKey(1, "f"), func(m *metapb.Entry) { m.Generation = 9 }, 0},
		"of a known revision":  {EntryKey(1, "g"), func(m *metapb.Entry) { m.Closed = &metapb.Closing{Generation: 8, Revision: 50} }, 50},
		"of one to come":       {EntryKey(1, "f"), func(m *metapb.Entry) { m.Closed = &metapb.Closing{Generation: 8, Revision: 78} }, 0},
		"of one before it was": {EntryKey(1, "f"), func(m *metapb.Entry) { m.Closed = &metapb.Closing{Generation: 7, Revision: 50} }, 0},
	} {
		key := EntryKey(1, "f")
		b, err := SealEntry(key, &e)
		if err != nil {
			t.Fatal(err)
		}
		var m metapb.Entry
		if err := kv.Open(key, b, &m); err != nil {
			t.Fatal(err)
		}
		test.change(&m)
		if b, err = kv.Seal(test.key, &m); err != nil {
			t.Fatal(err)
		}
		if got, err := OpenEntry(test.key, b, 77); err != nil || got.ClosedAt() != test.want {
			t.Errorf("%s: closed at %d, want %d (%v)", name, got.ClosedAt(), test.want, err)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"part-00001.parquet": "e.5.part-00001/parquet", "A_b-9": "e.5.A_b-9", "a b=c": "e.5.a=20b=3Dc", "ü": "e.5.=C3=BC", "...": "e.5.///", "*>": "e.5.=2A=3E",
	} {
		if got := EntryKey(5, name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		if dir, got, ok := ParseEntryKey(want); !ok || dir != 5 || got != name {
			t.Errorf("%q: %v %q %v", want, dir, got, ok)
		}
	}
	long := strings.Repeat("\xc3\xbc", 127)
	if dir, got, ok := ParseEntryKey(EntryKey(5, long)); !ok || dir != 5 || got != long {
		t.Errorf("%v %q %v", dir, got, ok)
	}
	for _, bad := range []string{"", "e.", "e.5", "e.5.", "e.05.a", "e.5.a.b", "e.5.a=2", "e.5.=61", "e.5.=2E", "e.5.=c3=bc", "e.5./", "e.5.//", "d.5", "e.G.a", "e.0.a", "e.5.=00"} {
		if dir, name, ok := ParseEntryKey(bad); ok {
			t.Errorf("%q was taken for %v %q", bad, dir, name)
		}
	}
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"a", "a.b", "ü", "=", "=20", "a/b", "=2E", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token := string(kv.AppendToken(nil, s))
		if !strings.Contains(s, "/") {
			if got, ok := kv.DecodeToken(token); s != "" && (!ok || got != s) {
				t.Fatalf("%q became %q and then %q", s, token, got)
			}
			if strings.ContainsAny(token, ".*> \x00") {
				t.Fatalf("%q became %q", s, token)
			}
		}
		if name, ok := kv.DecodeToken(s); ok && string(kv.AppendToken(nil, name)) != s {
			t.Fatalf("%q was taken for %q", s, name)
		}
	})
}

func FuzzEntryRecord(f *testing.F) {
	e := fullEntry()
	key := EntryKey(e.Parent, e.Name)
	b, err := SealEntry(key, &e)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(key, b, false)
	f.Add(key, b[kv.RecordHeader:], true)
	f.Add("e.1.x", []byte{}, true)
	f.Fuzz(func(t *testing.T, key string, b []byte, sum bool) {
		if sum { // past the checksum
			b = append(make([]byte, kv.RecordHeader), b...)
			b[0] = kv.FormatFirst
			putSum(key, b)
		}
		e, err := OpenEntry(key, b, 5)
		if err != nil {
			return
		}
		again, err := SealEntry(key, &e)
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		got, err := OpenEntry(key, again, 5)
		if diff := cmp.Diff(e, got); diff != "" || err != nil {
			t.Fatalf("%v %s", err, diff)
		}
	})
}

func FuzzDirectoryRecord(f *testing.F) {
	f.Add("d.5", []byte{1})
	f.Fuzz(func(t *testing.T, key string, b []byte) {
		var d metapb.Directory
		if err := kv.Open(key, b, &d); err == nil && len(b) < kv.RecordHeader {
			t.Fatal("too short")
		}
	})
}

func putSum(key string, b []byte) {
	binary.LittleEndian.PutUint64(b[1:], kv.Sum(key, b[kv.RecordHeader:]))
}
