package asuser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/flusher/backing/asuser/serve"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix"
	"forebay/internal/bb"
)

const large = 5<<20 + 17

// Users of tests, who are not in the user database.
const (
	alice = 50001
	bob   = 50002
)

func TestMain(m *testing.M) {
	standForLustre()
	if len(os.Args) > 1 && os.Args[1] == protocol.Command {
		os.Exit(serve.Main(os.Args[2:]))
	}
	if at := os.Getenv(lateDaemon); at != "" {
		fmt.Fprintln(os.Stderr, putUntilKilled(at))
		os.Exit(1)
	}
	code := backingtest.Main(m, func(url string) (backing.Store, error) {
		var uid uint32
		var dir string
		if _, err := fmt.Sscanf(url, "%d %s", &uid, &dir); err != nil {
			return nil, err
		}
		w, err := New(Options{})
		if err != nil {
			return nil, err
		}
		return Open(context.Background(), w, User{uid, uid}, dir, options())
	})
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func options() posix.Options { return posix.Options{Owner: backing.NewOwner(7)} }

func workers(t *testing.T, o Options) *Workers {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	w, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// home makes a directory that a user owns, below one that all may pass.
func home(t *testing.T, uid int) string {
	t.Helper()
	top, err := os.MkdirTemp("", "asuser")
	if err == nil {
		err = os.Chmod(top, 0o755)
	}
	dir := filepath.Join(top, "home")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.Chown(dir, uid, uid)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	return dir
}

func open(t *testing.T, w *Workers, uid uint32, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), w, User{uid, uid}, dir, options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// users are the users of tests: as root several, else this one alone.
func users() []uint32 {
	if os.Geteuid() == 0 {
		return []uint32{0, alice, bob}
	}
	return []uint32{uint32(os.Geteuid())}
}

func TestSuite(t *testing.T) {
	for _, uid := range users() {
		t.Run(strconv.Itoa(int(uid)), func(t *testing.T) {
			w := workers(t, Options{})
			backingtest.Suite(t, backingtest.Harness{
				Open:  func(t *testing.T) backing.Store { return open(t, w, uid, home(t, int(uid))) },
				Large: large,
				Damage: func(t *testing.T, s backing.Store, name string) {
					file := filepath.Join(s.(*Store).key.dir, name)
					b, err := os.ReadFile(file)
					if err == nil {
						b[len(b)/2] ^= 1
						err = os.WriteFile(file, b, 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
				},
				Crash: func(t *testing.T, name string) backing.Store {
					dir := home(t, int(uid))
					backingtest.Kill(t, fmt.Sprintf("%d %s", uid, dir), name, large)
					return open(t, w, uid, dir)
				},
			})
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// procStatus reads a line of a worker's /proc/PID/status.
func procStatus(t *testing.T, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	t.Fatalf("no %s in\n%s", field, b)
	return ""
}

func (s *Store) pid(t *testing.T) int {
	t.Helper()
	w, err := s.w.get(t.Context(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	defer w.release()
	return w.cmd.Process.Pid
}

// A worker is its user, and has no other right.
func TestWorkerIsTheUser(t *testing.T) {
	needRoot(t)
	s := open(t, workers(t, Options{}), alice, home(t, alice))
	pid := s.pid(t)
	for field, want := range map[string]string{
		"Uid": "50001 50001 50001 50001", "Gid": "50001 50001 50001 50001", "Groups": "", "NoNewPrivs": "1",
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
	} {
		if got := procStatus(t, pid, field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
	if _, err := s.Put(t.Context(), "d/f", backing.NewBytes([]byte("x")), backing.PutOptions{Attrs: &backing.Attrs{Mode: 0o640, UID: bob, GID: bob}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d", "d/f"} {
		info, err := os.Stat(filepath.Join(s.key.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if at := info.Sys().(*syscall.Stat_t); at.Uid != alice || at.Gid != alice {
			t.Errorf("%s belongs to %d:%d", name, at.Uid, at.Gid)
		}
	}
}

// Files that the user may not reach are not reached for the user.
func TestKernelDecides(t *testing.T) {
	needRoot(t)
	dir := home(t, bob)
	if err := os.Chmod(dir, 0o1777); err != nil {
		t.Fatal(err)
	}
	private := filepath.Join(dir, "alice")
	err := errors.Join(os.Mkdir(private, 0o700), os.WriteFile(filepath.Join(private, "data"), []byte("hers"), 0o600), os.Chown(private, alice, alice))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, workers(t, Options{}), bob, dir)
	_, put := s.Put(t.Context(), "alice/data", backing.NewBytes([]byte("his")), backing.PutOptions{})
	_, get := s.Get(t.Context(), "alice/data", 0, -1)
	_, stat := s.Stat(t.Context(), "alice/data")
	for what, err := range map[string]error{
		"put": put, "get": get, "stat": stat, "remove": s.Remove(t.Context(), "alice/data"), "remove tree": s.RemoveTree(t.Context(), "alice"),
		"rename": s.Rename(t.Context(), "alice/data", "mine"), "list": s.List(t.Context(), "alice/", func(backing.Object) error { return nil }),
	} {
		if !errors.Is(err, bb.Permission) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(private, "data")); err != nil || string(b) != "hers" {
		t.Errorf("%q, %v", b, err)
	}
}

// Errors are the adaptor's own, word by word.
func TestErrorsCross(t *testing.T) {
	uid := users()[0]
	dir := home(t, int(uid))
	s := open(t, workers(t, Options{}), uid, dir)
	direct, err := posix.Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600), os.Mkdir(filepath.Join(dir, "dir"), 0o700), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for what, call := range map[string]func(backing.Store) error{
		"get":      func(s backing.Store) error { _, err := s.Get(ctx, "none", 0, -1); return err },
		"get pipe": func(s backing.Store) error { _, err := s.Get(ctx, "pipe", 0, -1); return err },
		"get dir":  func(s backing.Store) error { _, err := s.Get(ctx, "dir", 0, -1); return err },
		"stat":     func(s backing.Store) error { _, err := s.Stat(ctx, "none"); return err },
		"bad name": func(s backing.Store) error { _, err := s.Stat(ctx, "../x"); return err },
		"remove":   func(s backing.Store) error { return s.Remove(ctx, "dir") },
		"rename":   func(s backing.Store) error { return s.Rename(ctx, "none", "other") },
		"make":     func(s backing.Store) error { return s.MakeDir(ctx, "file", backing.DirOptions{}) },
		"put below a file": func(s backing.Store) error {
			_, err := s.Put(ctx, "file/x", backing.NewBytes([]byte("x")), backing.PutOptions{})
			return err
		},
		"put below a pipe": func(s backing.Store) error {
			_, err := s.Put(ctx, "pipe/x", backing.NewBytes([]byte("x")), backing.PutOptions{})
			return err
		},
		"put on a directory": func(s backing.Store) error {
			_, err := s.Put(ctx, "dir", backing.NewBytes(make([]byte, 2<<20)), backing.PutOptions{})
			return err
		},
		"foreign": func(s backing.Store) error {
			_, err := s.Put(ctx, "file", backing.NewBytes([]byte("x")), backing.PutOptions{Keep: true})
			if !errors.Is(err, backing.ErrForeign) {
				t.Errorf("foreign: %v", err)
			}
			return err
		},
	} {
		got, want := call(s), call(direct)
		if want == nil || got == nil || got.Error() != want.Error() || bb.KindOf(got) != bb.KindOf(want) {
			t.Errorf("%s:\n%v\nwant\n%v", what, got, want)
		}
		var a, b *bb.Error
		if !errors.As(got, &a) || !errors.As(want, &b) || a.Op != b.Op || a.Path != b.Path || a.Remedy != b.Remedy {
			t.Errorf("%s: %+v, want %+v", what, a, b)
		}
	}
	if _, err := Open(ctx, s.w, User{uid, uid}, filepath.Join(dir, "nowhere"), options()); !errors.Is(err, bb.NotFound) || !strings.Contains(err.Error(), "create the directory") {
		t.Errorf("no root: %v", err)
	}
}

// A worker that was killed is replaced.
func TestWorkerKilled(t *testing.T) {
	uid := users()[0]
	s := open(t, workers(t, Options{}), uid, home(t, int(uid)))
	first := s.pid(t)
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another worker", func() bool {
		err := s.Check(t.Context())
		if err != nil && !errors.Is(err, bb.Unavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	if s.pid(t) == first {
		t.Error("the same process")
	}
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within two minutes", what)
		}
	}
}

// Many small files are on their way to a worker at a time, beside large ones, and each has its own bytes.
func TestManySmallAtOnce(t *testing.T) {
	uid := users()[0]
	s := open(t, workers(t, Options{}), uid, home(t, int(uid)))
	var puts sync.WaitGroup
	for i := range 3 * protocol.SmallSlots {
		puts.Go(func() {
			size := int64(i * protocol.SmallSize / (2 * protocol.SmallSlots)) // some are larger than a small slot
			name, want := fmt.Sprint("f", i), backingtest.Data(size, uint64(i))
			if _, err := s.Put(t.Context(), name, backing.NewBytes(want), backing.PutOptions{Last: func(context.Context) error { return nil }}); err != nil {
				t.Error(err)
				return
			}
			if got := content(t, s, name); !bytes.Equal(got, want) {
				t.Errorf("%s: %d other bytes, want %d", name, len(got), len(want))
			}
		})
	}
	puts.Wait()
}

func content(t *testing.T, s *Store, name string) []byte {
	r, err := s.Get(t.Context(), name, 0, -1)
	if err != nil {
		t.Error(err)
		return nil
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		t.Error(err)
	}
	return got
}

// A worker without work ends, and its store continues with another one.
func TestIdleWorkerEnds(t *testing.T) {
	uid := users()[0]
	w := workers(t, Options{Idle: time.Millisecond})
	s := open(t, w, uid, home(t, int(uid)))
	eventually(t, "no processes", func() bool { return len(w.Status()) == 0 })
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A worker that hangs is killed, and others do not wait for it. Its user has stopped it here, which
// the daemon cannot distinguish from a file system that does not answer.
func TestWorkerHangs(t *testing.T) {
	needRoot(t)
	w := workers(t, Options{Grace: 50 * time.Millisecond})
	s, other := open(t, w, alice, home(t, alice)), open(t, w, bob, home(t, bob))
	stopped := s.pid(t)
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is stopped", func() bool { return strings.HasPrefix(procStatus(t, stopped, "State"), "T") })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Check(ctx); err == nil {
		t.Fatal("a process that is stopped has answered")
	}
	if err := other.Check(t.Context()); err != nil {
		t.Errorf("another user: %v", err)
	}
	eventually(t, "the process is gone", func() bool { return errors.Is(syscall.Kill(stopped, 0), syscall.ESRCH) })
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("after it was replaced: %v", err)
	}
	eventually(t, "one worker was killed and replaced", func() bool { return w.Counts() == Counts{Restarts: 1, Kills: 1} })
}

// A directory that comes to lie at the root's path is reached, although the worker is confined
// to the former one.
func TestRootReplaced(t *testing.T) {
	uid := users()[0]
	dir := home(t, int(uid))
	s := open(t, workers(t, Options{}), uid, dir)
	put := func() {
		t.Helper()
		if _, err := s.Put(t.Context(), "f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
			t.Error(err)
		}
	}
	put()
	if err := errors.Join(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755), os.Chown(dir, int(uid), int(uid))); err != nil {
		t.Fatal(err)
	}
	put()
}

// A put that was cancelled is not carried out later. It returns when it has ended.
func TestCancelledPutEnds(t *testing.T) {
	uid := users()[0]
	s := open(t, workers(t, Options{}), uid, home(t, int(uid)))
	for i := range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
		_, err := s.Put(ctx, "f", backing.NewBytes([]byte("x")), backing.PutOptions{})
		cancel()
		if removed := os.Remove(filepath.Join(s.key.dir, "f")); err == nil && removed != nil {
			t.Fatal(removed)
		}
		if _, err := s.Stat(t.Context(), "f"); !errors.Is(err, bb.NotFound) {
			t.Fatalf("put %d came late: %v", i, err)
		}
	}
}

// More readers than slots get all their bytes, also if one does not read on.
func TestReadersWithoutSlots(t *testing.T) {
	uid := users()[0]
	s := open(t, workers(t, Options{}), uid, home(t, int(uid)))
	data := backingtest.Data(3<<20+5, 3)
	if _, err := s.Put(t.Context(), "f", backing.NewBytes(data), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	var readers []io.ReadCloser
	for range 2 * protocol.ReadSlots {
		r, err := s.Get(t.Context(), "f", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	for _, r := range slices.Backward(readers) {
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, data[1:]) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "all slots are back", func() bool {
		w, err := s.w.get(t.Context(), s.key)
		if err != nil {
			t.Fatal(err)
		}
		defer w.release()
		w.reads.mu.Lock()
		defer w.reads.mu.Unlock()
		return len(w.reads.free) == protocol.ReadSlots
	})
}

// A listing of many pages is whole, and one that is left gives its walk up.
func TestLongListing(t *testing.T) {
	uid := users()[0]
	dir := home(t, int(uid))
	s := open(t, workers(t, Options{}), uid, dir)
	const n = 3000
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file-%04d", i)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	if err := s.List(t.Context(), "", func(o backing.Object) error { seen[o.Name] = true; return nil }); err != nil || len(seen) != n {
		t.Errorf("%d of %d files, %v", len(seen), n, err)
	}
	enough := errors.New("enough")
	if err := s.List(t.Context(), "", func(backing.Object) error { return enough }); err != enough {
		t.Error(err)
	}
}
