package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/internal/bbdtest"
	"forebay/internal/durabletest"
)

// The buffer of an unprivileged user is flushed, restored, and staged in and out by store workers.
// They are victims of their own. One is killed, or stopped as if its file system hung, and the
// daemon is killed then, or soon afterwards.

const (
	userClients = 5
	userKills   = 12 // or FOREBAY_KILLS
)

// TestDaemonKilledWithUsers is TestDaemonKilled of a user's buffer, whose store workers are killed,
// too.
func TestDaemonKilledWithUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	kills := userKills
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		kills = n
	}
	seed := uint64(0)
	if n, err := strconv.ParseUint(os.Getenv("FOREBAY_SEED"), 10, 64); err == nil {
		seed = n
	}
	for done := 0; done < kills; done += crashKills { // a history's cost to judge grows with its square
		t.Run(fmt.Sprintf("from %d", done), func(t *testing.T) { daemonKilledWithUsers(t, seed+uint64(done), min(crashKills, kills-done)) })
	}
}

func daemonKilledWithUsers(t *testing.T, seed uint64, kills int) {
	t.Helper()
	u := startForUsers(t, fmt.Sprintf("listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: %s, region_size: 64MiB}\n", crashMemory))
	r := newRounds(t, u.d)
	r.root = u.dir("store", aliceUID, 0o700)
	r.dial = func(t *testing.T) *client.Client { t.Helper(); return dialAs(t, u.d, aliceUID) }
	crashers := make([]*crasher, userClients)
	for i := range crashers {
		crashers[i] = newCrasher(t, i, r.past)
		crashers[i].rng = rand.New(rand.NewPCG(uint64(i), seed))
		r.workers = append(r.workers, crashers[i])
	}
	r.stages(u.dir("out", aliceUID, 0o700), aliceUID, rand.New(rand.NewPCG(5, seed)))
	in := &inStager{crasher: newCrasher(t, userClients, r.past), from: u.dir("in", aliceUID, 0o700), ends: &r.stageEnds}
	in.rng = rand.New(rand.NewPCG(userClients, seed))
	r.workers = append(r.workers, in)
	r.make(t, admin.BufferSpec{Backing: backingURL(r.root)}, append(crashers, in.crasher))

	rng, victims := rand.New(rand.NewPCG(1, seed)), 0
	for kill := range kills {
		r.work(t, func() {
			if kill%4 == 0 { // a stage is a job, of which a loaded machine ends none in a short round
				before := r.stageEnds.Load()
				for end := time.Now().Add(drainTime); r.stageEnds.Load() == before && time.Now().Before(end); {
					time.Sleep(time.Millisecond)
				}
			}
			victims += endWithWorkers(t, u.d, rng)
		})
		r.judge(t, durabletest.Event{}, u.d.Start, fmt.Sprintf("after kill %d", kill+1))
	}
	r.drained(t)
	r.stagedWhole(t)
	for path := range tree(t, r.root) {
		if info, err := os.Stat(filepath.Join(r.root, path)); err != nil || info.Sys().(*syscall.Stat_t).Uid != aliceUID {
			t.Errorf("%s is not the user's: %v", path, err)
		}
	}
	r.enough(t, kills/4, "write", "append", "overwrite", "rename", "remove", "read")
	if n := r.stageEnds.Load(); n < int64(kills/4) || victims < kills/4 {
		t.Errorf("%d stages and %d store workers as victims: the test does not test", n, victims)
	}
}

