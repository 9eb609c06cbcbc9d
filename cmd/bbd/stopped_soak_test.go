//go:build soak

package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
)

// Writers are stopped at random moments, in the middle of a copy or between two requests, while the
// daemon is killed and started again and others fill the memory. A writer that continues has lost
// nothing, and changes no others' files. The writers are this binary, started again with stoppedEnv
// set.

const (
	stoppedKills   = 50 // or FOREBAY_KILLS
	stoppedWriters = 4
)

// stoppedWriter is a process that writes.
type stoppedWriter struct {
	dir    string
	cmd    *exec.Cmd
	in     io.Closer
	errors strings.Builder
	done   chan struct{} // closed when it has ended, and files are its acknowledged ones
	files  int           // closed
}

func startStopped(t *testing.T, d *bbdtest.Daemon, dir string) *stoppedWriter {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &stoppedWriter{dir: dir, cmd: exec.Command(self), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), stoppedEnv+"="+d.Socket+" "+dir)
	w.cmd.Stderr = &w.errors
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err == nil {
		err = w.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	connected := lines.Scan() // a client does not wait for a daemon before it was connected once
	go func() {
		defer close(w.done)
		for lines.Scan() {
			w.files++
		}
	}()
	t.Cleanup(func() {
		w.cmd.Process.Kill()
		<-w.done
		w.cmd.Wait()
	})
	if !connected {
		t.Fatalf("%s does not work", dir)
	}
	return w
}

// finish lets the writer close its file, and end.
func (w *stoppedWriter) finish(t *testing.T) {
	t.Helper()
	w.in.Close()
	select {
	case <-w.done:
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s does not end", w.dir)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("%s: %v\n%s", w.dir, err, w.errors.String())
	}
}

func TestStoppedWriters(t *testing.T) {
	store := t.TempDir()
	d := bbdtest.Start(t, "--memory", "64MiB")
	c := dial(t, d)
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "stops", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	var writers []*stoppedWriter
	for i := range stoppedWriters {
		dir := fmt.Sprint("w", i)
		if err := c.Buffer("stops").Mkdir(ctx, dir, 0o755); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, startStopped(t, d, dir))
	}
	c.Close() // it would not outlive the daemon
	kills := stoppedKills
	if n, err := strconv.Atoi(os.Getenv("FOREBAY_KILLS")); err == nil {
		kills = n
	}
	rng := rand.New(rand.NewPCG(uint64(kills), 11))
	for kill := range kills {
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // only the moments are random
		stopped := writers[rng.IntN(len(writers)):]
		for _, w := range stopped {
			w.cmd.Process.Signal(syscall.SIGSTOP)
		}
		d.Kill()
		d.Start()
		pause := time.Duration(rng.IntN(300)) * time.Millisecond
		if kill%10 == 9 {
			pause += 31 * time.Second // longer than a daemon's patience with writers that hold no locks
		}
		time.Sleep(pause)
		for _, w := range stopped {
			w.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	for _, w := range writers {
		w.finish(t)
	}
	c = dial(t, d)
	defer c.Close()
	checkStopped(t, c.Buffer("stops"), writers)
	if _, err := admin.Drain(ctx, c, "stops", drainTime, nil); err != nil {
		t.Fatal(err)
	}
	have := tree(t, store)
	for _, w := range writers {
		for file := max(0, w.files-stoppedNames); file < w.files; file++ {
			name := fmt.Sprintf("%s/%d", w.dir, file%stoppedNames)
			if string(have[name]) != string(stoppedContent(w.dir, file)) {
				t.Errorf("%s in the store is not file %d", name, file)
			}
		}
	}
}

func checkStopped(t *testing.T, b *client.Buffer, writers []*stoppedWriter) {
	t.Helper()
	total := 0
	for _, w := range writers {
		total += w.files
		for file := max(0, w.files-stoppedNames); file < w.files; file++ {
			name := fmt.Sprintf("%s/%d", w.dir, file%stoppedNames)
			if got, err := b.ReadFile(t.Context(), name); err != nil || string(got) != string(stoppedContent(w.dir, file)) {
				t.Errorf("%s: %d bytes that are not file %d (%v)", name, len(got), file, err)
			}
		}
	}
	t.Logf("%d files", total)
	if total == 0 {
		t.Error("no file was written: the test does not test")
	}
}
