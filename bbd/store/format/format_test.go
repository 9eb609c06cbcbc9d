package format

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"forebay/internal/bb"
)

// identityOf is an identity of a file with all that one may have.
func identityOf(f bb.FileID, n bb.Generation, name string) Identity {
	return Identity{
		File: f, Generation: n, Buffer: "b", Dir: 3, Name: name, Path: "dir/" + name, UID: 1000, GID: 100, Mode: 0o640,
		MTime: time.Unix(1_700_000_000, 5).UTC(), Writer: "a client", Made: 99, Closed: true, Size: 12, Checksum: 0xfeed,
	}
}

func TestIdentityCodec(t *testing.T) {
	t.Parallel()
	for _, want := range []Identity{
		identityOf(7, 9, "f"),
		identityOf(1<<63, 1<<62, strings.Repeat("n", bb.MaxName)),
		{File: 1, Generation: 1, Buffer: "b", Dir: 1, Name: "f"},
		{File: 1, Generation: 1, Buffer: "b", Dir: 1, Name: "f", Closed: true, Writer: "w", Revision: 1 << 60},
		{File: 1, Generation: 1, Buffer: "b", Dir: 1, Name: "f", Revision: 1},
	} {
		p := AppendIdentity([]byte("before"), &want)[len("before"):]
		if len(p)%RecordItem != 0 || p[1]&^identityClosed != 0 {
			t.Errorf("%d bytes, flags %#x, which earlier releases refuse", len(p), p[1])
		}
		if got, err := DecodeIdentity(p); err != nil || got != want {
			t.Errorf("%+v came back as %+v, %v", want, got, err)
		}
	}
	p := AppendIdentity(nil, &Identity{File: 1, Generation: 1, Buffer: "b", Dir: 1, Name: "f"})
	p[0] = 9
	if _, err := DecodeIdentity(p); !errors.Is(err, bb.Unsupported) || !strings.Contains(err.Error(), "version 9 found, version 1 supported") {
		t.Errorf("another version: %v", err)
	}
}

func FuzzDecodeIdentity(f *testing.F) {
	id := identityOf(7, 9, "f")
	f.Add(AppendIdentity(nil, &id))
	id.Revision = 1
	f.Add(AppendIdentity(nil, &id))
	f.Add(make([]byte, identityHead))
	f.Fuzz(func(t *testing.T, p []byte) {
		id, err := DecodeIdentity(p)
		if err != nil {
			return
		}
		if id.File == 0 || id.Generation == 0 || id.Dir == 0 || bb.CheckName(id.Name) != nil || id.Size < 0 {
			t.Errorf("accepted %+v", id)
		}
		if again := AppendIdentity(nil, &id); !bytes.Equal(again, p) {
			if got, err := DecodeIdentity(again); err != nil || got != id {
				t.Errorf("%+v came back as %+v, %v", id, got, err)
			}
		}
	})
}

func FuzzDecodeHeaders(f *testing.F) {
	p := make([]byte, HeaderCopy+HeaderSize)
	RegionHeader{ID: 1, Size: 8 << 20}.Encode(p)
	f.Add(p)
	q := make([]byte, SlotSize)
	SegmentHeader{Units: 2, Nonce: 3, Sequence: 1, Buffer: "b"}.Encode(q)
	Publish(q, 0, SegmentMagic)
	f.Add(q)
	f.Fuzz(func(t *testing.T, p []byte) {
		if h, _, err := DecodeRegionHeader(p); err == nil && (h.Size < 2*Unit || h.Size > MaxRegion || h.Tier > bb.TierDisk) {
			t.Errorf("accepted %+v", h)
		}
		if h, err := DecodeSegmentHeader(p); err == nil {
			again := make([]byte, SlotSize)
			h.Encode(again)
			Publish(again, 0, SegmentMagic)
			if got, err := DecodeSegmentHeader(again); err != nil || got != h {
				t.Errorf("%+v came back as %+v, %v", h, got, err)
			}
		}
	})
}
