package asuser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
	"forebay/internal/lustretest"
)

// fuseIsLustre is a variable of the environment by which a worker treats the file systems of tests as Lustre.
const fuseIsLustre = "FOREBAY_TEST_FUSE_IS_LUSTRE"

func standForLustre() {
	if os.Getenv(fuseIsLustre) != "" {
		identity.Stands = map[uint64]uint64{unix.FUSE_SUPER_MAGIC: lustre.Magic}
	}
}

// mountLustre mounts a Lustre that users may pass, and makes a directory of alice's on it. Root is squashed from
// then on.
func mountLustre(t *testing.T, targets int) (fs *lustretest.FS, dir string) {
	t.Helper()
	needRoot(t)
	var squash atomic.Bool
	fs = lustretest.Mount(t, home(t, 0), lustretest.Options{
		Targets: make([]lustretest.Target, targets),
		Seen: func(uid, gid uint32) (uint32, uint32) {
			if squash.Load() {
				return lustretest.SquashRoot(uid, gid)
			}
			return uid, gid
		},
	})
	dir = filepath.Join(fs.Dir, "alice")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, alice, alice)); err != nil {
		t.Fatal(err)
	}
	squash.Store(true)
	return fs, dir
}

func lustreWorkers(t *testing.T) *Workers {
	return workers(t, Options{Env: []string{fuseIsLustre + "=1"}})
}

// A root daemon's own calls fail on a Lustre that squashes root, where those of the user's worker succeed. No step of
// a flush, a rename or a removal needs root.
func TestRootIsSquashed(t *testing.T) {
	_, dir := mountLustre(t, 2)
	own, err := posix.Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	attrs := &backing.Attrs{Mode: 0o640, UID: alice, GID: alice}
	if _, err := own.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{Attrs: attrs}); bb.KindOf(err) != bb.Permission {
		t.Errorf("root, which is squashed, wrote: %v", err)
	}
	s := open(t, lustreWorkers(t), alice, dir)
	p := backingtest.Data(large, 1)
	o, err := s.Put(t.Context(), "a/b/f", backing.NewBytes(p), backing.PutOptions{Attrs: attrs})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a/b/f")); err != nil || !bytes.Equal(got, p) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if info, err := os.Stat(filepath.Join(dir, "a/b/f")); err != nil || info.Sys().(*syscall.Stat_t).Uid != alice || info.Mode() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	if err := s.MakeDir(t.Context(), "d", backing.DirOptions{Attrs: backing.Attrs{Mode: 0o750, UID: alice, GID: alice}}); err != nil {
		t.Error(err)
	}
	if err := s.SetMode(t.Context(), "a/b/f", backing.Attrs{Mode: 0o600, UID: alice, GID: alice}); err != nil {
		t.Error(err)
	}
	if err := s.RenameIf(t.Context(), "a/b/f", "d/g", o.Version(), backing.Version{}); err != nil {
		t.Error(err)
	}
	if err := s.RemoveIf(t.Context(), "d/g", o.Version()); err != nil {
		t.Error(err)
	}
	if err := s.RemoveTree(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A worker sets layouts, which its user may, writes whole stripes, and its answer has the layout and the project of
// a quota that is used up.
func TestWorkerOnLustre(t *testing.T) {
	fs, dir := mountLustre(t, 4)
	fs.SetProject("alice", 4711)
	if _, err := lustre.Parse("-E 1M -c 1 -S 192K -E -1 -c 3 -S 192K"); err == nil {
		t.Fatal("a component that ends within a stripe was read") // 1M is no multiple of 192K
	}
	layout, err := lustre.Parse("-E 1536K -c 1 -S 192K -E -1 -c 3 -S 192K")
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Layouts = []lustre.Rule{{Layout: layout}}
	s, err := Open(t.Context(), lustreWorkers(t), User{alice, alice}, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	src := &noted{Source: backing.NewBytes(backingtest.Data(large, 1))}
	got, err := s.Put(t.Context(), "f", src, backing.PutOptions{})
	if err != nil || got.Layout != layout.String() {
		t.Errorf("%+v, %v; want %s", got, err, layout)
	}
	for _, off := range src.all() {
		if off%(192<<10) != 0 {
			t.Errorf("a write begins at %d, within a stripe", off)
		}
	}
	if n := fs.Used(lustretest.Project, 4711); n < large {
		t.Errorf("%d bytes count against the project", n)
	}
	fs.Limit(lustretest.Project, 4711, 0)
	_, err = s.Put(t.Context(), "g", backing.NewBytes([]byte("x")), backing.PutOptions{})
	if bb.KindOf(err) != bb.NoSpace || !backing.Passing(err) || !strings.Contains(err.Error(), "project 4711") {
		t.Errorf("%v, of kind %v", err, bb.KindOf(err))
	}
}

// The daemon logs once which parts of a layout files do not get, although each worker that has been idle ends.
func TestFewerTargetsToldOnce(t *testing.T) {
	_, dir := mountLustre(t, 2)
	var log lockedBuffer
	w, err := New(Options{Env: []string{fuseIsLustre + "=1"}, Idle: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	o := options()
	o.Layouts = []lustre.Rule{{Layout: lustre.Layout{{Count: 5}}}}
	s, err := Open(t.Context(), w, User{alice, alice}, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	last := backing.PutOptions{Last: func(context.Context) error { return nil }}
	for i, opts := range []backing.PutOptions{{}, last, {}, last} {
		eventually(t, "the worker has ended", func() bool { return len(w.Status()) == 0 })
		size := int64(1 << 20)
		if i > 1 {
			size = large
		}
		if _, err := s.Put(t.Context(), fmt.Sprint("f", i), backing.NewBytes(backingtest.Data(size, 1)), opts); err != nil {
			t.Fatal(err)
		}
	}
	if text := log.String(); strings.Count(text, "requests 5 targets, and files are put on 2") != 1 || !strings.Contains(text, "directory="+dir) {
		t.Errorf("the log has\n%s", text)
	}
}

// lockedBuffer is a buffer for concurrent writers.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

// noted is a source that records the offsets of its reads.
type noted struct {
	backing.Source
	mu   sync.Mutex
	offs []int64
}

func (n *noted) Slices(dst [][]byte, off, size int64) ([][]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offs = append(n.offs, off)
	return n.Source.Slices(dst, off, size)
}

func (n *noted) all() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.offs
}
