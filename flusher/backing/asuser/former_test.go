package asuser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser/former"
	"forebay/flusher/backing/backingtest"
	"forebay/internal/bb"
	"forebay/internal/powertest"
)

// lateDaemon makes this binary a daemon that puts a file and is killed: its workers' directory,
// the uid and the root.
const lateDaemon = "FOREBAY_TEST_LATE_DAEMON"

// putUntilKilled prints the process id of a worker, and has it put a file.
func putUntilKilled(at string) error {
	var dir, root string
	var uid uint32
	if _, err := fmt.Sscan(at, &dir, &uid, &root); err != nil {
		return err
	}
	ctx := context.Background()
	w, err := New(Options{Dir: dir})
	if err != nil {
		return err
	}
	s, err := Open(ctx, w, User{uid, uid}, root, options())
	if err != nil {
		return err
	}
	one, err := w.get(ctx, s.key)
	if err != nil {
		return err
	}
	fmt.Println(one.cmd.Process.Pid)
	_, err = s.Put(ctx, "d/f", backing.NewBytes([]byte("older")), backing.PutOptions{})
	return fmt.Errorf("the put ended: %w", err)
}

// mountOf mounts a file system whose calls can be held, for a user.
func mountOf(t *testing.T, uid int) *powertest.FS {
	t.Helper()
	fs := powertest.Mount(t, home(t, uid))
	if err := os.Chown(fs.Dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	return fs
}

// ended reports whether a process has done all that it ever does. None of its threads is left, but
// for one without a waiting caller.
func ended(pid int) bool {
	tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err != nil || len(tasks) < 2 && strings.Contains(string(b), "State:\tZ")
}

// A worker is in a rename when its daemon is killed. The next daemon's file is newer, and stays,
// although the file system was mounted again meanwhile, so that no lock of the kernel keeps the order. (The rename has its directory locked, but not the root, which is mounted on.)
func TestLateWorker(t *testing.T) {
	needRoot(t)
	fs, dir := mountOf(t, alice), t.TempDir()
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	reached := fs.Inject(powertest.Fault{Call: "rename 0", Hold: hold})

	daemon := exec.Command(os.Args[0])
	daemon.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s", lateDaemon, dir, alice, fs.Dir))
	daemon.Stderr = os.Stderr
	out, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscan(line, &pid); err != nil {
		t.Fatal(err)
	}
	<-reached
	daemon.Process.Kill()
	daemon.Wait() // reports that it was killed
	if ended(pid) {
		t.Fatal("the worker has ended in a rename that is held")
	}
	fs.Remount()

	w := workers(t, Options{Dir: dir})
	if err := open(t, w, bob, home(t, bob)).Check(t.Context()); err != nil {
		t.Errorf("another user: %v", err)
	}
	k, put := key{alice, alice, fs.Dir}, make(chan error, 1)
	go func() {
		for {
			s, err := Open(t.Context(), w, User{alice, alice}, fs.Dir, options())
			if err == nil {
				_, err = s.Put(t.Context(), "d/f", backing.NewBytes([]byte("newer")), backing.PutOptions{})
			}
			if !errors.Is(err, bb.Unavailable) {
				put <- err
				return
			}
		}
	}()
	eventually(t, "the put waits or has ended", func() bool {
		w.mu.Lock()
		p := w.pools[k]
		w.mu.Unlock()
		if p == nil {
			return len(put) > 0
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(put) > 0 || p.starting != nil && p.current == nil
	})
	early := len(put) > 0
	release()
	eventually(t, "the late worker is gone", func() bool { return ended(pid) })
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(fs.Dir, "d/f")); err != nil || string(b) != "newer" {
		t.Errorf("the file holds %q (%v); it was put before the late worker's end: %v", b, err, early)
	}
}

// A call that waits for a worker of before fails with its name. Other users and stores do not wait.
func TestFormerWorkers(t *testing.T) {
	uid := users()[len(users())-1]
	root := home(t, int(uid))
	in := func(name string) string {
		dir := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chown(dir, int(uid), int(uid))); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	store := in("store")
	before, err := former.Find(filepath.Join(t.TempDir(), "held"))
	if err != nil {
		t.Fatal(err)
	}
	held, err := before.Hold(uid, store)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.WriteFile(filepath.Join(before.Dir, "of a worker that has ended"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := workers(t, Options{Dir: before.Dir})
	w.former.Within = 0
	for dir, waits := range map[string]bool{store: true, in("store/below"): true, root: true, in("store2"): false} {
		_, err := Open(t.Context(), w, User{uid, uid}, dir, options())
		switch {
		case !waits && err != nil:
			t.Errorf("%s: %v", dir, err)
		case waits && (!errors.Is(err, bb.Unavailable) || !strings.Contains(err.Error(), fmt.Sprintf("uid %d for %s,", uid, store))):
			t.Errorf("%s: %v", dir, err)
		}
	}
	if os.Geteuid() == 0 {
		open(t, w, alice, home(t, alice))
	}
	held.Close()
	open(t, w, uid, store)
	if files, err := os.ReadDir(before.Dir); err != nil || len(files) != len(w.Status()) {
		t.Errorf("%d files are held (%v), of %d workers", len(files), err, len(w.Status()))
	}
}

// A daemon that stops does not wait for a worker of an earlier life.
func TestCloseWhileFormerHangs(t *testing.T) {
	uid := users()[0]
	before, err := former.Find(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store := home(t, int(uid))
	held, err := before.Hold(uid, store)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	w := workers(t, Options{Dir: before.Dir})
	w.former.Within = backingtest.WaitTime
	opened := make(chan error, 1)
	go func() {
		_, err := Open(t.Context(), w, User{uid, uid}, store, options())
		opened <- err
	}()
	eventually(t, "a worker is to be started", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.pools) > 0
	})
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := <-opened; !errors.Is(err, bb.Unavailable) || !strings.Contains(err.Error(), "stops") {
		t.Error(err)
	}
}

// A worker is killed while it renames a file. The rename fails when it cannot be carried out any
// more. A second try is not overtaken. The store continues meanwhile.
func TestChangeOfKilledWorker(t *testing.T) {
	needRoot(t)
	fs := mountOf(t, alice)
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	w := workers(t, Options{Dir: t.TempDir()})
	s := open(t, w, alice, fs.Dir)
	if _, err := s.Put(t.Context(), "d/f", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	one, err := w.get(t.Context(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	defer one.release()
	reached, renamed := fs.Inject(powertest.Fault{Call: "rename 0", Hold: hold}), make(chan error, 1)
	go func() { renamed <- s.Rename(t.Context(), "d/f", "d/g") }()
	<-reached
	one.kill("a test")
	if _, err := s.Put(t.Context(), "h", backing.NewBytes([]byte("x")), backing.PutOptions{}); err != nil {
		t.Errorf("another worker: %v", err)
	}
	select {
	case err := <-renamed:
		t.Errorf("the rename was over before its worker: %v", err)
		release()
	default:
		release()
		if err := <-renamed; !errors.Is(err, bb.Unavailable) || !ended(one.cmd.Process.Pid) {
			t.Errorf("%v, and the process has ended: %v", err, ended(one.cmd.Process.Pid))
		}
	}
}
