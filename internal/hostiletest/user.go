package hostiletest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// patience bounds a connection's handshake.
const patience = 5 * time.Minute

// user is a process of a user's.
type user struct {
	uid    uint32
	cmd    *exec.Cmd
	in     io.WriteCloser
	events chan event
	failed bytes.Buffer
}

// maxEvents is the number of events that may wait. There is a line for each round of the victim's.
const maxEvents = 1 << 16

// start starts a user's process, with a directory of the user's own.
func start(tb testing.TB, base string, uid uint32, t task) *user {
	tb.Helper()
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	t.Dir = filepath.Join(base, fmt.Sprint(uid))
	must(os.Mkdir(t.Dir, 0o700))
	must(os.Chown(t.Dir, int(uid), int(uid)))
	for _, name := range []*string{&t.TLS.CA, &t.TLS.Cert, &t.TLS.Key} {
		if *name == "" || t.Victim && name != &t.TLS.CA {
			continue
		}
		text, err := os.ReadFile(*name)
		must(err)
		*name = filepath.Join(t.Dir, filepath.Base(*name))
		must(os.WriteFile(*name, text, 0o600))
		must(os.Chown(*name, int(uid), int(uid)))
	}
	self, err := os.Executable()
	must(err)
	program, err := os.ReadFile(self)
	must(err)
	file := filepath.Join(base, fmt.Sprint("program", uid)) // no other user can enter the tests' own folder
	must(os.WriteFile(file, program, 0o755))
	must(os.Chmod(file, 0o755))
	text, err := json.Marshal(t)
	must(err)
	u := &user{uid: uid, cmd: exec.Command(file), events: make(chan event, maxEvents)}
	u.cmd.Dir, u.cmd.Env = t.Dir, append(os.Environ(), env+"="+string(text), "HOME="+t.Dir, "TMPDIR="+t.Dir)
	u.cmd.Stderr = &u.failed
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	u.in, err = u.cmd.StdinPipe()
	must(err)
	out, err := u.cmd.StdoutPipe()
	must(err)
	must(u.cmd.Start())
	listened := make(chan struct{})
	go func() {
		defer close(listened)
		u.listen(out)
	}()
	tb.Cleanup(func() {
		u.in.Close()
		u.cmd.Process.Kill()
		<-listened
	})
	return u
}

// listen passes on a process's events, and its end if no event reported it.
func (u *user) listen(out io.Reader) {
	var e event
	for lines := bufio.NewScanner(out); lines.Scan() && e.Result == nil; {
		e = event{}
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(&u.failed, lines.Text())
			continue
		}
		u.events <- e
	}
	_, _ = io.Copy(io.Discard, out)
	err := u.cmd.Wait()
	if e.Result == nil {
		u.events <- event{Result: &Result{Failed: fmt.Sprintf("the program of user %d: %v\n%s", u.uid, err, u.failed.Bytes())}}
	}
}

func uidOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
