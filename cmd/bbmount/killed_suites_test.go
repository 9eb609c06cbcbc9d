//go:build suites

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// `make soak-mount` runs these. docs/soak.md has the results.

// suite is work that fails no check on a local file system.
type suite struct {
	name string
	run  func(t *testing.T, at place)
	root bool // alone may run it
}

var suites = []suite{
	{"fsx", fsx, false},
	{"fio", fio, false},
	{"dbench", dbench, false},
	{"rsync", rsync, false},
	{"tar", tarTree, false},
	{"git", gitWork, false},
	{"sqlite", sqlite, false},
	{"h5py", h5py, false},
	{"build", build, true},          // Go's caches are root's
	{"limit", limited, true},        // control groups
	{"posixtest", posixApart, true}, // changes of owners
	{"stress-ng", stress, true},     // some stressors
	{"pjdfstest", pjdfstest, true},
}

// TestSuitesKilled runs each suite on the local file system, and on a mount whose daemon and namespace's server are killed.
func TestSuitesKilled(t *testing.T) {
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			runRound(t, s, local(t), "local")
			m, server := newSoaked(t)
			stop, kills := suffer(t, m, server)
			defer stop()
			for i, ran := 1, true; ran && kills() < 2 && !t.Failed(); i++ { // a short suite ends before the first one
				ran = runRound(t, s, place{dir: m.dir}, fmt.Sprint("mount", i))
			}
		})
	}
}

// TestEverything runs all suites at once for FOREBAY_MINUTES: by root, and by two users, on one mount, and by the users on mounts of their
// own, while the daemon and the namespace's server are killed.
func TestEverything(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("FOREBAY_MINUTES"), 64)
	if err != nil {
		t.Fatalf("FOREBAY_MINUTES: %v", err)
	}
	m, server := newSoaked(t)
	ends := time.Now().Add(time.Duration(minutes * float64(time.Minute)))
	places := map[string]place{"root": {m.dir, 0}}
	for i, user := range []int{65534, 2} { // nobody and bin
		name := []string{"nobody", "bin"}[i]
		check(t, os.Mkdir(filepath.Join(m.dir, name), 0o700))
		check(t, os.Chown(filepath.Join(m.dir, name), user, user))
		places[name] = place{filepath.Join(m.dir, name), user}
		places[name+"'s mount"] = m.own(t, user).in(name)
	}
	var rounds sync.Map // of "place suite": *atomic.Int64
	stop, _ := suffer(t, m, server)
	var all sync.WaitGroup
	for who, at := range places {
		for _, s := range suites {
			if s.root && at.user != 0 {
				continue
			}
			done := new(atomic.Int64)
			rounds.Store(who+" "+s.name, done)
			all.Go(func() {
				for ran := true; ran && !t.Failed() && time.Now().Before(ends); {
					ran = runRound(t, s, at, fmt.Sprintf("%s of %s %d", s.name, who, done.Add(1)))
				}
			})
		}
	}
	all.Wait()
	stop()
	rounds.Range(func(what, done any) bool {
		t.Logf("%v: %d", what, done.(*atomic.Int64).Load())
		return true
	})
}

// runRound runs a suite in a directory of its own, which goes afterwards. It reports whether the flag -run lets it run.
func runRound(t *testing.T, s suite, at place, name string) (ran bool) {
	t.Run(name, func(t *testing.T) {
		ran = true
		dir := strings.NewReplacer(" ", "-", "'", "").Replace(name)
		at.run(t, "mkdir", dir)
		s.run(t, at.in(dir))
		if !t.Failed() {
			at.run(t, "rm", "-r", dir)
		}
	})
	return ran
}

