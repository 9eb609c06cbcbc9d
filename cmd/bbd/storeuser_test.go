package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/internal/hostiletest"
)

// A root daemon among users who do not trust each other. A user's path leads only to files that
// this user may reach, at the moment of use.

// Users who are not in the user database.
const (
	aliceUID = 50001
	bobUID   = 50002
)

// users is a daemon of root's, with folders that its users can reach.
type users struct {
	t     *testing.T
	d     *bbdtest.Daemon
	top   string // all may enter
	bbctl string
}

func startForUsers(t *testing.T, config string) *users {
	t.Helper()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	u := &users{t: t, d: bbdtest.New(t)}
	u.d.Config = config
	u.d.Start()
	top, err := os.MkdirTemp("", "users")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	u.top, u.bbctl = top, filepath.Join(top, "bbctl")
	// A program that this process writes could not be run while a child that it starts meanwhile still has that
	// file open (go.dev/issue/22315).
	install := exec.Command("install", "-m", "0755", bbdtest.Bbctl(t), u.bbctl)
	if err := errors.Join(os.Chmod(top, 0o755), os.Chmod(u.d.Dir, 0o711), install.Run()); err != nil {
		t.Fatal(err)
	}
	return u
}

const smallDaemon = "listen: {admin: \"127.0.0.1:0\"}\nmemory: {size: 128MiB, region_size: 64MiB}\n"

// dir makes a directory of a user's.
func (u *users) dir(name string, uid int, mode os.FileMode) string {
	u.t.Helper()
	dir := filepath.Join(u.top, name)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid), os.Chmod(dir, mode)); err != nil {
		u.t.Fatal(err)
	}
	return dir
}

// file makes a file of a user's.
func (u *users) file(path, content string, uid int, mode os.FileMode) string {
	u.t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(content), mode), os.Chown(path, uid, uid)); err != nil {
		u.t.Fatal(err)
	}
	return path
}

// as runs bbctl as a user, for at most so long.
func (u *users) as(uid int, within time.Duration, args ...string) (string, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.t.Context(), within)
	defer cancel()
	out, err := u.command(ctx, uid, args...).CombinedOutput()
	return string(out), err
}

