package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// The crash tests run this test program again as a child that works on a store,
// reports begun and acknowledged operations to its parent over a pipe,
// and kills itself at a chosen pass of a chosen point.
const crashEnv = "FOREBAY_STORE_CRASH"

type crashPlan struct {
	Dir   string
	Point string
	Pass  int
	Seed  uint64

	OpenOnly bool
	Linear   bool
}

func TestMain(m *testing.M) {
	if plan := os.Getenv(crashEnv); plan != "" {
		if err := crashChild(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func crashOptions(dir string) Options {
	return Options{
		StateDir: filepath.Join(dir, "state"), Mount: MountOff, ShmDir: filepath.Join(dir, "shm"),
		MemoryBytes: 12 << 20, RegionBytes: 6 << 20, DiskDir: filepath.Join(dir, "disk"), DiskBytes: 24 << 20,
	}
}

const crashFiles = 12

// crashContent is a file's content after a step. It has a header that names the step, and bytes
// that follow from it, all in one commit over two segments.
func crashContent(step int) []byte {
	p := content(uint64(step), 2000)
	copy(p, fmt.Sprintf("step %06d", step))
	return p
}

func crashChild(env string) error {
	var plan crashPlan
	if err := json.Unmarshal([]byte(env), &plan); err != nil {
		return err
	}
	o := crashOptions(plan.Dir)
	pass := 0
	o.crash = func(point string) {
		if point == plan.Point {
			if pass++; pass == plan.Pass {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	if plan.Linear {
		return linearChild(o)
	}
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	if plan.OpenOnly {
		return s.Close()
	}
	<-s.Ready()
	r := rand.New(rand.NewPCG(plan.Seed, 1))
	for step := 1; step < 2000; step++ {
		f := bb.FileID(1 + r.IntN(crashFiles))
		fmt.Printf("begin %d %d\n", f, step)
		if err := crashStep(s, f, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		fmt.Printf("done %d %d\n", f, step)
		if step%5 == 0 {
			fmt.Printf("clean %d\n", f)
			_ = s.Seal(f, bb.Generation(step))
			if err := s.MarkClean(f, bb.Generation(step)); err != nil {
				return err
			}
			s.Evict(bb.TierMemory, 1<<20)
		}
		if step%7 == 0 {
			if _, err := s.Spill(context.Background(), 1<<20); err != nil && !errors.Is(err, bb.NoSpace) {
				return err
			}
			s.Evict(bb.TierDisk, 1<<20)
		}
	}
	return nil
}

// crashStep writes a new generation of a file in one commit of two parts.
func crashStep(s *Store, f bb.FileID, step int) error {
	p := crashContent(step)
	c := Commit{File: f, Generation: bb.Generation(step), Fresh: true, Buffer: "b"}
	for i := range 2 {
		l, err := s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1})
		if errors.Is(err, ErrNoRoom) {
			if s.Evict(bb.TierMemory, 1<<20) == 0 {
				if _, err := s.Spill(context.Background(), 1<<20); err != nil {
					return err
				}
			}
			if l, err = s.Lease(LeaseRequest{Buffer: "b", UID: ownUID(), Bytes: 1}); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		defer s.Release(l.ID)
		half := p[i*1000 : i*1000+1000]
		c.Extents = append(c.Extents, NewExtent{l.ID, l.DataStart, int64(i * 1000), 1000, checksum.Copy(l.Mem[l.DataStart:], half, 0)})
	}
	return s.Commit(c)
}

func runCrash(t *testing.T, plan crashPlan) (acked, begun map[bb.FileID]int, clean map[bb.FileID]int) {
	t.Helper()
	env, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+string(env))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("the child was not killed at %q pass %d: %v %s", plan.Point, plan.Pass, err, stderr.String())
	}
	acked, begun, clean = map[bb.FileID]int{}, map[bb.FileID]int{}, map[bb.FileID]int{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var f bb.FileID
		var step int
		word, rest, _ := strings.Cut(lines.Text(), " ")
		fmt.Sscan(rest, &f, &step)
		switch word {
		case "begin":
			begun[f] = step
		case "done":
			acked[f] = step
		case "clean":
			clean[f] = acked[f]
		}
	}
	return acked, begun, clean
}

func TestKilledAnywhere(t *testing.T) {
	points := map[string][]int{
		"record written": {1, 2, 3, 40, 101}, "part prepared": {1, 2, 80, 81}, "part complete": {1, 2, 77, 78},
		"eviction recorded": {1, 2, 5}, "spill writing": {1, 3}, "spill published": {1, 2, 4}, "spill switched": {1, 2, 4},
	}
	for point, passes := range points {
		for _, pass := range passes {
			t.Run(fmt.Sprintf("%s %d", point, pass), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Dir(folders(t).StateDir)
				plan := crashPlan{Dir: dir, Point: point, Pass: pass, Seed: uint64(pass)}
				acked, begun, clean := runCrash(t, plan)
				checkCrash(t, dir, acked, begun, clean)
			})
		}
	}
}

// checkCrash opens the dead child's store. Acknowledged operations must be there,
// those under way wholly or not at all.
func checkCrash(t *testing.T, dir string, acked, begun, clean map[bb.FileID]int) {
	t.Helper()
	s := open(t, crashOptions(dir))
	if d := s.Damage(); len(d) > 0 {
		t.Errorf("damage: %+v", d)
	}
	for f, step := range acked {
		checkCrashFile(t, s, f, step, clean[f] == step)
		if under := begun[f]; under > step {
			v, err := s.Snapshot(f, bb.Generation(under))
			if errors.Is(err, bb.NotFound) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, v); !bytes.Equal(got, crashContent(under)) {
				t.Errorf("file %s: half of an unacknowledged commit is visible", f)
			}
			v.Close()
		}
	}
	for f, step := range acked {
		adopt := s.Adopt
		if clean[f] == step {
			adopt = s.AdoptClean
		}
		if err := adopt(f, bb.Generation(step)); err != nil {
			t.Errorf("adopt file %s: %v", f, err)
		}
		checkCrashFile(t, s, f, step, clean[f] == step)
	}
	ids := s.FileIDs()
	for info := range s.Files() {
		if !slices.Contains(ids, info.File) {
			t.Errorf("file %s is not among the ids", info.File)
		}
		if _, ok := acked[info.File]; !ok {
			s.Drop(info.File)
		} else if len(info.Generations) != 1 {
			t.Errorf("file %s has generations besides the adopted one: %+v", info.File, info.Generations)
		}
	}
	if ids := s.FileIDs(); len(ids) != len(acked) {
		t.Errorf("%d files are left of %d that were acknowledged", len(ids), len(acked))
	}
	// It continues as before.
	w := newWriter(t, s)
	for s.Evict(bb.TierMemory, 1<<20) > 0 {
	}
	w.commit(99, 1, 0, 0, []byte("after"))
	check(t, s, 99, 1, []byte("after"))
}

func checkCrashFile(t *testing.T, s *Store, f bb.FileID, step int, clean bool) {
	t.Helper()
	want := crashContent(step)
	sum, size, err := s.Checksum(f, bb.Generation(step))
	if err != nil || size != 2000 || sum != checksum.Sum(want) {
		t.Errorf("file %s, acknowledged at step %d: %d bytes, checksum %x, %v", f, step, size, sum, err)
		return
	}
	v, err := s.Snapshot(f, bb.Generation(step))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, e := range v.Extents(0, 2000, 0) {
		if e.State == Evicted && !clean {
			t.Errorf("file %s: dirty bytes were evicted", f)
			return
		}
	}
	p, err := v.Pin(0, 2000)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if err := v.Verify(context.Background(), 0, 2000); err != nil {
		t.Error(err)
	}
}
