// Package hostiletest runs two users of one daemon against each other: one attacks it in every way
// that an attack is known for, while the other writes, drains and compares. Both are processes of
// the test's own binary. It knows the wire and the client, never the daemon's inside.
package hostiletest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"forebay/client"
)

// env holds what a process that a test has started is to do.
const env = "FOREBAY_TEST_HOSTILE"

// The users: neither is known to the system, and neither is in a group with the other.
const (
	attackerUID = 65533
	victimUID   = 65532
)

// task is what a process is to do.
type task struct {
	Victim bool
	Socket string
	Dir    string // the user's own
	Seed   uint64
	Rounds int // attacks of each kind; the victim goes on until its standard input ends
}

// Result is what a user has done.
type Result struct {
	Files   int            // the victim's, each compared in the buffer and on the store
	Attacks map[string]int // the attacker's, by kind
	Failed  string         // what went wrong for the victim; of an attack only that it could not be made
}

// Main does what a test has started this process for, and ends it; otherwise it returns. TestMain
// calls it first.
func Main() {
	text := os.Getenv(env)
	if text == "" {
		return
	}
	var (
		t task
		r Result
	)
	err := json.Unmarshal([]byte(text), &t)
	if err == nil && t.Victim {
		r, err = work(&t)
	} else if err == nil {
		r, err = attack(&t)
	}
	if err != nil {
		r.Failed = err.Error()
	}
	if json.NewEncoder(os.Stdout).Encode(r) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Run lets the attacker make so many attacks of each kind, in an order that the seed says, while
// the victim works. The daemon at the socket is root's; everybody can reach the socket.
func Run(tb testing.TB, socket string, seed uint64, rounds int) (attacker, victim Result) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	victims := start(tb, dir, victimUID, &task{Victim: true, Socket: socket, Seed: seed})
	attackers := start(tb, dir, attackerUID, &task{Socket: socket, Seed: seed, Rounds: rounds})
	attacker = attackers.end(tb)
	victims.in.Close()
	return attacker, victims.end(tb)
}

// user is a process of a user's.
type user struct {
	cmd         *exec.Cmd
	in          io.Closer
	out, failed bytes.Buffer
}

func start(tb testing.TB, base string, uid uint32, t *task) *user {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	must(os.Chmod(base, 0o755))
	t.Dir = filepath.Join(base, fmt.Sprint(uid))
	must(os.Mkdir(t.Dir, 0o700))
	self, err := os.Executable()
	must(err)
	program, err := os.ReadFile(self)
	must(err)
	file := filepath.Join(base, fmt.Sprint("program", uid)) // the tests' own folder is nobody else's
	must(os.WriteFile(file, program, 0o755))
	must(os.Chown(t.Dir, int(uid), int(uid)))
	text, err := json.Marshal(t)
	must(err)
	u := &user{cmd: exec.Command(file)}
	u.cmd.Dir, u.cmd.Env = t.Dir, append(os.Environ(), env+"="+string(text), "HOME="+t.Dir, "TMPDIR="+t.Dir)
	u.cmd.Stdout, u.cmd.Stderr = &u.out, &u.failed
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	u.in, err = u.cmd.StdinPipe()
	must(err)
	must(u.cmd.Start())
	return u
}

// end waits for a user, and returns what came of it.
func (u *user) end(tb testing.TB) (r Result) {
	tb.Helper()
	err := u.cmd.Wait()
	if err == nil {
		err = json.Unmarshal(u.out.Bytes(), &r)
	}
	if err != nil {
		tb.Errorf("a user's program: %v\n%s%s", err, u.out.Bytes(), u.failed.Bytes())
	}
	return r
}

// patience is how long the victim waits for one step; only the daemon's failure makes it as long.
const patience = 2 * time.Minute

// work writes files, drains and compares until standard input ends.
func work(t *task) (r Result, err error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	store := filepath.Join(t.Dir, "store")
	if err := os.Mkdir(store, 0o700); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + t.Socket})
	if err != nil {
		return r, err
	}
	defer c.Close()
	if _, err := c.CreateBuffer(ctx, client.BufferSpec{Name: "victim", Backing: "file://" + store}); err != nil {
		return r, err
	}
	rnd := rand.New(rand.NewPCG(t.Seed, 1))
	for {
		n, err := round(c, store, rnd, r.Files)
		r.Files += n
		if err != nil {
			return r, fmt.Errorf("after %d files: %w", r.Files, err)
		}
		select {
		case <-ended:
			return r, nil
		default:
		}
	}
}

// round writes some files, reads them back, drains, and compares what the store has.
func round(c *client.Client, store string, rnd *rand.Rand, first int) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b, wrote := c.Buffer("victim"), map[string][]byte{}
	for i := range 8 {
		name, content := fmt.Sprint(first+i), make([]byte, rnd.IntN(600_000))
		for j := range content {
			content[j] = byte(rnd.Uint32())
		}
		wrote[name] = content
		if err := b.WriteFile(ctx, name, content, 0o600); err != nil {
			return n, fmt.Errorf("write: %w", err)
		}
		if got, err := b.ReadFile(ctx, name); err != nil || !bytes.Equal(got, content) {
			return n, fmt.Errorf("%s: %d bytes were read of %d, not what was written (%w)", name, len(got), len(content), err)
		}
	}
	if _, err := c.Drain(ctx, "victim", 0, nil); err != nil {
		return n, fmt.Errorf("drain: %w", err)
	}
	for name, content := range wrote {
		if got, err := os.ReadFile(filepath.Join(store, name)); err != nil || !bytes.Equal(got, content) {
			return n, fmt.Errorf("%s: the store has %d bytes of %d, not what was written (%w)", name, len(got), len(content), err)
		}
		if err := b.Remove(ctx, name); err != nil {
			return n, fmt.Errorf("remove: %w", err)
		}
		n++
	}
	return n, nil
}
