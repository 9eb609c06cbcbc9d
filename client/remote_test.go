package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/client/internal/lease"
	"forebay/client/internal/reader"
	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/client/internal/writer"
	"forebay/internal/bbdtest"
	"forebay/rdma"
	"forebay/rdma/route"
)

// farDaemon starts a real daemon that serves TCP, with a buffer that is open to all.
func farDaemon(t *testing.T, args ...string) (d *bbdtest.Daemon, dial func() *client.Client) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef\n"), 0o600))
	address := bbdtest.FreePort(t, "127.0.0.1")
	d, local, _ := daemonClient(t, slices.Concat([]string{"--listen-tcp", address, "--key-file", key}, fabricArgs, args)...)
	must[admin.BufferSpec](t)(admin.CreateBuffer(context.Background(), local, admin.BufferSpec{Name: "open", Mode: 0o777}))
	return d, func() *client.Client {
		t.Helper()
		c := must[*client.Client](t)(client.Dial(context.Background(), client.Options{Address: "tcp://" + address, KeyFile: key, RetryFor: 30 * time.Second}))
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// farBuffer is that buffer, and a client elsewhere.
func farBuffer(t *testing.T) (*client.Client, *client.Buffer) {
	t.Helper()
	_, dial := farDaemon(t)
	c := dial()
	return c, c.Buffer("open")
}

// wantFar fails unless the client's session moves bytes one-sided.
func wantFar(t *testing.T, c *client.Client) {
	t.Helper()
	f := c.Connection().Now().Remote
	if f == nil || f.Dialled() == nil {
		t.Error("bytes did not travel one-sided")
	} else if got := fmt.Sprintf("%T", f.Dialled()); !strings.HasPrefix(got, fabricConn) {
		t.Errorf("bytes travelled by a %s, want a %s", got, fabricConn)
	}
}

func TestFarSizes(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	ctx := context.Background()
	for _, n := range []int{0, 1, 16 << 10, 16<<10 + 1, 100_000, remote.MaxTransfer, 1 << 20, 1<<20 + 1, 40<<20 + 7} {
		data, name := random(n), fmt.Sprintf("f%d", n)
		check(t, b.WriteFile(ctx, name, data, 0))
		if got := readAll(t, b, name); !bytes.Equal(got, data) {
			t.Errorf("%d bytes: content differs", n)
		}
		if got := must[[]byte](t)(b.ReadFile(ctx, name)); !bytes.Equal(got, data) {
			t.Errorf("%d bytes: ReadFile differs", n)
		}
	}
	wantFar(t, c)
}

// TestFarWays writes and reads in every way there is, compared with a plain slice.
func TestFarWays(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	ctx := context.Background()
	f := must[*client.File](t)(b.Create(ctx, "f"))
	var want []byte
	append_ := func(p []byte) { want = append(want, p...) }

	p := random(3<<20 + 5)
	must[int](t)(f.Write(p))
	append_(p)
	must[int](t)(f.WriteString(string(p[:700_000])))
	append_(p[:700_000])
	must[int64](t)(f.ReadFrom(bytes.NewReader(p[:2_000_001])))
	append_(p[:2_000_001])
	for _, n := range []int{10, 5 << 20, client.MaxReserve, 300_000} {
		room := must[[]byte](t)(f.Reserve(n))
		copy(room, random(n))
		append_(room)
		check(t, f.Publish(n))
	}
	for range 400 { // small ones, which travel together
		p := random(rand.IntN(5000))
		must[int](t)(f.Write(p))
		append_(p)
	}
	for i := range 40 { // over present bytes, committed or not, and beyond them
		p, off := random(rand.IntN(2<<20)), rand.IntN(len(want)+1000)
		if missing := off + len(p) - len(want); missing > 0 {
			want = append(want, make([]byte, missing)...)
		}
		copy(want[off:], p)
		must[int](t)(f.WriteAt(p, int64(off)))
		if i%7 == 0 {
			check(t, f.Sync())
		}
	}
	got := make([]byte, len(want))
	must[int](t)(f.ReadAt(got, 0))
	if at := firstDifference(got, want); at >= 0 {
		t.Fatalf("what is being written reads otherwise from %d on", at)
	}
	hole := int64(len(want)) + 3<<20
	must[int](t)(f.WriteAt([]byte("end"), hole))
	want = append(append(want, make([]byte, 3<<20)...), "end"...)
	check(t, f.Close())
	wantFar(t, c)

	r := must[*client.File](t)(b.Open(ctx, "f"))
	defer r.Close()
	var out bytes.Buffer
	if n := must[int64](t)(r.WriteTo(&out)); n != int64(len(want)) || !bytes.Equal(out.Bytes(), want) {
		t.Errorf("WriteTo yields %d of %d bytes, or others", n, len(want))
	}
	for range 300 {
		off := rand.IntN(len(want))
		n := rand.IntN(min(len(want)-off, 100_000)) + 1
		if rand.IntN(10) == 0 {
			n = rand.IntN(len(want)-off) + 1
		}
		p := make([]byte, n)
		must[int](t)(r.ReadAt(p, int64(off)))
		if !bytes.Equal(p, want[off:off+n]) {
			t.Fatalf("%d bytes at %d differ", n, off)
		}
		m := must[*client.Mapping](t)(r.Map(int64(off), int64(n)))
		if got := bytes.Join(m.Slices(), nil); m.Len() != int64(n) || !bytes.Equal(got, p) {
			t.Fatalf("%d bytes mapped at %d differ", n, off)
		}
		check(t, m.Verify())
		check(t, m.Release())
	}
	must[int64](t)(r.Seek(0, io.SeekStart))
	if got := must[[]byte](t)(io.ReadAll(onlyReader{r})); !bytes.Equal(got, want) {
		t.Error("small reads in a row yield other bytes")
	}
	if r.Reader().Cached() > reader.MaxCached {
		t.Errorf("the reader keeps %d bytes", r.Reader().Cached())
	}
}

func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

type onlyReader struct{ r io.Reader }

func (o onlyReader) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 10_000)]) }

