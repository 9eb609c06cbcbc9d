package gossip

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

// worst is the largest member that a cluster may have: each of four host names as
// long as Linux allows, none twice.
func worst() Member {
	host := func(c string) string { return strings.Repeat(c, 64) + ":65535" }
	tier := Tier{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	return Member{
		Node: bb.NodeID(strings.Repeat("n", 64)), Instance: math.MaxUint64, State: Leaving,
		Session: host("s"), Fabric: host("f"), Admin: host("a"), Routes: host("r"),
		MinVersion: math.MaxUint32, MaxVersion: math.MaxUint32, Server: "v10.20.30-rc.1-0123456789abcdef-dirty",
		Memory: tier, Disk: tier,
	}
}

func TestRecord(t *testing.T) {
	same := member(1)
	same.Node, same.Session, same.Fabric, same.Admin, same.Routes = "n", "node-1.example.org:1", "node-1.example.org:2", "[::1]:3", "[fe80::1%eth0]:4"
	odd := same
	odd.Session, odd.Fabric, odd.Admin, odd.Routes = "host:0080", "cxi://0x1a2b", "[::ffff:10.0.0.1]:5", "0.0.0.0:0"
	for _, m := range []Member{worst(), same, odd, {Node: "n", State: Starting}} {
		b, err := encode(&m, 5)
		if err != nil {
			t.Fatal(err)
		}
		if len(b)+len(m.Node) > MaxRecord {
			t.Errorf("%s takes %d bytes", m.Node, len(b)+len(m.Node))
		}
		got, at, err := decode(m.Node, b)
		if err != nil {
			t.Fatal(err)
		}
		m.Memory, m.Disk = m.Memory.rounded(), m.Disk.rounded()
		if got != m || at != 5 {
			t.Errorf("got  %+v\nwant %+v", got, m)
		}
		if _, _, err := decode("other", b); !errors.Is(err, bb.Checksum) {
			t.Errorf("the record of %s is taken for another's: %v", m.Node, err)
		}
		for i := range b {
			c := slices.Clone(b)
			c[i] ^= 0x10
			if _, _, err := decode(m.Node, c); err == nil {
				t.Fatalf("byte %d is wrong and it is read", i)
			}
			if _, _, err := decode(m.Node, b[:i]); err == nil {
				t.Fatalf("%d bytes of %d are read", i, len(b))
			}
		}
	}
	usual, err := encode(&same, 5)
	if err != nil || len(usual) > 120 {
		t.Errorf("a usual record takes %d bytes: %v", len(usual), err)
	}
}

func TestRecordTooLarge(t *testing.T) {
	long := worst()
	long.Session = strings.Repeat("s", 250) + ":1"
	name := worst()
	name.Node = bb.NodeID(strings.Repeat("n", 250))
	server := worst()
	server.Server = strings.Repeat("v", 300)
	for _, m := range []Member{long, name, server} {
		if _, err := Start(t.Context(), Options{Node: m.Node, Listen: "127.0.0.1:0"}, m); !errors.Is(err, bb.Invalid) || !strings.Contains(err.Error(), "shorten") {
			t.Errorf("got %v", err)
		}
	}
}

// A later format appends, and names the oldest format whose readers understand it.
func TestRecordOfLaterFormat(t *testing.T) {
	m := member(1)
	m.Node = "n"
	for oldest, want := range map[byte]error{1: nil, 2: bb.Unsupported} {
		b, err := encode(&m, 5)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b[:len(b)-recordTail], "more"...)
		b[0], b[1], b[3] = 2, oldest, b[3]+4
		got, _, err := decode("n", sealed("n", b))
		if !errors.Is(err, want) && err != want || err == nil && got != m {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func sealed(node bb.NodeID, b []byte) []byte {
	sum := checksum(node, b)
	return append(slices.Clone(b), byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
}

func FuzzRecord(f *testing.F) {
	for _, m := range []Member{worst(), member(1), {State: Ready}} {
		m.Node = "n"
		b, err := encode(&m, 5)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)-recordTail])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = decode("n", b)
		m, at, err := decode("n", sealed("n", b)) // the checksum would hide the rest
		if err != nil {
			return
		}
		if !m.State.own() {
			t.Fatalf("state %s", m.State)
		}
		again, err := encode(&m, at)
		if err != nil {
			return // not in its shortest form
		}
		if got, when, err := decode("n", again); err != nil || got != m || when != at {
			t.Fatalf("got %+v, %v, want %+v", got, err, m)
		}
	})
}
