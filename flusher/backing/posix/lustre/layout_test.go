package lustre

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLayoutFor(t *testing.T) {
	table := []Rule{{4 << 20, Layout{{Count: 8}}}, {2 << 20, Layout{{Count: 4, StripeSize: 1 << 20}}}}
	for _, test := range []struct {
		size  int64
		count int
	}{{0, 0}, {2<<20 - 1, 0}, {2 << 20, 4}, {4<<20 - 1, 4}, {4 << 20, 8}, {1 << 50, 8}} {
		got := LayoutFor(table, test.size)
		if (test.count == 0) != (got == nil) || got != nil && got[0].Count != test.count {
			t.Errorf("size %d: %+v", test.size, got)
		}
	}
	if got := LayoutFor([]Rule{{Layout: Layout{{Count: 1}}}}, 1<<20-1); got != nil {
		t.Errorf("a file below 1 MiB has %v", got)
	}
	dom := Layout{{End: 1 << 16, MDT: true}, {Count: 1}}
	onMDT := []Rule{{MinSize: 1 << 12, Layout: dom}, {MinSize: 1 << 18, Layout: Layout{{Count: 2}}}}
	for size, want := range map[int64]string{0: "", 1<<12 - 1: "", 1 << 12: dom.String(), 1<<18 - 1: dom.String(), 1 << 18: "", 1<<20 - 1: "", 1 << 20: "-c 2"} {
		if got := LayoutFor(onMDT, size).String(); got != want {
			t.Errorf("size %d: %q, want %q", size, got, want)
		}
	}
}

// A parsed layout is printed in one form, and layouts that Lustre would refuse are refused.
func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"-c 4":                            "-c 4",
		"--stripe-count 4 -S 1m -p a_B-9": "-c 4 -S 1M -p a_B-9",
		"-S 65536":                        "-c 1 -S 64K",
		"-c -1 -S 1536K -p none":          "-c -1 -S 1536K",
		"-E -1 -c 2":                      "-c 2",
		"-E 64M -c 1 -S 1M -p flash -E 1G -c 4 -E eof -c -1 -p none": "-E 64M -c 1 -S 1M -p flash -E 1G -c 4 -S 1M -p flash -E -1 -c -1 -S 1M -p none",
		"-E 64M -c 4 -S 1M -E 1G -E -1 -S 0":                         "-E 64M -c 4 -S 1M -E 1G -c 4 -S 1M -E -1 -c 4 -S 0",
		" -E  1M\t-E EOF -c 2 ":                                      "-E 1M -c 1 -E -1 -c 2",
		"-E 64K -L mdt -E -1":                                        "-E 64K -L mdt -E -1 -c 1",
		"-E 1M --layout mdt -E 1G -S 4M -p f -E -1 -c 8":             "-E 1M -L mdt -E 1G -c 1 -S 4M -p f -E -1 -c 8 -S 4M -p f",
	} {
		l, err := Parse(text)
		if err != nil || l.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, l, err, want)
		}
	}
	for _, bad := range []string{
		"", "-c", "4", "-c 0", "-c -2", "-c 2001", "-c x", "-S 1", "-S 100K", "-S 4G", "-S -64K", "-S 9999999999999999999G", "-p " + strings.Repeat("x", 16), "-p a/b",
		"-E 64M -c 1", "-E 64M -c 1 -E 64M -c 2", "-E 2M -c 1 -E 1M -c 2 -E -1 -c 1", "-c 1 -E 1M -c 2 -E -1 -c 3", "-E -1 -c 1 -E -1 -c 2", "-E 0 -c 1 -E -1 -c 1",
		"-E 1M -S 4M -E -1 -c 1", "-L raid5", "-L mdt", "-E -1 -L mdt", "-E 1M -c 1 -E 2M -L mdt -E -1 -c 1", "-E 4G -L mdt -E -1 -c 1",
		"-E 1M -L mdt -c 1 -E -1 -c 1", "-E 1M -S 64K -L mdt -E -1 -c 1", "-E 1M -L mdt -p p -E -1 -c 1", "-E 100K -L mdt -E -1 -c 1", "-i 3", "-E 1000 -c 1 -E -1 -c 1", strings.Repeat("-E 1M ", 65),
	} {
		if l, err := Parse(bad); err == nil {
			t.Errorf("%q was read as %q", bad, l)
		}
	}
}