// TestFarIsBounded: a stream keeps no more in this process than its bound.
func TestFarIsBounded(t *testing.T) {
	t.Parallel()
	_, dial := farDaemon(t)
	ctx := context.Background()
	c := dial()
	f := must[*client.File](t)(c.Buffer("open").Create(ctx, "f"))
	defer f.Abort()
	p := random(1 << 20)
	for range 100 {
		must[int](t)(f.Write(p))
		if f.Writer().Staged() > writer.MaxStaged+int64(len(p)) {
			t.Fatalf("%d bytes are staged", f.Writer().Staged())
		}
		if held := f.Writer().Held(); held > writer.MaxStaged+2*lease.MaxRemote {
			t.Fatalf("%d bytes of memory are held", held)
		}
	}
	wantFar(t, c)
}

func TestFarSteadyPathAllocatesNothing(t *testing.T) {
	c, b := farBuffer(t)
	ctx := context.Background()
	w := must[*client.File](t)(b.Create(ctx, "x"))
	p := random(1 << 20)
	for range 40 {
		must[int](t)(w.Write(p))
	}
	if n := fewestAllocs(func() { must[int](t)(w.Write(p)) }); n != 0 {
		t.Errorf("a write of 1 MiB allocates %v times", n)
	}
	check(t, w.Close())
	r := must[*client.File](t)(b.Open(ctx, "x"))
	defer r.Close()
	if n := fewestAllocs(func() { must[int](t)(io.ReadFull(r, p)) }); n != 0 {
		t.Errorf("a read of 1 MiB allocates %v times", n)
	}
	wantFar(t, c)
}

// TestFarResume kills the daemon while a file is written and another one read.
func TestFarResume(t *testing.T) {
	t.Parallel()
	d, dial := farDaemon(t)
	ctx := context.Background()
	c := dial()
	b := c.Buffer("open")
	old := random(12 << 20)
	check(t, b.WriteFile(ctx, "old", old, 0))
	data := random(30 << 20)
	w := must[*client.File](t)(b.Create(ctx, "new"))
	r := must[*client.File](t)(b.Open(ctx, "old"))
	got := make([]byte, len(old))
	half := len(old) / 2
	must[int](t)(w.Write(data[:9<<20]))
	check(t, w.Sync())
	must[int](t)(w.Write(data[9<<20 : 20<<20]))
	must[int](t)(io.ReadFull(r, got[:half]))
	d.Kill()
	d.Start()
	must[int](t)(w.Write(data[20<<20:]))
	must[int](t)(io.ReadFull(r, got[half:]))
	check(t, w.Close())
	check(t, r.Close())
	if !bytes.Equal(got, old) {
		t.Error("what was read differs")
	}
	if !bytes.Equal(readAll(t, b, "new"), data) {
		t.Error("what was written differs")
	}
	wantFar(t, c)
}

