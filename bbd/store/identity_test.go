package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"forebay/bbd/store/format"
	"forebay/internal/bb"
)

// identityOf is an identity of a file with all that one may have.
func identityOf(f bb.FileID, n bb.Generation, name string) format.Identity {
	return format.Identity{
		File: f, Generation: n, Buffer: "b", Dir: 3, Name: name, Path: "dir/" + name, UID: 1000, GID: 100, Mode: 0o640,
		MTime: time.Unix(1_700_000_000, 5).UTC(), Writer: "a client", Made: 99, Closed: true, Size: 12, Checksum: 0xfeed,
	}
}

// wantIdentity checks a file's identity in a store.
func wantIdentity(t *testing.T, s *Store, f bb.FileID, want *format.Identity) {
	t.Helper()
	got, ok := s.IdentityOf(f)
	if ok != (want != nil) || want != nil && got != *want {
		t.Errorf("file %s: %+v, %v", f, got, ok)
	}
}

// An identity lasts as long as its file: over restarts, until the file or the generation
// is dropped. The last one counts.
func TestIdentityLastsAsLongAsItsFile(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	identify := func(f bb.FileID, n bb.Generation, name string) *format.Identity {
		t.Helper()
		id := identityOf(f, n, name)
		if err := s.Identify(&id); err != nil {
			t.Fatal(err)
		}
		return &id
	}
	for f := range bb.FileID(5) {
		w.commit(f+1, 1, 0, 0, content(uint64(f), 1000))
		identify(f+1, 1, "old")
	}
	kept := identify(1, 1, "kept")
	identify(2, 1, "second")
	w.commit(2, 2, 1, 0, content(9, 10))
	second := identify(2, 2, "second")
	s.Drop(3)
	s.DropGeneration(2, 1)
	s.DropGeneration(4, 1)
	for range 3 {
		wantIdentity(t, s, 1, kept)
		wantIdentity(t, s, 2, second)
		wantIdentity(t, s, 3, nil)
		wantIdentity(t, s, 4, nil)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, o)
	}
	for info := range s.Files() {
		switch info.File {
		case 1, 2, 5:
			if info.Identity == nil {
				t.Errorf("file %s has no identity", info.File)
			}
		default: // their records lie beside others that count
			if info.Identity != nil || info.Origin != OriginOwn {
				t.Errorf("file %s: %+v, %d", info.File, info.Identity, info.Origin)
			}
		}
	}
	if err := s.Void(2, 2); err != nil {
		t.Fatal(err)
	}
	wantIdentity(t, s, 2, nil)
}

// There is room for the identities of files that are there, however many were there before.
func TestIdentitiesMakeRoom(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	w.commit(1, 1, 0, 0, content(1, 1000))
	w.commit(2, 1, 0, 0, content(2, 1000))
	first := identityOf(1, 1, "first")
	if err := s.Identify(&first); err != nil {
		t.Fatal(err)
	}
	id := identityOf(2, 1, strings.Repeat("x", bb.MaxName))
	for i := range 100_000 {
		id.Size = int64(i)
		if err := s.Identify(&id); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	wantIdentity(t, s, 1, &first)
	wantIdentity(t, s, 2, &id)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	wantIdentity(t, s, 1, &first)
	wantIdentity(t, s, 2, &id)
}

// ownedBy are options of a store of a node in a namespace.
func ownedBy(o Options, namespace uint64, node string) Options {
	o.Owner = func(context.Context) (format.Owner, error) {
		return format.Owner{Namespace: namespace, Node: node}, nil
	}
	return o
}

// Regions of another owner are neither used nor deleted, and take their share of memory.
func TestRegionsOfAnotherOwnerAreLeft(t *testing.T) {
	o := folders(t)
	s := open(t, ownedBy(o, 5, "n1"))
	w := newWriter(t, s)
	want := content(1, 1000)
	w.commit(1, 1, 0, 0, want)
	used := w.lease.Region
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, other := range []Options{ownedBy(o, 5, "n2"), ownedBy(o, 6, "n1")} {
		before := folderSums(t, o.ShmDir)
		s := open(t, other)
		foreign := s.Foreign()
		if len(foreign) != 1 || foreign[0].Owner != (format.Owner{Namespace: 5, Node: "n1"}) || foreign[0].Held == 0 || fmt.Sprint(foreign[0].Buffers) != "[b]" {
			t.Errorf("foreign regions: %+v", foreign)
		}
		stats := s.Stats()
		if stats.Foreign != foreign[0].Bytes || stats.Memory.Capacity != o.MemoryBytes-foreign[0].Bytes || stats.Memory.Total > stats.Memory.Capacity {
			t.Errorf("%d bytes are foreign, and memory is %+v", stats.Foreign, stats.Memory)
		}
		if _, _, err := s.Region(used); !errors.Is(err, bb.NotFound) {
			t.Errorf("the region of another owner: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if after := folderSums(t, o.ShmDir); after[foreign[0].Path] != before[foreign[0].Path] {
			t.Error("the region of another owner has changed")
		}
	}
	s = open(t, ownedBy(o, 5, "n1"))
	check(t, s, 1, 1, want)
	if foreign := s.Foreign(); len(foreign) > 0 {
		t.Errorf("regions that held nothing are still there: %+v", foreign)
	}
}

// A region of version 1 names no owner. It is adopted, and is this owner's from then on.
func TestVersion1IsAdopted(t *testing.T) {
	o := folders(t)
	s := open(t, o)
	w := newWriter(t, s)
	want := content(1, 1000)
	w.commit(1, 1, 0, 0, want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	makeOlder(t, o, format.Ownerless)
	s = open(t, ownedBy(o, 5, "n1"))
	check(t, s, 1, 1, want)
	for info := range s.Files() {
		if info.Origin != OriginOlder {
			t.Errorf("the origin of file %s is %d", info.File, info.Origin)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, ownedBy(o, 6, "n1"))
	if foreign := s.Foreign(); len(foreign) == 0 || foreign[0].Owner.Namespace != 5 {
		t.Errorf("after that, foreign regions are %+v", foreign)
	}
}