// newSoaked mounts a buffer whose files are flushed and evicted, of a daemon beside a namespace server of its own.
func newSoaked(t *testing.T) (*mounted, *nsServer) {
	t.Helper()
	server := newNSServer(t)
	d := bbdtest.New(t)
	check(t, os.Chmod(d.Dir, 0o711)) // users reach the socket
	d.Config = fmt.Sprintf("listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 512MiB, region_size: 64MiB}\nflush: {dirty_age: 1s}\nnats: {url: %q}\n", "nats://"+server.addr)
	m := newBufferOf(t, d, admin.BufferSpec{Name: "b", Mode: 0o777, Backing: "file://" + t.TempDir()})
	check(t, os.Chmod(d.Memory, 0o711)) // users map regions
	m.mount(t)
	return m, server
}

// own mounts the buffer once more, by a user for oneself.
func (m *mounted) own(t *testing.T, user int) place {
	t.Helper()
	const device = "/dev/fuse"
	old, err := os.Stat(device)
	check(t, err)
	check(t, os.Chmod(device, 0o666)) // as udev makes it
	t.Cleanup(func() { os.Chmod(device, old.Mode()) })
	own := *m
	own.user, own.dir = user, place{user: user}.apart(t).dir
	own.mount(t)
	if _, err := os.Stat(own.dir); err == nil {
		t.Error("root enters a user's own mount")
	}
	return place{own.dir, user}
}

const (
	killEvery   = 3 * time.Second // from a start to the next kill
	serverEvery = 4               // kills of the daemon to one of the server, alone and together in turn

	// For half a minute after a start, the daemon keeps the bytes that its last lives have left uncommitted. Where no life
	// lasted longer, they would fill its memory, and programs would wait for room.
	longEvery, longLife = 10, 40 * time.Second
)

// suffer kills the daemon, and at times the namespace's server, until the first returned function is called. The
// second one returns how often it has.
func suffer(t *testing.T, m *mounted, server *nsServer) (stop func(), killed func() int64) {
	asked, ended := make(chan struct{}), make(chan struct{})
	kills, restarts := 0, 0
	var begun atomic.Int64
	go func() {
		defer close(ended)
		for {
			life := killEvery
			if kills%longEvery == longEvery-1 {
				life = longLife
			}
			select {
			case <-asked:
				return
			case <-time.After(life):
			}
			begun.Add(1)
			if kills++; kills%serverEvery == 0 {
				restarts++
				server.kill()
			}
			if kills%(2*serverEvery) != 0 {
				m.Kill()
			} else {
				time.Sleep(time.Second) // a daemon without its server
			}
			if err := server.start(); err != nil {
				t.Error(err)
			}
			if kills%(2*serverEvery) == 0 {
				continue
			}
			if err := m.TryStart(); err != nil {
				t.Error(err)
				unix.Unmount(m.dir, unix.MNT_FORCE) // else programs wait for ever
				return
			}
		}
	}()
	return func() {
		close(asked)
		<-ended
		t.Logf("%d kills, %d of them of the namespace's server", kills, restarts)
	}, begun.Load
}

// nsServer is a server of a namespace, which is a process.
type nsServer struct {
	binary, folder, addr string
	cmd                  *exec.Cmd
	log                  bytes.Buffer
}

// newNSServer starts a server.
func newNSServer(t *testing.T) *nsServer {
	t.Helper()
	s := &nsServer{binary: filepath.Join(t.TempDir(), "nats-server"), folder: t.TempDir(), addr: bbdtest.FreePort(t, "127.0.0.1")}
	if out, err := exec.Command("go", "build", "-o", s.binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v: %s", err, out)
	}
	t.Cleanup(s.kill)
	check(t, s.start())
	return s
}

// start starts the server, if it does not run, and waits until it takes connections.
func (s *nsServer) start() error {
	if s.cmd != nil {
		return nil
	}
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return err
	}
	s.cmd = exec.Command(s.binary, "-a", host, "-p", port, "-js", "-sd", s.folder)
	s.cmd.Stderr = &s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			return conn.Close()
		}
		if time.Since(began) > patience {
			return err
		}
	}
}

