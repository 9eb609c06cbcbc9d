package client_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/wire"
)

// TestSpecial: symbolic links, FIFOs and sockets have lasting names, and are not read as files.
func TestSpecial(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d, c, _ := daemonClient(t)
	b := c.Buffer("b")
	check(t, b.Mkdir(ctx, "d", 0o755))
	check(t, b.WriteFile(ctx, "d/f", []byte("f"), 0))
	check(t, b.Symlink(ctx, "d/\xff", "l"))
	check(t, b.Symlink(ctx, "d", "dir"))
	check(t, b.Mknod(ctx, "fifo", client.TypeFIFO, 0o600))
	check(t, b.Mknod(ctx, "socket", client.TypeSocket, 0o640))
	d.Kill()
	d.Start()
	for path, want := range map[string]client.Entry{
		"l": {Type: client.TypeSymlink, Target: "d/\xff", Size: 3, Mode: 0o777}, "dir": {Type: client.TypeSymlink, Target: "d", Size: 1, Mode: 0o777},
		"fifo": {Type: client.TypeFIFO, Mode: 0o600}, "socket": {Type: client.TypeSocket, Mode: 0o640},
	} {
		e, err := b.Stat(ctx, path)
		if err != nil || e.Type != want.Type || e.Target != want.Target || e.Size != want.Size || e.Mode != want.Mode || want.Target == "" && e.State != client.StateClean {
			t.Errorf("%s: %+v, %v", path, e, err)
		}
		info, err := fs.Stat(b.FS(ctx), path)
		if err != nil || info.Mode().Type() != want.Type.Mode() {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		_, err = b.ReadFile(ctx, path)
		kindOf(t, "reading "+path, err, client.ErrUnsupported)
		kindOf(t, "writing "+path, b.WriteFile(ctx, path, []byte("x"), 0), client.ErrUnsupported)
		kindOf(t, "a link over "+path, b.Symlink(ctx, "x", path), client.ErrExists)
		kindOf(t, "a directory over "+path, b.Mkdir(ctx, path, 0o755), client.ErrExists)
	}
	_, err := b.Stat(ctx, "dir/f")
	kindOf(t, "below a link", err, client.ErrNotDirectory)
	kindOf(t, "a device", b.Mknod(ctx, "x", 77, 0o600), client.ErrInvalid)
	kindOf(t, "a file as a link", b.Symlink(ctx, "x", "d/f"), client.ErrExists)
	kindOf(t, "without a directory", b.Symlink(ctx, "x", "none/l"), client.ErrNotFound)
	kindOf(t, "without a target", b.Symlink(ctx, "", "x"), client.ErrInvalid)
	_, err = b.Readlink(ctx, "d/f")
	kindOf(t, "where a file leads", err, client.ErrInvalid)

	check(t, b.Rename(ctx, "l", "d/l"))
	check(t, b.Rename(ctx, "d/f", "dir")) // over a link
	if got := readAll(t, b, "dir"); string(got) != "f" {
		t.Errorf("%q", got)
	}
	check(t, b.Rename(ctx, "d/l", "dir")) // over a file
	if target, err := b.Readlink(ctx, "dir"); target != "d/\xff" || err != nil {
		t.Errorf("%q, %v", target, err)
	}
	check(t, b.Remove(ctx, "dir"))
	check(t, b.RemoveAll(ctx, "fifo"))
	check(t, b.RemoveAll(ctx, ""))
	for e, err := range b.ReadDir(ctx, "") {
		t.Errorf("%s is left, %v", e.Name, err)
	}
}

func kindOf(t *testing.T, what string, err error, want client.Kind) {
	t.Helper()
	if client.KindOf(err) != want {
		t.Errorf("%s: %v, not of kind %v", what, err, want)
	}
}

// TestLinksKilled kills the daemon while links are made, renamed and removed. Those that were acknowledged are there, and
// the store has the same links as the buffer in the end, and nothing else.
func TestLinksKilled(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d, c, store := daemonClient(t)
	b := c.Buffer("b")
	const count, kills = 240, 4
	acked := map[string]string{} // targets of entries that certainly exist
	var made atomic.Int32
	var writer sync.WaitGroup
	writer.Go(func() {
		certain := func(err error) bool {
			if err != nil && !errors.Is(err, client.ErrUnknownOutcome) {
				t.Error(err)
			}
			return err == nil
		}
		for i := range count {
			name, target := fmt.Sprint("l", i), fmt.Sprint("target of ", i)
			if certain(b.Symlink(ctx, target, name)) {
				switch i % 3 {
				case 0:
					acked[name] = target
				case 1:
					if certain(b.Rename(ctx, name, "moved-"+name)) {
						acked["moved-"+name] = target
					}
				default:
					certain(b.Remove(ctx, name))
				}
			}
			made.Add(1)
		}
	})
	for i := range kills {
		for int(made.Load()) < (i+1)*count/(kills+2) {
			time.Sleep(time.Millisecond)
		}
		d.Kill()
		d.Start()
	}
	writer.Wait()
	must[admin.Report](t)(admin.Drain(ctx, c, "b", 2*time.Minute, nil))
	found := map[string]string{}
	for e, err := range b.ReadDir(ctx, "") {
		check(t, err)
		found[e.Name] = e.Target
		if e.State != client.StateClean {
			t.Errorf("after the drain, %s is %v", e.Name, e.State)
		}
	}
	for name, target := range acked {
		if found[name] != target {
			t.Errorf("%s leads to %q, not to %q", name, found[name], target)
		}
	}
	there, err := os.ReadDir(store)
	check(t, err)
	stored := map[string]string{}
	for _, e := range there {
		stored[e.Name()], err = os.Readlink(filepath.Join(store, e.Name()))
		check(t, err)
	}
	if !maps.Equal(stored, found) || len(acked) < count/3 {
		t.Errorf("the store has %d links, the buffer %d, %d were acknowledged: %v, %v", len(stored), len(found), len(acked), stored, found)
	}
}

// TestSpecialOfOlderDaemon: a daemon without symbolic links gets no request for one.
func TestSpecialOfOlderDaemon(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.version = wire.VersionSpecial - 1
	c := f.connect(client.Options{})
	kindOf(t, "a link", c.Buffer("b").Symlink(t.Context(), "x", "l"), client.ErrUnsupported)
	if n := f.count(wire.Type_TYPE_MKNOD); n != 0 {
		t.Errorf("it was asked %d times", n)
	}
}
