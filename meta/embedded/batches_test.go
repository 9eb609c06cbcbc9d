package embedded

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"forebay/meta/conn"
	"forebay/meta/embedded/batches"
	"forebay/meta/kv"
)

// movesEnv has the folder and the seed of moveAndDie.
const movesEnv = "FOREBAY_BATCHES_MOVED"

const movedBucket = "moved"

// moveAndDie is a process that commits batches over several connections while their stores are moved
// to and fro without a rest, until it kills itself: at a step of a move, or at any moment. It prints
// each batch before it is sent (>) and after it was acknowledged (=), with its number of changes.
func moveAndDie() error {
	var dir string
	var seed, life uint64
	if _, err := fmt.Sscan(os.Getenv(movesEnv), &dir, &seed, &life); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(seed, life))
	die := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	last, looks := 1+random.IntN(12), 0
	if random.IntN(4) == 0 {
		last = 1 << 30
		time.AfterFunc(time.Second+time.Duration(random.IntN(200))*time.Millisecond, die)
	}
	started := false
	o := Options{Dir: dir}
	m, err := batches.New(batches.Options{
		Streams: o.streams(), Memory: filepath.Join(dir, "memory"), Log: slog.New(slog.DiscardHandler),
		Room: func() batches.Room { // full, then ample for so long that batches come back
			if looks++; looks%3 == 1 {
				return batches.Room{}
			}
			return batches.Room{Bytes: 1 << 30, Files: 1 << 20}
		},
		Step: func() {
			if !started {
				return
			}
			if last--; last == 0 {
				die()
			}
			time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
		},
	})
	if err != nil {
		return err
	}
	if err := m.Restore(); err != nil {
		return err
	}
	ctx := context.Background()
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	m.Look(time.Now())
	for g := range 6 {
		c, err := conn.Dial(ctx, conn.Options{InProcess: s})
		if err != nil {
			return err
		}
		b := kv.New(c, movedBucket, kv.BucketOptions{Gone: kv.NeverGone})
		if err := b.Ensure(ctx); err != nil {
			return err
		}
		go commitBatches(ctx, b, fmt.Sprintf("%d.%d", life, g), rand.New(rand.NewPCG(seed, life<<8+uint64(g))))
	}
	started = true
	for now := time.Now(); ; now = now.Add(time.Minute) {
		m.Look(now)
	}
}

// commitBatches makes new keys, many at a time.
func commitBatches(ctx context.Context, b *kv.Bucket, name string, random *rand.Rand) {
	for n := 0; ; n++ {
		changes := make([]kv.Change, 2+random.IntN(900))
		for i := range changes {
			changes[i] = kv.Change{Key: fmt.Sprintf("%s.%d.%d", name, n, i), Data: []byte("-")}
		}
		fmt.Printf("> %s.%d %d\n", name, n, len(changes))
		if _, err := b.Commit(ctx, changes); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		fmt.Printf("= %s.%d %d\n", name, n, len(changes))
	}
}

// sent is a batch that a process has sent.
type sent struct {
	changes      int
	acknowledged bool
}

// TestBatchesMovedAndKilled: when a server is killed at any moment while the stores of batches are
// moved, none stays half done.
func TestBatchesMovedAndKilled(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/dev/shm", "batches-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	lives := 10
	if testing.Short() {
		lives = 3
	}
	restored, acknowledged := &restoring{}, 0
	enough := func() bool { return acknowledged > 0 && restored.batches.Load() > 0 }
	for life := 0; life < lives || !enough() && life < 10*lives; life++ {
		all := runMoves(t, dir, seed, life)
		found := keysAfterKill(t, dir, life, restored)
		for name, b := range all {
			if n := found[name]; n != b.changes && (n != 0 || b.acknowledged) {
				t.Errorf("life %d: %d changes of batch %s were carried out (%+v)", life, n, name, *b)
			}
			if b.acknowledged {
				acknowledged++
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d batches were acknowledged, %d finished at a start", acknowledged, restored.batches.Load())
	if !enough() {
		t.Error("that is too few to show something")
	}
}

// runMoves runs moveAndDie, and returns its output.
func runMoves(t *testing.T, dir string, seed uint64, life int) map[string]*sent {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d", movesEnv, dir, seed, life))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*sent{}
	for in := bufio.NewScanner(out); in.Scan(); {
		var what, name string
		var changes int
		if _, err := fmt.Sscan(in.Text(), &what, &name, &changes); err != nil {
			t.Fatalf("%q: %v", in.Text(), err)
		}
		all[name] = &sent{changes: changes, acknowledged: what == "="}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") || stderr.Len() > 0 {
		t.Fatalf("the process was not killed: %v\n%s", err, stderr.String())
	}
	return all
}

// keysAfterKill starts a server where another one was killed, and returns how many keys each batch of that life
// has made.
func keysAfterKill(t *testing.T, dir string, life int, restored *restoring) map[string]int {
	t.Helper()
	ctx := testContext(t)
	s, err := Start(ctx, Options{Dir: dir, BatchDir: filepath.Join(dir, "memory"), Logger: slog.New(restored)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	c, err := conn.Dial(ctx, conn.Options{InProcess: s})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen, found := map[string]bool{}, map[string]int{}
	err = kv.New(c, movedBucket, kv.BucketOptions{Gone: kv.NeverGone}).Scan(ctx, fmt.Sprintf("%d.>", life), func(r *kv.Record) error {
		if !seen[r.Key] {
			seen[r.Key] = true
			found[r.Key[:strings.LastIndex(r.Key, ".")]]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// restoring counts the batches that servers finish at their starts, by their logs.
type restoring struct {
	batches atomic.Int64
}

func (r *restoring) Enabled(context.Context, slog.Level) bool { return true }
func (r *restoring) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *restoring) WithGroup(string) slog.Handler            { return r }
func (r *restoring) Handle(_ context.Context, record slog.Record) error {
	if strings.Contains(record.Message, "Restoring partial batch write") {
		r.batches.Add(1)
	}
	return nil
}
