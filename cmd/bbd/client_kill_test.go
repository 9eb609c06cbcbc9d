package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/bbd/status"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
	"forebay/internal/hostiletest"
)

// Clients are killed at random moments while they write, sync, rename and remove. Acknowledged
// steps of a client are there, uncommitted bytes are not, and the daemon keeps nothing of the
// clients. The client is this binary, started again with victimEnv set.

const (
	victimEnv   = "FOREBAY_TEST_VICTIM" // the daemon's socket and the client's directory
	clientKills = 100
	victimsAt   = 4 // a time
)

func TestMain(m *testing.M) {
	clustertest.Main()
	hostiletest.Main()
	if at := os.Getenv(victimEnv); at != "" {
		socket, dir, _ := strings.Cut(at, " ")
		fmt.Fprintln(os.Stderr, victim(context.Background(), socket, dir))
		os.Exit(1) // it writes until it is killed
	}
	if at := os.Getenv(stoppedEnv); at != "" {
		socket, dir, _ := strings.Cut(at, " ")
		if err := writeUntilTold(context.Background(), socket, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// victim appends synced pieces to one file after the other, renames it, and removes some. It prints
// "FILE STEP" when the daemon has acknowledged a step: a piece, or the step after the last.
// Contents follow from the file's number.
func victim(ctx context.Context, socket, dir string) error {
	c, err := client.Dial(ctx, client.Options{Address: "unix://" + socket, RetryFor: -1})
	if err != nil {
		return err
	}
	b := c.Buffer("kills")
	for file := 0; ; file++ {
		f, err := b.Create(ctx, fmt.Sprintf("%s/%d", dir, file))
		if err != nil {
			return err
		}
		for piece := range victimPieces {
			if _, err := f.Write(victimPiece(file, piece)); err != nil {
				return err
			}
			if err := f.Sync(); err != nil {
				return err
			}
			fmt.Println(file, piece+1)
		}
		if err := f.Close(); err != nil {
			return err
		}
		name, done := fmt.Sprintf("%s/%d", dir, file), fmt.Sprintf("%s/%d.done", dir, file)
		if err := b.Rename(ctx, name, done); err != nil {
			return err
		}
		fmt.Println(file, victimRenamed)
		if !victimRemoves(file) {
			continue
		}
		if err := b.Remove(ctx, done); err != nil {
			return err
		}
		fmt.Println(file, victimRemoved)
	}
}

const (
	victimPieces  = 5
	victimRenamed = victimPieces + 1
	victimRemoved = victimPieces + 2
)

func victimRemoves(file int) bool { return file%3 == 2 }

// victimPiece is small in some files and large in others, so that bytes travel with
// the commit and in leased segments.
func victimPiece(file, piece int) []byte {
	return clustertest.Content(uint64(file)<<8|uint64(piece), []int{50, 5000, 80_000, 1_500_000}[file%4]+piece)
}

// killOne runs a client, kills it, and returns the last acknowledged step of each file. When it
// returns, the daemon has detected it.
func killOne(t *testing.T, d *bbdtest.Daemon, c *client.Client, dir string, after time.Duration) (acknowledged map[int]int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return nil
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), victimEnv+"="+d.Socket+" "+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return nil
	}
	lines := bufio.NewScanner(out)
	acknowledged = map[int]int{}
	var timer *time.Timer // the moment counts from when the client works
	for lines.Scan() {
		var file, pieces int
		if _, err := fmt.Sscan(lines.Text(), &file, &pieces); err != nil {
			break // cut off by the kill
		}
		acknowledged[file] = pieces
		if timer == nil {
			timer = time.AfterFunc(after, func() { cmd.Process.Kill() })
		}
	}
	err = cmd.Wait()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("a client ended by itself: %v\n%s", err, stderr.String())
	}
	deadline := time.Now().Add(10 * time.Second)
	its := func(s status.Session) bool { return int(s.PID) == cmd.Process.Pid }
	for slices.ContainsFunc(statusOf(t, c).Sessions, its) {
		if time.Now().After(deadline) {
			t.Error("the session of a killed client stays")
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	return acknowledged
}

func TestClientsKilled(t *testing.T) {
	store := t.TempDir()
	d := bbdtest.Start(t, "--memory", "256MiB")
	c := dial(t, d)
	defer c.Close()
	ctx := t.Context()
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "kills", Backing: "file://" + store}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("kills")
	results := make(chan map[string][]byte, victimsAt)
	for worker := range victimsAt {
		rng := rand.New(rand.NewPCG(uint64(worker), 3))
		go func() {
			files := map[string][]byte{}
			defer func() { results <- files }()
			for kill := worker; kill < clientKills && !t.Failed(); kill += victimsAt {
				dir := fmt.Sprintf("k%d", kill)
				if err := b.Mkdir(ctx, dir, 0o755); err != nil {
					t.Error(err)
					return
				}
				told := killOne(t, d, c, dir, time.Duration(rng.IntN(60_000))*time.Microsecond)
				settledVictim(t, c, b, dir, told, files)
			}
		}()
	}
	files := map[string][]byte{}
	for range victimsAt {
		maps.Copy(files, <-results)
	}
	if len(files) < clientKills {
		t.Errorf("%d files in %d kills: the test does not test", len(files), clientKills)
	}
	if _, err := admin.Drain(ctx, c, "kills", time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	have := tree(t, store)
	for name, content := range files {
		if string(have[name]) != string(content) {
			t.Errorf("%s in the store has %d bytes, not %d", name, len(have[name]), len(content))
		}
		delete(have, name)
	}
	for name := range have {
		t.Errorf("%s is in the store and not in the buffer", name)
	}
	s := statusOf(t, c)
	if len(s.Sessions) != 1 || s.Sessions[0].Leases != 0 || s.Sessions[0].Handles != 0 || s.Buffers[0].OpenFiles != 0 {
		t.Errorf("after all clients are gone: %+v, %+v", s.Sessions, s.Buffers[0])
	}
	// The remaining lease is the segment that the daemon itself fills for the buffer.
	if err := admin.DestroyBuffer(ctx, c, "kills"); err != nil {
		t.Fatal(err)
	}
	if m := statusOf(t, c).Memory; m.Leased != 0 || m.Live != 0 {
		t.Errorf("without the buffer %d bytes are leased and %d live", m.Leased, m.Live)
	}
	t.Logf("%d clients killed, %d files", clientKills, len(files))
}

// settledVictim waits until the daemon has closed a killed client's files, compares them with the
// acknowledged steps, and adds them to files.
func settledVictim(t *testing.T, c *client.Client, b *client.Buffer, dir string, told map[int]int, files map[string][]byte) {
	t.Helper()
	ctx := t.Context()
	last := 0
	for file := range told {
		last = max(last, file)
	}
	for file := range last + 2 { // one more may have been begun
		name := fmt.Sprintf("%s/%d", dir, file)
		e, err := closedEntry(ctx, b, name)
		renamed := client.KindOf(err) == client.ErrNotFound && told[file] >= victimPieces
		if renamed {
			name += ".done"
			e, err = closedEntry(ctx, b, name)
		}
		// The step after the last acknowledged one may have been done.
		mayBeAbsent := told[file] == 0 || victimRemoves(file) && told[file] >= victimRenamed
		switch {
		case client.KindOf(err) == client.ErrNotFound && mayBeAbsent:
			continue
		case err != nil || !renamed && told[file] >= victimRenamed || told[file] == victimRemoved:
			t.Errorf("%s: %v; the client was told of step %d", name, err, told[file])
			continue
		}
		got, err := b.ReadFile(ctx, name)
		if err != nil || int64(len(got)) != e.Size {
			t.Errorf("%s: %d bytes of %d (%v)", name, len(got), e.Size, err)
			continue
		}
		pieces, want := 0, []byte{}
		for ; pieces < victimPieces && len(want) < len(got); pieces++ {
			want = append(want, victimPiece(file, pieces)...)
		}
		// The daemon may have committed one piece whose acknowledgement the kill swallowed.
		if string(got) != string(want) || pieces < min(told[file], victimPieces) || pieces > told[file]+1 {
			t.Errorf("%s: %d bytes, %d pieces; the client was told of %d", name, len(got), pieces, told[file])
		}
		files[name] = got
	}
}

// closedEntry waits until a file is not open any more.
func closedEntry(ctx context.Context, b *client.Buffer, name string) (client.Entry, error) {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		e, err := b.Stat(ctx, name)
		if err != nil || e.State != client.StateOpen {
			return e, err
		}
		if time.Now().After(deadline) {
			return e, fmt.Errorf("the file of a killed client stays open")
		}
	}
}

func statusOf(t *testing.T, c *client.Client) (s status.Status) {
	t.Helper()
	text, err := admin.Status(t.Context(), c, "")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}
