package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// daemonClient starts a real daemon with a buffer b in front of a directory.
func daemonClient(t *testing.T, args ...string) (*bbdtest.Daemon, *client.Client, string) {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store") // deleted after the daemon has ended
	d := bbdtest.Start(t, args...)
	c, err := client.Dial(context.Background(), client.Options{Address: "unix://" + d.Socket, RetryFor: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	check(t, os.Mkdir(store, 0o755))
	must[admin.BufferSpec](t)(admin.CreateBuffer(context.Background(), c, admin.BufferSpec{Name: "b", Backing: "file://" + store}))
	return d, c, store
}

// TestDaemon is the whole way with a real daemon: write, read, list, drain, events, kill.
func TestDaemon(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, c, store := daemonClient(t)
	b := c.Buffer("b")

	t.Run("sizes", func(t *testing.T) {
		for _, n := range []int{0, 1, 4096, 32 << 10, 32<<10 + 1, 1 << 20, 20<<20 + 3} {
			data, name := random(n), fmt.Sprintf("f%d", n)
			check(t, b.WriteFile(ctx, name, data, 0))
			if got := readAll(t, b, name); !bytes.Equal(got, data) {
				t.Errorf("%d bytes: content differs", n)
			}
		}
	})
	t.Run("fs", func(t *testing.T) {
		check(t, b.MkdirAll(ctx, "dir/sub", 0o755))
		check(t, b.WriteFile(ctx, "dir/sub/file", random(10_000), 0))
		sub, err := b.FS(ctx).(interface {
			Sub(string) (fs.FS, error)
		}).Sub("dir")
		check(t, err)
		check(t, fstest.TestFS(sub, "sub/file"))
	})
	t.Run("sync", func(t *testing.T) {
		w := must[*client.File](t)(b.Create(ctx, "log"))
		var want []byte
		for i := range 500 {
			line := fmt.Appendf(nil, "line %d %s\n", i, bytes.Repeat([]byte("x"), i))
			want = append(want, line...)
			must[int](t)(w.Write(line))
			check(t, w.Sync())
		}
		if got := readAll(t, b, "log"); !bytes.Equal(got, want) {
			t.Error("what is synced cannot be read")
		}
		check(t, w.Close())
	})
	t.Run("kill", func(t *testing.T) {
		data := random(6 << 20)
		w := must[*client.File](t)(b.Create(ctx, "k"))
		r := must[*client.File](t)(b.Open(ctx, "log"))
		must[int](t)(w.Write(data[:4<<20]))
		d.Kill()
		d.Start()
		must[int](t)(w.Write(data[4<<20:]))
		check(t, w.Close())
		if got := readAll(t, b, "k"); !bytes.Equal(got, data) {
			t.Error("content differs")
		}
		must[[]byte](t)(io.ReadAll(r))
		check(t, r.Close())
	})
	t.Run("drain", func(t *testing.T) {
		report := must[admin.Report](t)(admin.Drain(ctx, c, "b", time.Minute, nil))
		if len(report.Failed) > 0 {
			t.Errorf("failed: %+v", report.Failed)
		}
		got := must[[]byte](t)(os.ReadFile(filepath.Join(store, "k")))
		if !bytes.Equal(got, readAll(t, b, "k")) {
			t.Error("the store has other content")
		}
		var receipt bytes.Buffer
		check(t, admin.Receipt(ctx, c, "b", &receipt))
		if !bytes.Contains(receipt.Bytes(), []byte("\"k\"")) {
			t.Errorf("the receipt does not name k: %s", receipt.Bytes())
		}
		must[admin.Report](t)(admin.Verify(ctx, c, &receipt, admin.VerifyOptions{Deep: true}))
	})
}

// TestDaemonManyWriters has several clients and files write at once, and kills the
// daemon meanwhile.
func TestDaemonManyWriters(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d, _, _ := daemonClient(t)
	var wg sync.WaitGroup
	for g := range 4 {
		c := must[*client.Client](t)(client.Dial(ctx, client.Options{Address: "unix://" + d.Socket, RetryFor: 30 * time.Second}))
		wg.Go(func() {
			defer c.Close()
			b := c.Buffer("b")
			for i := range 25 {
				name, data := fmt.Sprintf("w%d-%d", g, i), random(1+i*40_000)
				err := b.WriteFile(ctx, name, data, 0)
				for errors.Is(err, client.ErrLost) {
					// Others got the memory before its uncommitted bytes were written again.
					err = b.WriteFile(ctx, name, data, 0)
				}
				if err != nil {
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
		time.Sleep(150 * time.Millisecond)
		d.Kill()
		d.Start()
	}
	wg.Wait()
}

// TestDaemonOverTCP moves bytes in messages, after both sides proved the shared key.
func TestDaemonOverTCP(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	key := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(key, []byte("0123456789abcdef0123456789abcdef\n"), 0o600))
	address := bbdtest.FreePort(t, "127.0.0.1")
	_, local, _ := daemonClient(t, "--listen-tcp", address, "--key-file", key)
	// Remote users are not root. They get a buffer that is open to all.
	must[admin.BufferSpec](t)(admin.CreateBuffer(ctx, local, admin.BufferSpec{Name: "open", Mode: 0o777}))
	c := must[*client.Client](t)(client.Dial(ctx, client.Options{Address: "tcp://" + address, KeyFile: key}))
	defer c.Close()
	if c.Server().Mapped {
		t.Error("regions are mapped over TCP")
	}
	b := c.Buffer("open")
	for _, n := range []int{0, 5000, 100_000, 9<<20 + 1} {
		data, name := random(n), fmt.Sprintf("f%d", n)
		check(t, b.WriteFile(ctx, name, data, 0))
		if got := readAll(t, b, name); !bytes.Equal(got, data) {
			t.Errorf("%d bytes: content differs", n)
		}
	}
	_, err := client.Dial(ctx, client.Options{Address: "tcp://" + address})
	wantKind(t, err, client.ErrPermission)

	// A holder of the key may act for another user, with any daemon that answers.
	ann := &client.User{UID: 4711, GID: 4712}
	for _, addresses := range []string{"tcp://" + address, "tcp://127.0.0.1:1,tcp://" + address} {
		other := must[*client.Client](t)(client.Dial(ctx, client.Options{Address: addresses, KeyFile: key, User: ann}))
		defer other.Close()
		if got := other.Server(); got.UID != ann.UID || got.GID != ann.GID || got.Address != "tcp://"+address {
			t.Errorf("with %s: %+v", addresses, got)
		}
		made := must[admin.BufferSpec](t)(admin.CreateBuffer(ctx, other, admin.BufferSpec{Name: fmt.Sprintf("anns%d", len(addresses))}))
		if made.UID != ann.UID || made.GID != ann.GID {
			t.Errorf("made for %+v: %+v", ann, made)
		}
	}
	_, err = client.Dial(ctx, client.Options{Address: "/run/forebay/bbd.sock,tcp://" + address, KeyFile: key, User: ann})
	wantKind(t, err, client.ErrInvalid)
}

// TestMappingOutlivesItsFile fills the daemon's memory several times over after a mapped file was
// closed. A mapping stays until it is released, and its bytes can be evicted then.
func TestMappingOutlivesItsFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, c, _ := daemonClient(t, "--memory", "64MiB")
	b := c.Buffer("b")
	data := random(8 << 20)
	check(t, b.WriteFile(ctx, "mapped", data, 0))
	must[admin.Report](t)(admin.Drain(ctx, c, "b", time.Minute, nil))

	r := must[*client.File](t)(b.Open(ctx, "mapped"))
	m := must[*client.Mapping](t)(r.Map(0, int64(len(data))))
	defer m.Release()
	must[int](t)(r.ReadAt(make([]byte, 100), 1<<20)) // of a window in use, as reads that end before Close
	check(t, r.Close())
	for i := range 10 {
		check(t, b.WriteFile(ctx, fmt.Sprintf("f%d", i), random(8<<20), 0))
		must[admin.Report](t)(admin.Drain(ctx, c, "b", time.Minute, nil))
	}
	if !bytes.Equal(bytes.Join(m.Slices(), nil), data) {
		t.Error("mapped bytes changed after the file was closed")
	}
	check(t, m.Verify())
	check(t, m.Release())
	// Nothing is pinned any more, so a file as large as the memory that all others left fits.
	check(t, b.WriteFile(ctx, "large", random(40<<20), 0))
}
