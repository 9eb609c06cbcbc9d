package client

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/rdma"
)

// TestReadWindows: a reader asks for windows ahead, each once, pins few at a time, and
// none when it is closed.
func TestReadWindows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b := f.connect(Options{}).Buffer("b")
	data := random(100<<20 + 5)
	check(t, b.WriteFile(ctx, "x", data, 0))
	r := must[*File](t)(b.Open(ctx, "x"))
	got, most := make([]byte, 0, len(data)), 0
	for p := make([]byte, 1<<20); ; {
		n, err := r.Read(p)
		got = append(got, p[:n]...)
		f.mu.Lock()
		most = max(most, f.pins)
		f.mu.Unlock()
		if err == io.EOF {
			break
		}
		check(t, err)
	}
	if !bytes.Equal(got, data) {
		t.Error("content differs")
	}
	// The first window comes with Open; the last one, of 5 bytes, is inlined and not pinned.
	if n := f.count(wire.Type_TYPE_EXTENTS); n != 3 {
		t.Errorf("%d windows were asked for", n)
	}
	if most > seqWindows+1 {
		t.Errorf("%d windows were pinned at a time", most)
	}
	var wg sync.WaitGroup
	for range 4 { // at random, several at once
		wg.Go(func() {
			p := make([]byte, 5000)
			for range 200 {
				off := rand.IntN(len(data))
				n, err := r.ReadAt(p, int64(off))
				if err != nil && err != io.EOF || !bytes.Equal(p[:n], data[off:min(off+len(p), len(data))]) {
					t.Errorf("ReadAt(%d) differs (%v)", off, err)
				}
			}
		})
	}
	wg.Wait()
	check(t, r.Close())
	eventually(t, "windows are pinned after Close", func() bool {
		must[Entry](t)(b.Stat(ctx, "x"))
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.pins == 0
	})
}

// TestSharedFile has several Files and goroutines write disjoint ranges of one file.
func TestSharedFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *Buffer) {
		const part = 700_000
		data := random(6 * part)
		var files []*File
		for range 3 {
			files = append(files, must[*File](t)(b.Create(ctx, "shared")))
		}
		for _, w := range files {
			must[Entry](t)(w.Entry()) // all have joined before the first closes
		}
		var wg sync.WaitGroup
		for i, w := range files {
			var both sync.WaitGroup
			for k := range 2 {
				from := (2*i + k) * part
				write := func() {
					for off := from; off < from+part; off += part / 10 {
						if _, err := w.WriteAt(data[off:off+part/10], int64(off)); err != nil {
							t.Error(err)
						}
					}
				}
				both.Go(write)
			}
			wg.Go(func() {
				both.Wait()
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := readAll(t, b, "shared"); !bytes.Equal(got, data) {
			t.Error("content differs")
		}
	})
}

// TestManyExtents: more extents than a message holds are committed early.
func TestManyExtents(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	f.inlineThreshold = 0
	b := f.connect(Options{}).Buffer("b")
	w := must[*File](t)(b.Create(ctx, "x"))
	const n = maxPending + 500
	for i := range n {
		must[int](t)(w.WriteAt([]byte{byte(i)}, int64(2*(n-i))))
	}
	before := f.count(wire.Type_TYPE_COMMIT)
	check(t, w.Close())
	if before != 1 {
		t.Errorf("%d early commits", before)
	}
}

// TestLeasesAreReturned: files that end give back what they do not need.
func TestLeasesAreReturned(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(Options{})
	b := c.Buffer("b")
	check(t, b.WriteFile(ctx, "x", random(50<<20), 0))
	w := must[*File](t)(b.Create(ctx, "y"))
	must[int](t)(w.Write(random(20 << 20)))
	check(t, w.Abort())
	eventually(t, "leases are left", func() bool {
		must[Entry](t)(b.Stat(ctx, "x"))
		f.mu.Lock()
		defer f.mu.Unlock()
		free := int64(0)
		for _, l := range f.leases {
			free += l.len
		}
		return free <= 2*keepIdle
	})
}

// TestMappingOutlivesClient: memory stays mapped as long as somebody looks at it.
func TestMappingOutlivesClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(Options{})
	data := random(1 << 20)
	check(t, c.Buffer("b").WriteFile(ctx, "x", data, 0))
	r := must[*File](t)(c.Buffer("b").Open(ctx, "x"))
	m := must[*Mapping](t)(r.Map(0, 1<<20))
	check(t, c.Close())
	if !bytes.Equal(bytes.Join(m.Slices(), nil), data) {
		t.Error("the mapping differs")
	}
	check(t, m.Release())
	if len(c.atlas.mu.maps) != 0 {
		t.Error("regions are left")
	}
}

