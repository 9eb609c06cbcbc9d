package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"forebay/client"
	"forebay/client/admin"
	"forebay/client/internal/lease"
	"forebay/client/internal/reader"
	"forebay/client/internal/writer"
	"forebay/internal/wire"
)

// TestReadWindows: a reader requests windows ahead, each once, pins few at a time, and none when it
// is closed.
func TestReadWindows(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	b := f.connect(client.Options{}).Buffer("b")
	data := random(100<<20 + 5)
	check(t, b.WriteFile(ctx, "x", data, 0))
	r := must[*client.File](t)(b.Open(ctx, "x"))
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
	// The first window comes with Open. The last one, of 5 bytes, is inlined and not pinned.
	if n := f.count(wire.Type_TYPE_EXTENTS); n != 3 {
		t.Errorf("%d windows were asked for", n)
	}
	if most > reader.SeqWindows+1 {
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
		must[client.Entry](t)(b.Stat(ctx, "x"))
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.pins == 0
	})
}

// TestSharedFile has several Files and goroutines write disjoint ranges of one file.
func TestSharedFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachAccess(t, func(t *testing.T, f *fake, b *client.Buffer) {
		const part = 700_000
		data := random(6 * part)
		var files []*client.File
		for range 3 {
			files = append(files, must[*client.File](t)(b.Create(ctx, "shared")))
		}
		for _, w := range files {
			must[client.Entry](t)(w.Entry()) // all have joined before the first closes
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
	b := f.connect(client.Options{}).Buffer("b")
	w := must[*client.File](t)(b.Create(ctx, "x"))
	const n = writer.MaxPending + 500
	for i := range n {
		must[int](t)(w.WriteAt([]byte{byte(i)}, int64(2*(n-i))))
	}
	before := f.count(wire.Type_TYPE_COMMIT)
	check(t, w.Close())
	if before != 1 {
		t.Errorf("%d early commits", before)
	}
}

// TestLeasesAreReturned: closed files return leases that they do not need.
func TestLeasesAreReturned(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(client.Options{})
	b := c.Buffer("b")
	check(t, b.WriteFile(ctx, "x", random(50<<20), 0))
	w := must[*client.File](t)(b.Create(ctx, "y"))
	must[int](t)(w.Write(random(20 << 20)))
	check(t, w.Abort())
	eventually(t, "leases are left", func() bool {
		must[client.Entry](t)(b.Stat(ctx, "x"))
		f.mu.Lock()
		defer f.mu.Unlock()
		free := int64(0)
		for _, l := range f.leases {
			free += l.len
		}
		return free <= 2*lease.KeepIdle
	})
}

// TestMappingOutlivesClient: memory stays mapped as long as it is in use.
func TestMappingOutlivesClient(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(client.Options{})
	data := random(1 << 20)
	check(t, c.Buffer("b").WriteFile(ctx, "x", data, 0))
	r := must[*client.File](t)(c.Buffer("b").Open(ctx, "x"))
	m := must[*client.Mapping](t)(r.Map(0, 1<<20))
	check(t, c.Close())
	if !bytes.Equal(bytes.Join(m.Slices(), nil), data) {
		t.Error("the mapping differs")
	}
	check(t, m.Release())
	if c.Regions().Len() != 0 {
		t.Error("regions are left")
	}
}

func TestVerifySendsWholeLines(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := newFake(t)
	c := f.connect(client.Options{})
	var receipt strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&receipt, `{"path":"file%d","size":%d,"checksum":"0123456789abcdef"}`+"\n", i, i)
	}
	r := must[admin.Report](t)(admin.Verify(ctx, c, strings.NewReader(receipt.String()), admin.VerifyOptions{}))
	if r.FilesDone != 100_000 || f.count(wire.Type_TYPE_VERIFY) < 2 {
		t.Errorf("%d files in %d messages", r.FilesDone, f.count(wire.Type_TYPE_VERIFY))
	}
	receipt.WriteString("bad\n")
	r, err := admin.Verify(ctx, c, strings.NewReader(receipt.String()), admin.VerifyOptions{})
	wantKind(t, err, client.ErrChecksum)
	if len(r.Failed) != 1 || r.FailedTotal != 1 {
		t.Errorf("failed: %+v", r.Failed)
	}
}