// TestFarBreaks breaks the connection of the fabric alone, under writes and reads.
func TestFarBreaks(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	ctx := context.Background()
	data := random(8 << 20)
	check(t, b.WriteFile(ctx, "old", data, 0))
	stop := make(chan struct{})
	var breaker sync.WaitGroup
	breaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(15 * time.Millisecond):
				c.Connection().Now().Remote.Close()
			}
		}
	})
	for i := range 12 {
		name := fmt.Sprintf("f%d", i)
		check(t, b.WriteFile(ctx, name, data, 0))
		if !bytes.Equal(readAll(t, b, name), data) {
			t.Error("content differs")
		}
		if got := must[[]byte](t)(b.ReadFile(ctx, "old")); !bytes.Equal(got, data) {
			t.Error("content differs")
		}
	}
	close(stop)
	breaker.Wait()
}

// TestFarDown: without a fabric, bytes travel in messages, whether there is none, it
// cannot be dialled, or it breaks whenever it is used.
func TestFarDown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	roundTrip := func(t *testing.T, c *client.Client) {
		t.Helper()
		b, data := c.Buffer("open"), random(9<<20)
		check(t, b.WriteFile(ctx, "f", data, 0))
		if !bytes.Equal(readAll(t, b, "f"), data) {
			t.Error("content differs")
		}
		if got := must[[]byte](t)(b.ReadFile(ctx, "f")); !bytes.Equal(got, data) {
			t.Error("content differs")
		}
	}
	t.Run("off", func(t *testing.T) {
		_, dial := farDaemon(t, "--listen-fabric", "off", "--fabric-ofi", "off")
		c := dial()
		roundTrip(t, c)
		if c.Connection().Now().Remote != nil {
			t.Error("there is a fabric")
		}
	})
	_, dial := farDaemon(t)
	t.Run("unreachable for a writer", func(t *testing.T) {
		c := dial()
		c.Connection().Now().Remote.Route = route.New(route.Offer{TCP: "127.0.0.1:1"}, route.Options{})
		roundTrip(t, c)
		if c.Connection().Now().Leases() {
			t.Error("the session takes leases still")
		}
	})
	t.Run("unreachable for a reader", func(t *testing.T) {
		c := dial()
		data := random(5 << 20)
		check(t, c.Buffer("open").WriteFile(ctx, "g", data, 0))
		c = dial()
		r := must[*client.File](t)(c.Buffer("open").Open(ctx, "g"))
		defer r.Close()
		c.Connection().Now().Remote.Route = route.New(route.Offer{TCP: "127.0.0.1:1"}, route.Options{})
		if got := must[[]byte](t)(io.ReadAll(r)); !bytes.Equal(got, data) {
			t.Error("content differs")
		}
		if c.Connection().Now().Leases() {
			t.Error("the session takes leases still")
		}
	})
	t.Run("a wrong ticket", func(t *testing.T) {
		c := dial()
		c.Connection().Now().Welcome.DataTicket[0] ^= 1
		roundTrip(t, c)
		if c.Connection().Now().Leases() {
			t.Error("the session takes leases still")
		}
	})
	t.Run("useless", func(t *testing.T) {
		c := dial()
		for range session.MaxBreaks {
			s := must[*session.Session](t)(c.Connection().Session(ctx))
			err := s.Remote.Fail(errors.New("for a test"))
			if !session.IsBroken(err) || s.Alive() {
				t.Errorf("the session outlives its connection: %v", err)
			}
		}
		roundTrip(t, c)
		if c.Connection().Now().Remote != nil {
			t.Error("it is tried again at once")
		}
	})
}

func TestFarAbort(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	for i := range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		f := must[*client.File](t)(b.Create(ctx, fmt.Sprintf("f%d", i)))
		must[int](t)(f.Write(random(3 << 20)))
		if i%2 == 0 {
			cancel()
		}
		check(t, f.Abort())
		cancel()
	}
	s := c.Connection().Now()
	if !s.Alive() {
		t.Error("an abort broke the session")
	}
	list, _, err := b.List(context.Background(), "", "", 100)
	check(t, err)
	if len(list) > 0 {
		t.Errorf("%d files are there", len(list))
	}
	check(t, b.WriteFile(context.Background(), "after", random(1<<20), 0))
}

// TestFarManyWriters has several clients and files write at once, and kills the daemon
// meanwhile.
func TestFarManyWriters(t *testing.T) {
	t.Parallel()
	d, dial := farDaemon(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	for g := range 4 {
		c := dial()
		wg.Go(func() {
			b := c.Buffer("open")
			for i := range 15 {
				name, data := fmt.Sprintf("w%d-%d", g, i), random(1+i*90_000)
				if err := b.WriteFile(ctx, name, data, 0); err != nil {
					t.Errorf("write %s: %v", name, err)
					return
				}
				if got, err := b.ReadFile(ctx, name); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s differs (%v)", name, err)
				}
			}
		})
	}
	for range 2 {
		time.Sleep(100 * time.Millisecond)
		d.Kill()
		d.Start()
	}
	wg.Wait()
}