// FuzzWindow: no answer of a daemon, however wrong, makes a reader leave the region.
func FuzzWindow(f *testing.F) {
	seed := func(m *wire.Extents) {
		p, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p, []byte(nil), int64(0))
	}
	seed(&wire.Extents{Size: 100, Extents: []*wire.Extent{
		{FileOffset: 0, Length: 50, Region: 1, Offset: 10, CheckOffset: 0, CheckLength: 100},
		{FileOffset: 50, Length: 50},
	}})
	seed(&wire.Extents{Extents: []*wire.Extent{{Length: 1 << 62, Region: 1, Offset: 1 << 62, CheckOffset: -1, CheckLength: 1<<63 - 1}}})
	seed(&wire.Extents{Extents: []*wire.Extent{{Length: 4097, Region: 1, CheckLength: 4097}}})
	f.Fuzz(func(t *testing.T, message, data []byte, off int64) {
		var m wire.Extents
		if off < 0 || off > bb.MaxFileSize || proto.Unmarshal(message, &m) != nil {
			return
		}
		mem, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
		check(t, err)
		a := &atlas{}
		a.mu.maps = map[uint64]*region{1: {atlas: a, id: 1, path: "r", mem: mem}}
		m.Regions, m.Pin = []*wire.Region{{Id: 1, Path: "r", Length: 4096}}, 0
		w, err := newWindow(a, nil, off, &m, data)
		if err == nil && w.len() > 0 {
			p := make([]byte, min(w.len(), 10_000))
			for _, check := range []bool{false, true} {
				if n, err := w.copyTo(p, w.off, check); err == nil && n != len(p) {
					t.Errorf("%d of %d bytes were copied", n, len(p))
				}
			}
			w.release()
		}
		a.close()
		if r := a.mu.maps[1]; r != nil {
			t.Error("the region is left")
		}
		// The same about memory that cannot be mapped.
		m.Regions = []*wire.Region{{Id: 1, Key: make([]byte, rdma.RemoteKeySize), Length: 4096}}
		w, err = newWindow(nil, &session{welcome: &wire.Welcome{}, far: &far{}}, off, &m, data)
		if err != nil {
			return
		}
		for i := range w.parts {
			p := &w.parts[i]
			if f := p.far; f != nil && (f.off < 0 || f.length <= 0 || f.off+f.length > 4096 || f.cut < 0 || f.cut+p.len() > f.length) {
				t.Errorf("an extent leaves its region: %+v of %v", f, p.span)
			}
		}
	})
}

// FuzzReadLines cuts receipts at lines and loses nothing.
func FuzzReadLines(f *testing.F) {
	f.Add("a\nbb\nccc", 4)
	f.Add("\n\n\n", 1)
	f.Add(strings.Repeat("x", 100)+"\n", 50)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = 1 + limit&0xffff
		in := bufio.NewReaderSize(strings.NewReader(text), 16)
		var got []byte
		for {
			lines, err := readLines(in, limit)
			if err != nil {
				return // a line that is too long
			}
			if len(lines) == 0 {
				break
			}
			if len(lines) > limit {
				t.Fatalf("%d bytes at once, at most %d are allowed", len(lines), limit)
			}
			got = append(got, lines...)
		}
		if rest, _ := io.ReadAll(in); string(got)+string(rest) != text {
			t.Errorf("read %q of %q", got, text)
		} else if len(rest) > 0 && len(rest) <= limit && !strings.Contains(text, "\n") {
			t.Errorf("%d bytes are left", len(rest))
		}
	})
}

func TestVerifySendsWholeLines(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(Options{})
	var receipt strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&receipt, `{"path":"file%d","size":%d,"checksum":"0123456789abcdef"}`+"\n", i, i)
	}
	r := must[Report](t)(c.Verify(ctx, strings.NewReader(receipt.String()), VerifyOptions{}))
	if r.FilesDone != 100_000 || f.count(wire.Type_TYPE_VERIFY) < 2 {
		t.Errorf("%d files in %d messages", r.FilesDone, f.count(wire.Type_TYPE_VERIFY))
	}
	receipt.WriteString("bad\n")
	r, err := c.Verify(ctx, strings.NewReader(receipt.String()), VerifyOptions{})
	wantKind(t, err, ErrChecksum)
	if len(r.Failed) != 1 || r.FailedTotal != 1 {
		t.Errorf("failed: %+v", r.Failed)
	}
}