// command is bbctl as a user.
func (u *users) command(ctx context.Context, uid int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.bbctl, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"FOREBAY_SOCKET=" + u.d.Socket, "HOME=" + u.top, "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// must runs bbctl, which has to succeed.
func (u *users) must(uid int, args ...string) {
	u.t.Helper()
	if out, err := u.as(uid, 2*time.Minute, args...); err != nil {
		u.t.Fatalf("bbctl %v: %v\n%s", args, err, out)
	}
}

// mustFail runs bbctl, which has to fail for a reason. A command that does not end has not failed.
func (u *users) mustFail(uid int, reason string, args ...string) {
	u.t.Helper()
	out, err := u.as(uid, time.Minute, args...)
	if exit := new(exec.ExitError); !errors.As(err, &exit) || !exit.Exited() || !strings.Contains(out, reason) {
		u.t.Errorf("bbctl %v: %v, want %q\n%s", args, err, reason, out)
	}
}

func (u *users) unchanged(path, content string) {
	u.t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != content {
		u.t.Errorf("%s: %q, %v; want %q", path, b, err, content)
	}
}

func backingURL(dir string) string { return "file://" + dir }

// A buffer's backing is replaced by a symbolic link to a directory of root's.
func TestBackingSwapped(t *testing.T) {
	u := startForUsers(t, smallDaemon)
	roots := u.dir("roots", 0, 0o755)
	existing := u.file(filepath.Join(roots, "existing"), "root's", 0, 0o600)
	bobs := u.dir("bob", bobUID, 0o755)
	store, x := filepath.Join(bobs, "store"), u.file(filepath.Join(bobs, "x"), "planted", bobUID, 0o600)
	if err := errors.Join(os.Mkdir(store, 0o755), os.Chown(store, bobUID, bobUID)); err != nil {
		t.Fatal(err)
	}
	u.must(bobUID, "buffer", "create", "swap", "--backing", backingURL(store))
	u.must(bobUID, "put", x, "bb://swap/ok")
	u.must(bobUID, "drain", "swap")
	if err := errors.Join(os.Rename(store, store+".old"), os.Symlink(roots, store)); err != nil {
		t.Fatal(err)
	}
	u.must(bobUID, "put", x, "bb://swap/planted")
	u.must(bobUID, "put", x, "bb://swap/existing")
	u.mustFail(bobUID, "", "drain", "swap", "--timeout", "3s")
	u.unchanged(existing, "root's")
	if _, err := os.Lstat(filepath.Join(roots, "planted")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was planted in root's directory: %v", err)
	}
	if err := errors.Join(os.Remove(store), os.Rename(store+".old", store)); err != nil {
		t.Fatal(err)
	}
	u.must(bobUID, "drain", "swap")
	u.unchanged(filepath.Join(store, "planted"), "planted")
	u.must(bobUID, "buffer", "destroy", "swap", "--discard")
}

// While a file in a directory is staged in, and others are staged out to it, the directory is
// replaced with a link to root's between any two checks of it.
func TestStageInRace(t *testing.T) { withOwnMounts(t, testStageInRace) }

func testStageInRace(t *testing.T) {
	u := startForUsers(t, smallDaemon)
	roots, bobs := u.dir("roots", 0, 0o700), u.dir("bob", bobUID, 0o755)
	u.file(filepath.Join(roots, "f"), "secret", 0, 0o600)
	l := filepath.Join(bobs, "l")
	if err := os.Symlink(roots, l); err != nil {
		t.Fatal(err)
	}
	u.must(bobUID, "buffer", "create", "race")
	u.mustFail(bobUID, "permission", "stage-in", backingURL(l)+"/f", "bb://race/link")
	attacker, _ := hostiletest.Run(t, hostiletest.Options{
		Socket: u.d.Socket, Rounds: 1, Only: []string{"directory that changes"}, NoVictim: true,
	})
	if attacker.Failed != "" || attacker.Attacks["directory that changes"] != 1 {
		t.Errorf("%+v", attacker)
	}
}

// Below a directory that all may write, another user has a private one, without a link and without
// a race.
func TestSharedParent(t *testing.T) {
	u := startForUsers(t, smallDaemon)
	scratch := u.dir("scratch", 0, 0o1777)
	private := u.dir("scratch/alice", aliceUID, 0o700)
	data := u.file(filepath.Join(private, "data"), "hers", aliceUID, 0o600)
	open := u.dir("scratch/open", aliceUID, 0o755)
	read := u.file(filepath.Join(open, "data"), "hers", aliceUID, 0o600)
	x := u.file(filepath.Join(u.dir("bob", bobUID, 0o755), "x"), "his", bobUID, 0o600)

	u.must(bobUID, "buffer", "create", "shared", "--backing", backingURL(scratch), "--existing", "overwrite")
	u.must(bobUID, "put", x, "bb://shared/alice/data")
	u.must(bobUID, "put", x, "bb://shared/alice/new")
	u.mustFail(bobUID, "permission", "drain", "shared", "--timeout", "3s")
	u.unchanged(data, "hers")
	u.must(bobUID, "rm", "-r", "bb://shared/alice")
	if _, err := u.as(bobUID, time.Minute, "drain", "shared", "--timeout", "3s"); err != nil {
		t.Logf("drain after the removal: %v", err)
	}
	u.unchanged(data, "hers")

	u.must(bobUID, "buffer", "create", "out")
	u.must(bobUID, "put", x, "bb://out/open/data")
	u.must(bobUID, "put", x, "bb://out/alice/data")
	u.mustFail(bobUID, "permission", "stage-out", "bb://out/", backingURL(scratch))
	u.unchanged(read, "hers")
	u.unchanged(data, "hers")
	u.mustFail(bobUID, "permission", "stage-in", backingURL(read), "bb://out/in")
	u.mustFail(bobUID, "permission", "buffer", "create", "hers", "--backing", backingURL(private), "--existing", "overwrite")
}

// Pipes lie where files would go. Nothing waits for their writers, least of all other users.
func TestPipesInTheStore(t *testing.T) {
	u := startForUsers(t, smallDaemon)
	bobs := u.dir("bob", bobUID, 0o755)
	x := u.file(filepath.Join(bobs, "x"), "his", bobUID, 0o600)
	store := u.dir("bob/store", bobUID, 0o755)
	u.must(bobUID, "buffer", "create", "pipes", "--backing", backingURL(store))
	for i := range 40 {
		pipe := filepath.Join(store, fmt.Sprintf("d%d", i))
		if err := errors.Join(syscall.Mkfifo(pipe, 0o644), os.Chown(pipe, bobUID, bobUID)); err != nil {
			t.Fatal(err)
		}
		u.must(bobUID, "put", x, fmt.Sprintf("bb://pipes/d%d/f", i))
	}
	u.mustFail(bobUID, "not a directory", "drain", "pipes", "--timeout", "3s")
	hers := u.dir("hers", aliceUID, 0o755)
	y := u.file(filepath.Join(hers, "y"), "hers", aliceUID, 0o600)
	store = u.dir("hers/store", aliceUID, 0o755)
	u.must(aliceUID, "buffer", "create", "works", "--backing", backingURL(store))
	u.must(aliceUID, "put", y, "bb://works/f")
	u.must(aliceUID, "drain", "works", "--timeout", "1m")
	u.unchanged(filepath.Join(store, "f"), "hers")

	pipe := filepath.Join(bobs, "p.zst")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o644), os.Chown(pipe, bobUID, bobUID)); err != nil {
		t.Fatal(err)
	}
	u.must(bobUID, "buffer", "create", "packed", "--codec", "zstd")
	u.mustFail(bobUID, "it is a pipe", "stage-in", backingURL(pipe), "bb://packed/p")
}

// Flushed files belong to the buffer's owner, with its group.
func TestFlushedFilesBelongToTheirUser(t *testing.T) {
	u := startForUsers(t, smallDaemon)
	bobs := u.dir("bob", bobUID, 0o700)
	x := u.file(filepath.Join(bobs, "x"), "his", bobUID, 0o640)
	store := u.dir("bob/store", bobUID, 0o700)
	u.must(bobUID, "buffer", "create", "own", "--backing", backingURL(store), "--receipt")
	u.must(bobUID, "put", x, "bb://own/a/b/f")
	u.must(bobUID, "drain", "own")
	for _, name := range []string{"a", "a/b", "a/b/f", ".forebay-receipt.jsonl"} {
		info, err := os.Stat(filepath.Join(store, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if at := info.Sys().(*syscall.Stat_t); at.Uid != bobUID || at.Gid != bobUID {
			t.Errorf("%s belongs to %d:%d", name, at.Uid, at.Gid)
		}
	}
	u.must(bobUID, "mv", "bb://own/a/b/f", "bb://own/a/g")
	u.must(bobUID, "drain", "own")
	u.unchanged(filepath.Join(store, "a/g"), "his")
	u.must(bobUID, "rm", "bb://own/a/g")
	u.must(bobUID, "drain", "own")
	if _, err := os.Lstat(filepath.Join(store, "a/g")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
}