// endWithWorkers kills a daemon, and before it often one of its store workers. Or it stops one that
// continues then or stays stopped until its end. It returns how many workers were victims.
func endWithWorkers(t *testing.T, d *bbdtest.Daemon, rng *rand.Rand) (victims int) {
	t.Helper()
	pause := func() { time.Sleep(time.Duration(5+rng.IntN(80)) * time.Millisecond) }
	defer d.Kill()
	pause()
	how := rng.IntN(4) // 0: the daemon alone
	if how == 0 {
		return 0
	}
	for _, w := range storeWorkers(d.Pid()) {
		if victims > 0 && rng.IntN(2) == 0 {
			continue
		}
		signal := func(sig os.Signal) bool {
			err := w.Signal(sig)
			if err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("store worker %d: %v: %v", w.Pid, sig, err)
			}
			return err == nil
		}
		switch {
		case how == 1 && signal(syscall.SIGKILL):
			victims++
		case how > 1 && signal(syscall.SIGSTOP):
			victims++
			if how == 2 {
				defer signal(syscall.SIGCONT) // before the daemon is killed
			}
		}
	}
	pause()
	return victims
}

// storeWorkers returns the processes that a daemon has as store workers.
func storeWorkers(daemon int) (all []*os.Process) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", daemon))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(pids)) {
			n, err := strconv.Atoi(pid)
			if err != nil {
				continue
			}
			// The handle holds the process, not its number. So its command line is read afterwards.
			p, err := os.FindProcess(n)
			line, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
			if err == nil && slices.Contains(strings.Split(string(line), "\x00"), protocol.Command) {
				all = append(all, p)
			}
		}
	}
	return all
}

// inStager stages files into names of its own, and removes some.
type inStager struct {
	*crasher
	from string // the folder of files that are staged in
	ends *atomic.Int64
	c    *client.Client
}

func (s *inStager) run(ctx context.Context, c *client.Client) {
	s.c = c
	b := c.Buffer(s.buffer)
	for ctx.Err() == nil {
		op, do := "stage-in", s.stageIn
		switch n := s.rng.IntN(6); {
		case n < 1:
			op, do = "remove", s.remove
		case n < 2:
			op, do = "rename", s.rename
		case n < 3:
			op, do = "read", s.read
		}
		if err := do(ctx, b); err != nil {
			return
		}
		if s.ops[op]++; op == "stage-in" {
			s.ends.Add(1)
		}
	}
}

// stageIn replaces a name by a file that is staged in.
func (s *inStager) stageIn(ctx context.Context, _ *client.Buffer) error {
	name := s.name()
	v, p := s.next(durabletest.Content{}, 0, s.size())
	from := filepath.Join(s.from, strconv.FormatUint(s.id, 16))
	if err := errors.Join(os.WriteFile(from, p, 0o600), os.Chown(from, aliceUID, aliceUID)); err != nil {
		return s.unexpected("write "+from, err)
	}
	return s.commit(durabletest.Close, name, v, func() error {
		return asUser(aliceUID, func() error {
			_, err := admin.StageIn(ctx, s.c, admin.StageRequest{Buffer: s.buffer, Path: name, URL: backingURL(from)}, nil)
			return err
		})
	})
}

// asUser has connections that fn makes be those of a user. It runs on a thread that is the user.
// Then the thread is root's again. It must not end, since a daemon ends with the thread that has
// started it.
func asUser(uid int, fn func() error) error {
	if uid == os.Geteuid() {
		return fn()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid int) error {
		const keep = ^uintptr(0)
		for _, call := range []uintptr{syscall.SYS_SETRESGID, syscall.SYS_SETRESUID} {
			if _, _, errno := syscall.RawSyscall(call, keep, uintptr(uid), keep); errno != 0 { // of this thread alone
				return os.NewSyscallError("setresuid", errno)
			}
		}
		return nil
	}
	defer func() {
		if err := become(os.Getuid()); err != nil {
			panic(err)
		}
	}()
	if err := become(uid); err != nil {
		return err
	}
	return fn()
}

// dialAs is dial as a user.
func dialAs(t *testing.T, d *bbdtest.Daemon, uid int) *client.Client {
	t.Helper()
	var c *client.Client
	err := asUser(uid, func() (err error) {
		c, err = client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket, RetryFor: -1})
		return err
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	t.Cleanup(func() { c.Close() })
	if as := c.Server().UID; as != uint32(uid) {
		t.Fatalf("the daemon takes the client for uid %d", as)
	}
	return c
}
