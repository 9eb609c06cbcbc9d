package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// TestMain is also the worker that rows start: this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		root := &cobra.Command{Use: "bbctl"}
		root.AddCommand(NewCommand())
		if err := root.Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestChoose(t *testing.T) {
	numbers := func(rs []row) (n []int) {
		for _, r := range rs {
			n = append(n, r.number)
		}
		return n
	}
	all, err := choose(rows(), nil)
	if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}; err != nil || !slices.Equal(numbers(all), want) {
		t.Errorf("all rows: %v, %v", numbers(all), err)
	}
	some, err := choose(rows(), []string{"7,1", "2", "7"})
	if want := []int{1, 2, 7}; err != nil || !slices.Equal(numbers(some), want) {
		t.Errorf("some rows: %v, %v", numbers(some), err)
	}
	for _, bad := range []string{"0", "19", "-1", "x", "1x", "1e1"} {
		if _, err := choose(rows(), []string{bad}); !errors.Is(err, bb.Invalid) || !strings.Contains(err.Error(), bad) {
			t.Errorf("row %q: %v", bad, err)
		}
	}
}

func TestSizes(t *testing.T) {
	full, err := newSizes(false, "")
	if err != nil || full.File != 1<<30 || full.Burst != 8<<30 || full.memory() != 6<<30 {
		t.Errorf("full: %+v, %v", full, err)
	}
	odd, err := newSizes(true, "100MB")
	if err != nil || odd.File != 95<<20 || odd.memory() != 1<<30 {
		t.Errorf("100MB: %+v, %v", odd, err)
	}
	for _, bad := range []string{"1", "-1GiB", "100GiB", "many", "1GiBs"} {
		if _, err := newSizes(false, bad); !errors.Is(err, bb.Invalid) {
			t.Errorf("size %q: %v", bad, err)
		}
	}
}

func TestBurstSize(t *testing.T) {
	const gib = int64(1) << 30
	if got := burstSize(8*gib, 64*gib, gib); got != 8*gib {
		t.Errorf("a burst that fits is cut to %d", got)
	}
	if got := burstSize(8*gib, 10*gib, gib); got >= 6*gib || got <= 4*gib || got%flushFile != 0 {
		t.Errorf("with 10 GiB: %d", got)
	}
	if got := burstSize(8*gib, gib, gib); got != 0 {
		t.Errorf("with nothing left: %d", got)
	}
}

// TestLines holds how a row's end becomes lines, and what makes the command fail.
func TestLines(t *testing.T) {
	figures := func(context.Context, *env) ([]Result, error) {
		return []Result{{
			Goal: ratioGoal("0.9", 0.9), Limit: figure("limit", PerSecond, []float64{10}), Result: figure("ours", PerSecond, []float64{5}),
		}}, nil
	}
	good := row{1, "good", figures}.run(t.Context(), nil)
	if len(good) != 1 || good[0].Row != 1 || good[0].What != "good" || *good[0].Ratio != 0.5 || *good[0].Reached {
		t.Errorf("a measured row: %+v", good)
	}
	absent := row{2, "absent", func(context.Context, *env) ([]Result, error) { return nil, cannot("no store") }}.run(t.Context(), nil)
	broken := row{3, "broken", func(context.Context, *env) ([]Result, error) { return nil, errors.New("refused") }}.run(t.Context(), nil)
	lines := slices.Concat(good, absent, broken)
	if absent[0].Failed || absent[0].Result != nil || !broken[0].Failed {
		t.Errorf("absent %+v, broken %+v", absent, broken)
	}
	if err := failures(lines, false); err == nil || strings.Contains(err.Error(), "no store") || !strings.Contains(err.Error(), "row 3: refused") {
		t.Errorf("of all rows: %v", err)
	}
	if err := failures(slices.Concat(good, absent), false); err != nil {
		t.Errorf("a row that cannot be measured fails a run of all: %v", err)
	}
	if err := failures(absent, true); err == nil {
		t.Error("a row that was asked for and not measured is no error")
	}
	var table bytes.Buffer
	if err := (&Report{Rows: lines}).writeTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.50", "not reached", "not measured: no store", "not measured: refused", "limit:  limit: 10.0 /s"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
}

func TestArrivals(t *testing.T) {
	times := arrivals(10_000, time.Millisecond)
	if times[0] != 0 || !slices.IsSorted(times) {
		t.Fatal("arrivals are not in order from 0 on")
	}
	if mean := times[len(times)-1] / time.Duration(len(times)); mean < 950*time.Microsecond || mean > 1050*time.Microsecond {
		t.Errorf("mean distance %v, not 1ms", mean)
	}
	if !slices.Equal(times, arrivals(10_000, time.Millisecond)) {
		t.Error("two runs differ")
	}
}

