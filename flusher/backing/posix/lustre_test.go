package posix

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/backingtest"
	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
	"forebay/internal/lustretest"
	"forebay/internal/powertest"
)

// asLustre makes a store treat the file system of a test as Lustre, regardless of statfs.
func asLustre(o Options) Options {
	o.identify = func(*os.File) (identity.Identity, error) { return identity.Identity{Kind: lustre.Magic}, nil }
	return o
}

func layout(t *testing.T, text string) lustre.Layout {
	t.Helper()
	l, err := lustre.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// onLustre is a Lustre and a store on it.
type onLustre struct {
	*lustretest.FS
	t    *testing.T
	opts Options
}

func mountLustre(t *testing.T, o lustretest.Options) *onLustre {
	t.Helper()
	return &onLustre{lustretest.Mount(t, t.TempDir(), o), t, asLustre(options())}
}

// targets are so many without a pool.
func targets(n int) lustretest.Options {
	return lustretest.Options{Targets: make([]lustretest.Target, n)}
}

func (l *onLustre) put(s *Store, name string, size int64) (backing.Object, error) {
	l.t.Helper()
	o, err := s.Put(l.t.Context(), name, backing.NewBytes(backingtest.Data(size, 1)), backing.PutOptions{})
	if err == nil {
		if info, statErr := os.Stat(filepath.Join(l.Dir, name)); statErr != nil || info.Size() != size {
			l.t.Fatal(info, statErr)
		}
	}
	return o, err
}

// has puts a file and compares its layout, as the file system has it and as the store returned it.
func (l *onLustre) has(s *Store, name string, size int64, want string) {
	l.t.Helper()
	o, err := l.put(s, name, size)
	if err != nil {
		l.t.Errorf("%s: %v", name, err)
		return
	}
	f, err := os.Open(filepath.Join(l.Dir, name))
	if err != nil {
		l.t.Fatal(err)
	}
	defer f.Close()
	if got := lustre.Of(f).String(); got != want || o.Layout != want {
		l.t.Errorf("%s has the layout %q, and %q was returned, want %q", name, got, o.Layout, want)
	}
}

// setDefault does the work of lfs setstripe for a directory.
func (l *onLustre) setDefault(dir, text string) {
	l.t.Helper()
	d, err := os.Open(filepath.Join(l.Dir, dir))
	if err != nil {
		l.t.Fatal(err)
	}
	defer d.Close()
	if err := layout(l.t, text).Set(d); err != nil {
		l.t.Fatal(err)
	}
}

// Files of at least 1 MiB get the layout of the table, progressive ones and those of pools too, others that of their
// directory. It returns the layout of each.
func TestLayouts(t *testing.T) {
	l := mountLustre(t, lustretest.Options{Targets: []lustretest.Target{{}, {}, {Pool: "flash"}, {Pool: "flash"}, {}, {}}})
	l.opts.Layouts = []lustre.Rule{
		{Layout: layout(t, "-c 1")},
		{MinSize: 2 << 20, Layout: layout(t, "-c -1 -S 4M")},
		{MinSize: 4 << 20, Layout: layout(t, "-E 1M -c 1 -S 1M -E 4M -c 2 -p flash -E -1 -c 4 -S 2M -p none")},
	}
	s := open(t, l.Dir, l.opts)
	l.has(s, "empty", 0, "-c 1 -S 1M")
	l.has(s, "small", 1<<20-1, "-c 1 -S 1M")
	l.has(s, "medium", 1<<20, "-c 1 -S 1M")
	l.has(s, "d/large", 3<<20, "-c 6 -S 4M")
	l.has(s, "d/progressive", 5<<20, "-E 1M -c 1 -S 1M -E 4M -c 2 -S 1M -p flash -E -1 -c 4 -S 2M -p none")
	if calls := l.during(func() { l.has(s, "small", 1<<20-1, "-c 1 -S 1M") }); slices.Contains(calls, "setxattr 0") {
		t.Error("a layout was set of a small file")
	}
	if calls := l.during(func() { l.has(s, "medium", 1<<20, "-c 1 -S 1M") }); !slices.Contains(calls, "setxattr 0") {
		t.Error("no layout was set of a file of 1 MiB")
	}

	l.Inject(powertest.Fault{Call: "setxattr 0", Errno: syscall.EDQUOT})
	l.has(s, "refused", 3<<20, "-c 1 -S 1M") // slower, but stored
	l.Calls()

	elsewhere := l.opts
	elsewhere.identify = nil
	if o, err := l.put(open(t, l.Dir, elsewhere), "elsewhere", 3<<20); err != nil || o.Layout != "" {
		t.Errorf("on a file system that is not Lustre: %+v, %v", o, err)
	}
}

// during returns the calls to the file system that fn makes.
func (l *onLustre) during(fn func()) []string {
	l.Inject(powertest.Fault{})
	fn()
	return l.Calls()
}

// Unless the buffer has another layout, a directory's own is kept, in directories below it too.
func TestDirectoryLayoutIsKept(t *testing.T) {
	const progressive = "-E 2M -c 1 -S 1M -p flash -E -1 -c 3 -S 1M -p flash"
	l := mountLustre(t, lustretest.Options{Targets: []lustretest.Target{{Pool: "flash"}, {Pool: "flash"}, {Pool: "flash"}, {}}})
	l.setDefault(".", progressive)
	s := open(t, l.Dir, l.opts)
	l.has(s, "below/it/large", 3<<20, progressive)
	l.has(s, "small", 100, progressive)
	l.opts.Layouts = []lustre.Rule{{Layout: layout(t, "-c 2")}}
	s = open(t, l.Dir, l.opts)
	l.has(s, "asked", 3<<20, "-c 2 -S 1M")
	l.has(s, "below/it/small", 100, progressive)
}

// A layout with data on the metadata server is that of small files, too, which have all of their bytes there. Bytes
// that the server does not allow there are on other targets.
func TestLayoutOnMDT(t *testing.T) {
	const asked = "-E 128K -L mdt -E 1M -c 1 -S 1M -E -1 -c 2 -S 1M"
	for _, c := range []struct {
		allowed int64
		want    string
		onMDT   int64 // bytes of a file of 2 MiB
		told    string
	}{
		{0, asked, 128 << 10, ""},
		{64 << 10, "-E 64K -L mdt -E 1M -c 1 -S 1M -E -1 -c 2 -S 1M", 64 << 10, "files have 64K there"},
		{lustretest.NoDoM, "-E 1M -c 1 -S 1M -E -1 -c 2 -S 1M", 0, "files have none there"},
	} {
		t.Run(fmt.Sprint(c.allowed), func(t *testing.T) {
			l := mountLustre(t, lustretest.Options{Targets: make([]lustretest.Target, 3), DoM: c.allowed})
			var log bytes.Buffer
			l.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
			l.opts.Layouts = []lustre.Rule{{Layout: layout(t, asked)}}
			s := open(t, l.Dir, l.opts)
			l.has(s, "large", 2<<20, c.want)
			if got := l.UsedOf(lustretest.MDT); got != c.onMDT {
				t.Errorf("%d bytes are on the metadata server, want %d", got, c.onMDT)
			}
			l.has(s, "small", 100, c.want)
			if got := l.UsedOf(lustretest.MDT); c.onMDT > 0 && got != c.onMDT+64<<10 {
				t.Errorf("with a small file, %d bytes are on the metadata server", got)
			}
			if n := strings.Count(log.String(), "\n"); c.told == "" && n > 0 || c.told != "" && (n != 1 || !strings.Contains(log.String(), c.told)) {
				t.Errorf("%q is not told once in\n%s", c.told, log.String())
			}
		})
	}
}

// A directory's layout with data on the metadata server is kept, and no attribute is set. When that server has no room for
// bytes, the next attempt puts them elsewhere.
func TestFullMDT(t *testing.T) {
	const own = "-E 64K -L mdt -E -1 -c 1 -S 1M"
	l := mountLustre(t, targets(4))
	l.setDefault(".", own)
	l.opts.room = func(*os.Root) (int64, error) { return 1 << 30, nil }
	s := open(t, l.Dir, l.opts)
	if calls := l.during(func() { l.has(s, "d/small", 100, own) }); slices.Contains(calls, "setxattr 0") {
		t.Error("a layout was set of a file whose directory has one")
	}
	l.Fill(lustretest.MDT)
	if _, err := l.put(s, "full", 100); bb.KindOf(err) != bb.NoSpace || !backing.Passing(err) {
		t.Errorf("%v, of kind %v", err, bb.KindOf(err))
	}
	l.has(s, "full", 100, "-c 2 -S 1M")
}

// Parts of a layout that files do not get are logged once.
func TestTooManyTargetsToldOnce(t *testing.T) {
	l := mountLustre(t, targets(2))
	var log bytes.Buffer
	var mu sync.Mutex
	l.opts.Logger = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil))
	l.opts.Layouts = []lustre.Rule{{Layout: layout(t, "-c 5")}, {MinSize: 2 << 20, Layout: layout(t, "-c 1 -p none2")}, {MinSize: 4 << 20, Layout: layout(t, "-c -1")}}
	s := open(t, l.Dir, l.opts)
	for i := range 3 {
		l.has(s, fmt.Sprint("wide", i), 1<<20, "-c 2 -S 1M")
		l.has(s, fmt.Sprint("pool", i), 2<<20, "-c 1 -S 1M")
		l.has(s, fmt.Sprint("all", i), 4<<20, "-c 2 -S 1M")
	}
	for _, want := range []string{"requests 5 targets, and files are put on 2", "requests pool none2"} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("%q is in the log %d times:\n%s", want, n, log.String())
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines in the log:\n%s", n, log.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A write that meets a full target, on a Lustre that has room, fails with that, and the next
// attempts request twice as many targets each time, of the layout that the file had, until one
// succeeds. A Lustre without room is just full.
func TestFullTarget(t *testing.T) {
	l := mountLustre(t, lustretest.Options{Targets: slices.Repeat([]lustretest.Target{{Pool: "flash"}}, 16)})
	l.opts.Layouts = []lustre.Rule{{Layout: layout(t, "-E 512K -c 1 -S 64K -p flash -E -1 -c 3")}}
	free := int64(1 << 30)
	l.opts.room = func(*os.Root) (int64, error) { return free, nil }
	s := open(t, l.Dir, l.opts)
	fails := func(name string, size int64, full bool) {
		t.Helper()
		l.Inject(powertest.Fault{Call: "write 0", Errno: syscall.ENOSPC})
		_, err := l.put(s, name, size)
		l.Calls()
		if bb.KindOf(err) != bb.NoSpace || !backing.Passing(err) || strings.Contains(err.Error(), "targets is full") != full {
			t.Errorf("%s: %v, of kind %v", name, err, bb.KindOf(err))
		}
	}
	fails("large", 1<<20, true)
	fails("large", 1<<20, true)
	l.has(s, "large", 1<<20, "-E 512K -c 4 -S 64K -p flash -E -1 -c 12 -S 64K -p flash")
	l.has(s, "large", 1<<20, "-E 512K -c 1 -S 64K -p flash -E -1 -c 3 -S 64K -p flash") // the next content begins anew
	fails("small", 100, true)
	l.has(s, "small", 100, "-c 2 -S 1M")
	free = 150
	fails("full", 100, false)
	l.has(s, "full", 100, "-c 1 -S 1M")
}

