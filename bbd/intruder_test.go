package bbd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
)

// Another user of the node connects to the daemon's socket, as every user may, and tries
// everything. This binary is that user's program when intruderEnv is set.

const (
	intruderEnv = "FOREBAY_TEST_INTRUDER"
	intruderUID = 65534
)

// intrusion is an answer to the other user.
type intrusion struct {
	Socket  string
	Store   string   // directory behind root's buffer "private"
	Regions []string // region files
	Secrets string   // a directory that all may read, with a file in it that only root may
	Closed  string   // a directory that all may write, in one that no other user may enter
	Own     string   // a directory of the other user's
}

// intrude tries, and prints the result of each try: a kind, or "done".
func intrude() int {
	var at intrusion
	if err := json.Unmarshal([]byte(os.Getenv(intruderEnv)), &at); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + at.Socket})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer c.Close()
	results := map[string]string{}
	for name, try := range tries(ctx, c, &at) {
		results[name] = "done"
		if err := try(); err != nil {
			results[name] = client.KindOf(err).String()
		}
	}
	buffers, err := admin.Buffers(ctx, c)
	seen := 0
	for _, spec := range buffers {
		if spec.UID != intruderUID {
			seen++
		}
	}
	results["buffers seen"] = fmt.Sprint(seen, err)
	text, err := admin.Status(ctx, c, "")
	results["status tells"] = fmt.Sprint(strings.Contains(string(text), "private") || strings.Contains(string(text), `"uid":0`), err)
	if err := json.NewEncoder(os.Stdout).Encode(results); err != nil {
		return 1
	}
	return 0
}

// tries are operations that must fail for the other user, except those with "may" in their names.
func tries(ctx context.Context, c *client.Client, at *intrusion) map[string]func() error {
	private, shared := c.Buffer("private"), c.Buffer("shared")
	all := map[string]func() error{
		"info":       func() error { _, err := admin.BufferInfo(ctx, c, "private"); return err },
		"stat":       func() error { _, err := private.Stat(ctx, "f"); return err },
		"list":       func() error { _, _, err := private.List(ctx, "", "", 10); return err },
		"read":       func() error { _, err := private.ReadFile(ctx, "f"); return err },
		"write":      func() error { return private.WriteFile(ctx, "f", []byte("mine"), 0o644) },
		"create":     func() error { return private.WriteFile(ctx, "g", []byte("mine"), 0o644) },
		"mkdir":      func() error { return private.Mkdir(ctx, "x", 0o755) },
		"rename":     func() error { return private.Rename(ctx, "f", "g") },
		"remove":     func() error { return private.Remove(ctx, "f") },
		"remove all": func() error { return private.RemoveAll(ctx, "d") },
		"attributes": func() error { _, err := private.SetAttr(ctx, "f", client.Attr{}); return err },
		"xattrs":     func() error { _, err := private.XattrNames(ctx, "f"); return err },
		"drain":      func() error { _, err := admin.Drain(ctx, c, "private", time.Second, nil); return err },
		"receipt":    func() error { return admin.Receipt(ctx, c, "private", &bytes.Buffer{}) },
		"lost":       func() error { _, err := c.Buffer("private").Lost(ctx); return err },
		"status":     func() error { _, err := admin.Status(ctx, c, "private"); return err },
		"destroy":    func() error { return admin.DiscardBuffer(ctx, c, "private") },

		"shared: read what is not": func() error { _, err := shared.ReadFile(ctx, "secret"); return err },
		"shared: write":            func() error { return shared.WriteFile(ctx, "f", []byte("mine"), 0o644) },
		"shared: create":           func() error { return shared.WriteFile(ctx, "g", []byte("mine"), 0o644) },
		"shared: remove":           func() error { return shared.Remove(ctx, "f") },
		"shared: attributes": func() error {
			m := os.FileMode(0o777)
			_, err := shared.SetAttr(ctx, "f", client.Attr{Mode: &m})
			return err
		},
		"shared: xattr":        func() error { return shared.SetXattr(ctx, "f", "user.a", []byte("mine")) },
		"shared: remove xattr": func() error { return shared.RemoveXattr(ctx, "f", "user.a") },
		"shared: read xattr":   func() error { _, err := shared.Xattrs(ctx, "secret"); return err },
		"shared: destroy":      func() error { return admin.DiscardBuffer(ctx, c, "shared") },
		"shared: may read":     func() error { return wantText(shared.ReadFile(ctx, "f")) },

		"backing of another's":      func() error { return create(ctx, c, "i1", at.Store) },
		"backing in a closed place": func() error { return create(ctx, c, "i2", at.Closed) },
		"may have a buffer": func() error {
			if err := create(ctx, c, "own", at.Own); err != nil {
				return err
			}
			return c.Buffer("own").WriteFile(ctx, "f", make([]byte, 2<<20), 0o644)
		},
		"events": func() error {
			for _, err := range admin.Events(ctx, c, "private") {
				return err
			}
			return nil
		},
	}
	for name, url := range map[string]string{"the store": at.Store, "a closed place": at.Closed, "a secret file": at.Secrets + "/secret", "a secret in a tree": at.Secrets} {
		all["stage-in of "+name] = func() error { return stageIn(ctx, c, url) }
	}
	all["stage-out of another's"] = func() error {
		_, err := admin.StageOut(ctx, c, admin.StageRequest{Buffer: "private", URL: "file://" + at.Own + "/out"}, nil)
		return err
	}
	all["giving away"] = func() error {
		if err := create(ctx, c, "giver", at.Own); err != nil {
			return err
		}
		if err := c.Buffer("giver").WriteFile(ctx, "f", nil, 0o644); err != nil {
			return err
		}
		gid := uint32(0)
		_, err := c.Buffer("giver").SetAttr(ctx, "f", client.Attr{GID: &gid})
		return err
	}
	for i, path := range at.Regions {
		for flag, how := range map[int]string{os.O_RDONLY: "read", os.O_RDWR: "map"} {
			all[fmt.Sprintf("%s region %d", how, i)] = func() error { return opened(path, flag) }
		}
	}
	return all
}