// The attribute that sets a layout is, byte for byte, that of liblustreapi (on a machine with little-endian
// numbers).
func TestAttribute(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the bytes are written down for machines with little-endian numbers")
	}
	const oi = "00000000000000000000000000000000"
	for text, want := range map[string]string{
		"-c 4 -S 1M":     "d00bd10b" + "01000000" + oi + "00001000" + "0400" + "ffff",
		"-c -1":          "d00bd10b" + "01000000" + oi + "00000000" + "ffff" + "ffff",
		"-c 2 -p flash1": "d00bd30b" + "01000000" + oi + "00000000" + "0200" + "ffff" + "666c6173683100000000000000000000",
		"-E 1M -c 1 -S 64K -E -1 -c 3 -S 64K -p p": "d00bd60b" + "d0000000" + "00000000" + "0000" + "0200" + "0000" + "000000000000" + "0000000000000000" +
			"00000000" + "00000000" + "0000000000000000" + "0000100000000000" + "80000000" + "20000000" + "00000000" + "000000000000000000000000" +
			"00000000" + "00000000" + "0000100000000000" + "ffffffffffffffff" + "a0000000" + "30000000" + "00000000" + "000000000000000000000000" +
			"d00bd10b" + "01000000" + oi + "00000100" + "0100" + "ffff" +
			"d00bd30b" + "01000000" + oi + "00000100" + "0300" + "ffff" + "70000000000000000000000000000000",
		"-E 64K -L mdt -E -1 -c 2": "d00bd60b" + "c0000000" + "00000000" + "0000" + "0200" + "0000" + "000000000000" + "0000000000000000" +
			"00000000" + "00000000" + "0000000000000000" + "0000010000000000" + "80000000" + "20000000" + "00000000" + "000000000000000000000000" +
			"00000000" + "00000000" + "0000010000000000" + "ffffffffffffffff" + "a0000000" + "20000000" + "00000000" + "000000000000000000000000" +
			"d00bd10b" + "00010000" + oi + "00000100" + "0000" + "ffff" +
			"d00bd10b" + "01000000" + oi + "00000000" + "0200" + "ffff",
	} {
		l, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(l.attr()); got != want {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
		back, err := decode(l.attr())
		if err != nil || back.String() != text {
			t.Errorf("%s was read as %s, %v", text, back, err)
		}
	}
}

// A file's layout is that of its first mirror, with its objects behind each component.
func TestDecode(t *testing.T) {
	l := Layout{{End: 1 << 20, MDT: true}, {Count: 2, StripeSize: 1 << 20}}
	b := l.attr()
	order := binary.NativeEndian
	entry := func(i int) []byte { return b[sizeComposite+i*sizeEntry:] }
	order.PutUint32(entry(0)[4:], entryMade)
	got, err := decode(b)
	want := Layout{{End: 1 << 20, StripeSize: 1 << 20, MDT: true, Made: true}, {Count: 2, StripeSize: 1 << 20}}
	if err != nil || !reflect.DeepEqual(got, want) || got.String() != "-E 1M -L mdt -E -1 -c 2 -S 1M" {
		t.Errorf("%+v, %v", got, err)
	}
	mirrored := Layout{{End: 1 << 20, Count: 1}, {Count: 2}}.attr()
	b = mirrored
	order.PutUint64(entry(0)[16:], endOfFile)
	order.PutUint64(entry(1)[8:], 0) // the next mirror begins anew
	if got, err := decode(b); err != nil || got.String() != "-c 1" {
		t.Errorf("of a mirrored file: %s, %v", got, err)
	}
	if got, err := decode(append(Layout{{Count: 3, Pool: "p"}}.attr(), make([]byte, 3*24)...)); err != nil || !got[0].Made || got.String() != "-c 3 -p p" {
		t.Errorf("with objects: %+v, %v", got, err)
	}
}

// FuzzDecode: no bytes make a reader panic, and the result is a text that may be kept.
func FuzzDecode(f *testing.F) {
	f.Add(Layout{{Count: 4}}.attr())
	f.Add(Layout{{End: 1 << 20, Count: 1, Pool: "p"}, {Count: -1}}.attr())
	f.Add(bytes.Repeat([]byte{0xff}, 200))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := decode(b); err == nil && (len(l) == 0 || !IsText(l.String())) {
			t.Fatalf("%x: %q", b, l)
		}
	})
}

// FuzzParse: a parsed layout is printed so that it parses again, and set so that it is read back.
func FuzzParse(f *testing.F) {
	f.Add("-E 64M -c 1 -S 1M -p flash -E -1 -c -1")
	f.Add("-E 64M -c 2 -S 1M -p flash -E -1 -S 0 -p none")
	f.Fuzz(func(t *testing.T, s string) {
		l, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(l.String()); err != nil || !slices.Equal(again, l) {
			t.Fatalf("%q is printed as %q, which is read as %q, %v", s, l, again, err)
		}
		if back, err := decode(l.attr()); err != nil || back.String() != l.String() {
			t.Fatalf("%q is set as %q, %v", s, back, err)
		}
	})
}

func TestPartSize(t *testing.T) {
	for _, c := range []struct {
		most   int64
		layout Layout
		size   int64
		want   int64
	}{
		{16 << 20, nil, 1 << 30, 16 << 20},
		{16 << 20, Layout{{}}, 1 << 30, 16 << 20},
		{16 << 20, Layout{{StripeSize: 1 << 20}}, 1 << 30, 16 << 20},
		{16 << 20, Layout{{StripeSize: 3 << 20}}, 1 << 30, 15 << 20},
		{16 << 20, Layout{{StripeSize: 64 << 20}}, 1 << 30, 16 << 20},
		{16 << 20, Layout{{StripeSize: 24 << 20}}, 1 << 30, 12 << 20},
		{1 << 20, Layout{{StripeSize: 17 << 16}}, 1 << 30, 1 << 16}, // 17 is a prime
		{1 << 20, Layout{{End: 1 << 20, StripeSize: 1 << 20}, {StripeSize: 5 << 16}}, 1 << 20, 1 << 20},
		{1 << 20, Layout{{End: 1 << 20, StripeSize: 1 << 20}, {StripeSize: 5 << 16}}, 1<<20 + 1, 15 << 16},
		{1 << 20, Layout{{StripeSize: 100}}, 1 << 30, 1 << 20}, // no stripe size of Lustre's
	} {
		if got := PartSize(c.most, c.layout, c.size); got != c.want {
			t.Errorf("%d bytes, %+v: parts of %d, want %d", c.size, c.layout, got, c.want)
		}
	}
}