// The same with full targets. Each file is stored after a few attempts, with any of eight targets
// full.
func TestFilesAvoidFullTarget(t *testing.T) {
	l := mountLustre(t, targets(8))
	s := open(t, l.Dir, l.opts)
	l.Fill(3)
	failed := 0
	for i := range 16 {
		name := fmt.Sprint("f", i)
		_, err := l.put(s, name, 2<<20)
		for ; err != nil; _, err = l.put(s, name, 2<<20) {
			if failed++; bb.KindOf(err) != bb.NoSpace || !strings.Contains(err.Error(), "targets is full") || failed > 32 {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	if failed == 0 {
		t.Error("no file met the full target")
	}
}

// Workers write whole stripes, of the file's layout, from any source.
func TestPartsAreStripes(t *testing.T) {
	const stripe = 192 << 10
	l := mountLustre(t, targets(4))
	l.setDefault(".", "-c 4 -S 192K")
	l.opts.PartSize = 1 << 20
	s := open(t, l.Dir, l.opts)
	src := &parts{Source: backing.NewBytes(backingtest.Data(3<<20+5, 1))}
	if _, err := s.Put(t.Context(), "f", src, backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(src.offs) < 4 {
		t.Errorf("parts at %d: the file was not written in several", src.offs)
	}
	for _, off := range src.offs {
		if off%stripe != 0 {
			t.Errorf("a part begins at %d, within a stripe", off)
		}
	}
}

// parts is a source that notes where parts begin.
type parts struct {
	backing.Source
	mu   sync.Mutex
	offs []int64
}

func (p *parts) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offs = append(p.offs, off)
	return p.Source.Slices(dst, off, n)
}

// While a target does not answer, a flush waits. A flush of an evicted client fails as unavailable
// and is tried again. Nothing is left of it, and the next one succeeds.
func TestSilentTarget(t *testing.T) {
	l := mountLustre(t, targets(2))
	s := open(t, l.Dir, l.opts)
	for what, end := range map[string]func(int){"answers": l.Answer, "evicts": l.Evict} {
		l.Silence(0)
		l.Silence(1)
		ended := make(chan error, 1)
		go func() {
			_, err := s.Put(t.Context(), what, backing.NewBytes(backingtest.Data(100, 1)), backing.PutOptions{})
			ended <- err
		}()
		l.AwaitCalls(1)
		if got := lustre.SilentTargets([]byte(l.CheckServers())); !slices.Equal(got, []string{"scratch-OST0000", "scratch-OST0001"}) {
			t.Errorf("lfs check servers names %q", got)
		}
		select {
		case err := <-ended:
			t.Fatalf("the flush ended while its target did not answer: %v", err)
		default:
		}
		end(0)
		end(1)
		err := <-ended
		if what == "answers" && err != nil || what == "evicts" && (bb.KindOf(err) != bb.Unavailable || !backing.Passing(err)) {
			t.Errorf("a target that %s: %v", what, err)
		}
		l.has(s, what, 100, "-c 1 -S 1M")
	}
	if entries, err := os.ReadDir(l.Dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Each errno with which Lustre's clients fail passes, from each step of a flush that it may come from. A write that is
// cut short continues.
func TestLustreErrnosPass(t *testing.T) {
	l := mountLustre(t, targets(2))
	l.opts.Layouts = []lustre.Rule{{Layout: layout(t, "-c 2")}}
	s := open(t, l.Dir, l.opts)
	for _, errno := range []syscall.Errno{syscall.ENODEV, syscall.EIO, syscall.ESHUTDOWN, syscall.ENOTCONN, syscall.ESTALE, syscall.EAGAIN, syscall.EFAULT} {
		for _, call := range []string{"create 0", "write 0", "fsync 0", "rename 0"} {
			l.Inject(powertest.Fault{Call: call, Errno: errno})
			_, err := l.put(s, "f", 1<<20)
			calls := l.Calls()
			if !slices.Contains(calls, call) {
				t.Fatalf("%s: not among %q", call, calls)
			}
			again := errno == syscall.ESTALE && err == nil // the kernel looks the path up anew, and tries again
			if !again && (bb.KindOf(err) != bb.Unavailable || !backing.Passing(err)) {
				t.Errorf("%v of %s: %v, of kind %v", errno, call, err, bb.KindOf(err))
			}
			if _, err := l.put(s, "f", 1<<20); err != nil {
				t.Errorf("after %v of %s: %v", errno, call, err)
			}
		}
	}
	for _, fault := range []powertest.Fault{{Call: "write 0", Errno: syscall.EINTR}, {Call: "write 0", Short: true}} {
		l.Inject(fault)
		_, err := l.put(s, "g", 1<<20)
		l.Calls()
		if err != nil {
			t.Errorf("%+v: %v", fault, err)
		}
	}
}

// A file that is flushed below a directory with a project counts against its quota, in directories that the flush
// makes too, and an error of a used up quota names the project.
func TestProjects(t *testing.T) {
	l := mountLustre(t, targets(2))
	for _, dir := range []string{"p", "q"} {
		if err := os.Mkdir(filepath.Join(l.Dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l.SetProject("p", 4711)
	l.SetProject("q", 4712)
	s := open(t, l.Dir, l.opts)
	l.has(s, "p/a/b/f", 1<<20, "-c 1 -S 1M")
	if n := l.Used(lustretest.Project, 4711); n != 1<<20 {
		t.Errorf("%d bytes count against the project", n)
	}
	l.Limit(lustretest.Project, 4711, 1<<20)
	_, err := l.put(s, "p/a/b/g", 100)
	if bb.KindOf(err) != bb.NoSpace || !backing.Passing(err) || !strings.Contains(err.Error(), "project 4711") || !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("%v, of kind %v", err, bb.KindOf(err))
	}
	l.Limit(lustretest.Project, 4711, 1<<30)
	l.has(s, "p/a/b/g", 100, "-c 1 -S 1M")
	// A file is not moved into another project. The error passes once the directories have the same one.
	if err := s.Rename(t.Context(), "p/a/b/g", "q/g"); bb.KindOf(err) != bb.Unavailable || !strings.Contains(err.Error(), "lfs project") {
		t.Errorf("%v, of kind %v", err, bb.KindOf(err))
	}
	l.SetProject("q", 4711)
	if err := s.Rename(t.Context(), "p/a/b/g", "q/g"); err != nil {
		t.Error(err)
	}
}

// A user's quota and a group's are named likewise.
func TestQuotaNamesOwners(t *testing.T) {
	for _, c := range []struct {
		kind lustretest.Kind
		id   uint32
	}{{lustretest.User, 12}, {lustretest.Group, 34}} {
		l := mountLustre(t, targets(1))
		l.Limit(c.kind, c.id, 0)
		s := open(t, l.Dir, l.opts)
		f, err := s.Begin(t.Context(), "f", 1, backing.PutOptions{Attrs: faultAttrs})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Abort()
		if err := os.Chown(filepath.Join(l.Dir, f.temp), 12, 34); err != nil {
			t.Fatal(err)
		}
		err = f.WriteAt([]byte("x"), 0)
		if bb.KindOf(err) != bb.NoSpace || !strings.Contains(err.Error(), "quota is used up, of user 12, group 34") || !backing.Passing(err) {
			t.Errorf("%s: %v, of kind %v", c.kind, err, bb.KindOf(err))
		}
	}
}