func wantText(got []byte, err error) error {
	if err == nil && string(got) != "for all" {
		return fmt.Errorf("read %q", got)
	}
	return err
}

func create(ctx context.Context, c *client.Client, name, dir string) error {
	_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: name, Backing: "file://" + dir, Shared: true})
	return err
}

func opened(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return bb.Wrap("open", path, err)
	}
	return f.Close()
}

// marker is in all content that the other user must not see.
const marker = "root's own words, which nobody else is to read"

// stageIn fails with the first failure when the stage as a whole does not.
func stageIn(ctx context.Context, c *client.Client, url string) error {
	name := fmt.Sprintf("in%d", time.Now().UnixNano())
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: name}); err != nil {
		return err
	}
	report, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: name, Path: "x", URL: "file://" + url}, nil)
	if err == nil && len(report.Failed) > 0 {
		return report.Failed[0].Kind
	}
	return err
}

func TestAnotherUser(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	at := intrusion{Socket: n.socket}
	open := openDir(t)
	chmod(t, n.dir, 0o755)
	c := n.dial()
	ctx := t.Context()
	var private *client.Buffer
	private, at.Store = n.buffer(c, admin.BufferSpec{Name: "private"})
	content := append(random(100_000), marker...)
	if err := private.Mkdir(ctx, "d", 0o777); err != nil {
		t.Fatal(err)
	}
	write(t, private, "f", content)
	shared, _ := n.buffer(c, admin.BufferSpec{Name: "shared", Mode: 0o755})
	write(t, shared, "f", []byte("for all"))
	if err := shared.WriteFile(ctx, "secret", []byte("not for all"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Root's data fill memory. The other user gets a region that they were in.
	for i := range 20 {
		write(t, private, fmt.Sprint("d/", i), bytes.Repeat([]byte(marker), 4<<20/len(marker)))
	}
	drain(t, c, "private")
	drain(t, c, "shared")
	before := listing(t, c)

	at.Secrets, at.Own = mkdir(t, open, "secrets", 0o755), mkdir(t, open, "own", 0o700)
	at.Closed = mkdir(t, mkdir(t, open, "closed", 0o700), "open", 0o777)
	if err := os.WriteFile(filepath.Join(at.Secrets, "secret"), []byte("key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(at.Own, intruderUID, intruderUID); err != nil {
		t.Fatal(err)
	}
	of := regions(t, n)
	if at.Regions = of[0]; len(at.Regions) == 0 || len(of[intruderUID]) > 0 {
		t.Fatalf("regions: %v", of)
	}
	results := intrudeAs(t, open, &at)
	theirs := regions(t, n)[intruderUID]
	if len(theirs) == 0 {
		t.Error("the other user wrote and has no region")
	}
	for _, path := range theirs {
		if text, err := os.ReadFile(path); err != nil || bytes.Contains(text, []byte(marker)) {
			t.Errorf("the other user's region %s holds what was root's (%v)", path, err)
		}
	}
	for name, result := range results {
		want := bb.Permission.String()
		switch {
		case strings.Contains(name, " region ") && result == bb.NotFound.String():
			want = result // it was deleted to make room for the other user's
		case strings.Contains(name, "may "):
			want = "done"
		case name == "buffers seen":
			want = "1 <nil>"
		case name == "status tells":
			want = "false <nil>"
		}
		if result != want {
			t.Errorf("another user: %s: %s, want %s", name, result, want)
		}
	}
	// Clean bytes may be evicted meanwhile, and the other user's buffers are there now.
	same := func(text string) string { return strings.ReplaceAll(text, "State:evicted", "State:clean") }
	now := strings.Split(same(listing(t, c)), "\n")
	for line := range strings.SplitSeq(same(before), "\n") {
		if !slices.Contains(now, line) {
			t.Errorf("changed: %s", line)
		}
	}
	wantFile(t, private, "f", content)
}

// regions returns the region files by the user whose they are.
func regions(t *testing.T, n *node) map[uint32][]string {
	t.Helper()
	paths, err := filepath.Glob(n.shm() + "/region-*")
	if err != nil {
		t.Fatal(err)
	}
	of := map[uint32][]string{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		uid := info.Sys().(*syscall.Stat_t).Uid
		of[uid] = append(of[uid], path)
	}
	return of
}

// intrudeAs runs this binary as the other user, from where that user can reach it.
func intrudeAs(t *testing.T, dir string, at *intrusion) map[string]string {
	t.Helper()
	told, err := json.Marshal(at)
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	text := asOther(t, dir, intruderEnv+"="+string(told))
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return results
}

// asOther runs this binary as the other user, in a directory that user can reach, with further
// environment, and returns its output.
func asOther(t *testing.T, dir string, env ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := otherUser(t, dir, intruderUID, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.Bytes()
}

// otherUser returns a command that runs this binary as a user.
func otherUser(t *testing.T, dir string, uid uint32, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "intruder")
	if _, err := os.Stat(program); err != nil { // else it may be running
		// No other test may start a program meanwhile, since it would inherit the descriptor, and a file that
		// is open for writing cannot be executed.
		syscall.ForkLock.RLock()
		err := os.WriteFile(program, text, 0o755)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), env...), "HOME="+dir, "TMPDIR="+dir)
	// Pdeathsig is not used, since it is about the thread that started the process, and threads of
	// daemons in this one end. The standard input that a process waits for ends with this one
	// anyway.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	return cmd
}

// openDir makes a directory that all users can reach, unlike those of tests.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "open")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	chmod(t, dir, 0o755)
	return dir
}

func mkdir(t *testing.T, parent, name string, mode os.FileMode) string {
	t.Helper()
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	chmod(t, dir, mode)
	return dir
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