// TestFarReadAhead reads from front to back in steps of any size, several at once, with
// looks elsewhere in between.
func TestFarReadAhead(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	ctx := context.Background()
	f := must[*client.File](t)(b.Create(ctx, "f"))
	want := random(37<<20 + 11)
	must[int](t)(f.Write(want))
	must[int](t)(f.WriteAt(want[:100], int64(len(want))+5<<20)) // a hole, and extents that are short
	for i := range 20 {
		off := rand.IntN(len(want) - 300_000)
		p := random(1 + rand.IntN(300_000))
		copy(want[off:], p)
		must[int](t)(f.WriteAt(p, int64(off)))
		if i%5 == 0 {
			check(t, f.Sync())
		}
	}
	check(t, f.Close())
	want = append(append(want, make([]byte, 5<<20)...), want[:100]...)

	shared := must[*client.File](t)(b.Open(ctx, "f"))
	var wg sync.WaitGroup
	for _, step := range []int{100_000, 1 << 20, 3_000_000} {
		wg.Go(func() {
			r := must[*client.File](t)(b.Open(ctx, "f"))
			defer r.Close()
			p := make([]byte, step)
			for off := 0; off < len(want); {
				n := min(1+rand.IntN(step), len(want)-off)
				must[int](t)(io.ReadFull(r, p[:n]))
				if !bytes.Equal(p[:n], want[off:off+n]) {
					t.Errorf("%d bytes at %d differ", n, off)
					return
				}
				off += n
				if at := rand.IntN(len(want) - 1000); rand.IntN(5) == 0 {
					must[int](t)(shared.ReadAt(p[:1000], int64(at)))
					if !bytes.Equal(p[:1000], want[at:at+1000]) {
						t.Errorf("1000 bytes at %d differ", at)
					}
				}
			}
		})
		wg.Go(func() { // all on one file, so that only some of them find the fetched bytes
			p := make([]byte, step)
			for off := 0; off < len(want); {
				n := min(step, len(want)-off)
				must[int](t)(shared.ReadAt(p[:n], int64(off)))
				if !bytes.Equal(p[:n], want[off:off+n]) {
					t.Errorf("%d bytes at %d differ", n, off)
					return
				}
				off += n
			}
		})
	}
	wg.Wait()
	check(t, shared.Close())
	if shared.Reader().ReadsAhead() {
		t.Error("the reader still fetches")
	}
	wantFar(t, c)
}

// TestFarChecksum: bytes that changed in the daemon's memory are not returned, however
// they are read.
func TestFarChecksum(t *testing.T) {
	t.Parallel()
	c, b := farBuffer(t)
	ctx := context.Background()
	data := random(6 << 20)
	check(t, b.WriteFile(ctx, "f", data, 0))
	r := must[*client.File](t)(b.Open(ctx, "f"))
	defer r.Close()
	must[int](t)(r.ReadAt(make([]byte, 10), 0))
	place := must[rdma.Remote](t)(r.Reader().Place(ctx, 4<<20+77))
	conn := must[rdma.Conn](t)(c.Connection().Now().Remote.Dial(ctx))
	flip := []rdma.Op{{
		Kind: rdma.OpWrite, Local: []byte{data[4<<20+77] ^ 1}, Remote: place,
	}}
	check(t, rdma.Do(ctx, conn, flip))

	p := make([]byte, 1<<20)
	_, err := r.ReadAt(p, 4<<20) // straight
	wantKind(t, err, client.ErrChecksum)
	_, err = r.ReadAt(p[:1000], 4<<20+5000) // a part
	wantKind(t, err, client.ErrChecksum)
	_, err = r.Map(3<<20, 2<<20)
	wantKind(t, err, client.ErrChecksum)
	var got, out bytes.Buffer
	_, err = io.CopyBuffer(struct{ io.Writer }{&got}, onlyReader{r}, make([]byte, 10_000)) // ahead
	wantKind(t, err, client.ErrChecksum)
	if !bytes.HasPrefix(data, got.Bytes()) || got.Len() > 4<<20 || got.Len() <= 4<<20-10_000 {
		t.Errorf("%d bytes were read before it, or others", got.Len())
	}
	must[int64](t)(r.Seek(0, io.SeekStart))
	_, err = r.WriteTo(&out)
	wantKind(t, err, client.ErrChecksum)
	// The error may come when the next extent is fetched, before the last one is written.
	if !bytes.HasPrefix(data, out.Bytes()) || out.Len() > 4<<20 || out.Len() < 2<<20 {
		t.Errorf("%d bytes were written before it, or others", out.Len())
	}
	if !c.Connection().Now().Alive() {
		t.Error("the session broke")
	}
}