func TestParseFio(t *testing.T) {
	took, err := parseFio([]byte(`{"fio version":"fio-3.33","jobs":[{"jobname":"limit","error":0,"write":{"io_bytes":1073741824,"bw_bytes":536870912,"runtime":2000}}]}`))
	if err != nil || took != 2*time.Second {
		t.Errorf("%v, %v", took, err)
	}
	for _, bad := range []string{``, `{}`, `{"jobs":[]}`, `{"jobs":[{"error":28,"write":{"runtime":1}}]}`, `{"jobs":[{"write":{"runtime":0}}]}`, `fio: laying out`} {
		if _, err := parseFio([]byte(bad)); err == nil {
			t.Errorf("%q is taken for an answer", bad)
		}
	}
}

func FuzzParseFio(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"error":0,"write":{"io_bytes":1,"runtime":2}}]}`))
	f.Add([]byte(`{"jobs":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if took, err := parseFio(text); err == nil && took == 0 {
			t.Error("writing took no time")
		}
	})
}

func TestSchedstat(t *testing.T) {
	if got, err := parseSchedstat("61352 1000 7\n"); err != nil || got != 61352 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 2", "a b c", "-1 2 3"} {
		if _, err := parseSchedstat(bad); err == nil {
			t.Errorf("%q is taken for schedstat", bad)
		}
	}
	if got, err := processTime(os.Getpid()); err != nil || got <= 0 {
		t.Errorf("of this process: %v, %v", got, err)
	}
}

func TestPass(t *testing.T) {
	src := make([]byte, 3*step+5)
	fill(src)
	dst := make([]byte, step+100) // shorter: written over and over
	want := checksum.Sum(src)
	for _, w := range ways {
		whole := make([]byte, len(src))
		_, short := w.pass(dst, src)
		_, long := w.pass(whole, src)
		if short != want || long != want || !bytes.Equal(whole, src) {
			t.Errorf("%s: a pass does not copy and sum everything", w.name)
		}
	}
}

func TestLimits(t *testing.T) {
	l := limits{{1, 2, 3}, {4, 5, 6}}
	if f := l.best("x", BytesPerSecond); f.Value != 5 || f.What != "x, "+ways[1].name {
		t.Errorf("the best rate: %+v", f)
	}
	if f := l.best("x", CPUPerGiB); f.Value != 2 || f.What != "x, "+ways[0].name {
		t.Errorf("the best time: %+v", f)
	}
}

func TestDirectWrite(t *testing.T) {
	dir := t.TempDir()
	if _, err := directWrite(t.Context(), dir, 4*step, 3); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "limit"))
	if err != nil || info.Size() != 4*step {
		t.Errorf("%v, %v", info, err)
	}
}

func TestPing(t *testing.T) {
	for _, kind := range []string{workEcho, workEchoNet} {
		p, err := startPing(kind)
		if err != nil {
			t.Fatal(err)
		}
		times, err := p.trips(50)
		if err != nil || len(times) != 50 || slices.Min(times) <= 0 {
			t.Errorf("%s: %v, %v", kind, times, err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"99"}, {"--size", "1"}, {"--rows", "x"}, {"--dir", "/does/not/exist", "1"}} {
		if _, err := command(t, args...); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	for _, args := range [][]string{{"--bbd", "/does/not/exist", "1"}, {"--socket", "/does/not/exist", "1"}, {"--socket", "tcp://127.0.0.1:1", "1"}, {"--quick", "12"}, {"--quick", "14", "--socket", "/does/not/exist"}} {
		out, err := command(t, args...)
		if err == nil || !strings.Contains(out, `"not_measured"`) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// command runs the command and returns what it printed.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := NewCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	errs := new(bytes.Buffer)
	cmd.SetErr(errs)
	cmd.SetArgs(append([]string{"--json"}, args...))
	err := cmd.ExecuteContext(t.Context())
	if testing.Verbose() {
		t.Logf("%s", errs)
	}
	return out.String(), err
}

func TestUserSizes(t *testing.T) {
	for _, x := range []struct {
		total int64
		users int
		files int
		size  int64
	}{
		{2 << 30, 1, 32, 64 << 20},
		{2 << 30, 20, 4, 25 << 20},
		{128 << 20, 3, 4, 10 << 20},
		{32 << 20, 100, 1, 1 << 20},
	} {
		if files, size := userSizes(x.total, x.users); files != x.files || size != x.size {
			t.Errorf("%d bytes by %d users: %d files of %d bytes", x.total, x.users, files, size)
		}
	}
}

func TestCheckUsers(t *testing.T) {
	for _, bad := range []options{{users: -1}, {users: mostUsers + 1}, {users: 1, socket: "x"}} {
		if err := checkUsers(bad); !errors.Is(err, bb.Invalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := checkUsers(options{}); err != nil {
		t.Error(err)
	}
	if err := checkUsers(options{users: 1}); (err == nil) != (os.Geteuid() == 0) {
		t.Errorf("as uid %d: %v", os.Geteuid(), err)
	}
}