func (s *nsServer) kill() {
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// tarTree unpacks a tree, compares, copies, moves and removes it.
func tarTree(t *testing.T, at place) {
	source := at.tree(t, 8, 10)
	source.run(t, "sh", "-c", `tar -cf - . | tar -xpf - -C "$1" && diff -r . "$1"`, "sh", at.dir)
	at.run(t, "sh", "-c", "mkdir x && mv d? x/ && cp -a x z && mv x y && diff -r y z && rm -r y && ls -R . >/dev/null")
}

// gitWork clones a repository, works there, and clones that.
func gitWork(t *testing.T, at place) {
	source, clone := at.tree(t, 5, 8), at.in("clone")
	git := func(at place, args ...string) string {
		return at.run(t, append([]string{"git", "-c", "init.defaultBranch=main", "-c", "core.fsync=all", "-c", "safe.directory=*"}, args...)...)
	}
	git(source, "init", "-q")
	git(source, "add", "-A")
	git(source, "commit", "-qm", "one")
	git(at, "clone", "-q", "--no-hardlinks", source.dir, "clone")
	if text := git(clone, "status", "--porcelain"); text != "" {
		t.Errorf("git status of a fresh clone:\n%s", text)
	}
	clone.run(t, "sh", "-c", "echo new >d0/new")
	git(clone, "checkout", "-qb", "branch")
	git(clone, "add", "-A")
	git(clone, "commit", "-qm", "two")
	git(clone, "checkout", "-q", "main")
	git(clone, "merge", "-q", "branch")
	git(clone, "gc", "-q")
	git(clone, "fsck", "--full", "--strict")
	git(at, "clone", "-q", "--no-hardlinks", "clone", "again")
	at.run(t, "diff", "-r", "-x", ".git", "clone", "again")
}

// sqlite keeps databases in both modes of the journal.
func sqlite(t *testing.T, at place) {
	for _, mode := range []string{"delete", "wal"} {
		at.run(t, "sqlite3", "-bail", mode, "PRAGMA journal_mode="+mode+"; CREATE TABLE t (k, v);")
		for i := range 12 {
			at.run(t, "sqlite3", "-bail", mode, fmt.Sprintf("BEGIN; INSERT INTO t SELECT %d, hex(randomblob(2000)) FROM (VALUES (1),(2),(3)); COMMIT;", i))
		}
		if got := at.run(t, "sqlite3", mode, "PRAGMA integrity_check; SELECT count(*), count(DISTINCT k) FROM t;"); got != "ok\n36|12\n" {
			t.Errorf("%s: %s", mode, got)
		}
	}
}

// h5py writes, extends and reads data sets of HDF5, by the Python of the distribution.
func h5py(t *testing.T, at place) {
	script, err := os.ReadFile("testdata/h5.py")
	check(t, err)
	at.run(t, "/usr/bin/python3", "-c", string(script), filepath.Join(at.dir, "data.h5"))
}

// build builds a program of this project from sources on the mount, and starts it there.
func build(t *testing.T, at place) {
	root := place{dir: absolute(t, "../..")}
	root.run(t, "sh", "-c", `git -c safe.directory='*' archive HEAD | tar -xf - -C "$1"`, "sh", at.dir)
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE").Output()
	check(t, err)
	dirs := strings.Fields(string(caches))
	at.run(t, "sh", "-c", `mkdir work && GOTMPDIR=$PWD/work GOCACHE="$1" GOMODCACHE="$2" GOFLAGS=-trimpath go build -buildvcs=false -o prog ./cmd/bbmount && ./prog --version`, "sh", dirs[0], dirs[1])
}

// limited runs a program that writes and reads more than its memory may be.
func limited(t *testing.T, at place) {
	job := newMemoryGroup(t, limitOfJob)
	job.runBeyond(t, filepath.Join(at.dir, "f"))
}

// posixApart runs the suite of go-fuse in a process of its own. In this one, a mapping whose page is waited for would stop
// the goroutine that starts the daemon.
func posixApart(t *testing.T, at place) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPosix$")
	cmd.Env = append(os.Environ(), posixEnv+"="+at.dir)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
