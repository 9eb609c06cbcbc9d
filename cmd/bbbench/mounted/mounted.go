package mounted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
	"forebay/internal/measure"
)

const (
	block    = 1 << 20
	small    = 4 << 10
	programs = 8   // at once, of row 21
	warm     = 100 // names that each of them stats
)

// figures are the rates at each place, by its name, a value a round.
type figures map[string][]float64

// result compares the mount with the tmpfs. The other places are details.
func (f figures) result(what string, unit measure.Unit, goal report.Goal, notes []string) report.Result {
	r := report.Result{
		What: what, Goal: goal, Notes: notes,
		Limit:  measure.Of(what+", on "+tmpfs, unit, f[tmpfs]),
		Result: measure.Of(what+", on "+buffer, unit, f[buffer]),
	}
	for _, name := range []string{ext4, rclone} {
		if len(f[name]) > 0 {
			r.Details = append(r.Details, measure.Of(what+", on "+name, unit, f[name]))
		}
	}
	return r
}

// Copy is row 20: dd writes a file, and reads it.
func Copy(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := mountAll(ctx, e, 2*e.Sizes.File, "always")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	writes, reads := figures{}, figures{}
	for round := range e.Sizes.Rounds + 1 {
		for _, at := range p.all {
			file := filepath.Join(at.dir, "f")
			write, err := dd(ctx, e.Sizes.File, "if=/dev/zero", "of="+file, fmt.Sprint("count=", e.Sizes.File/block))
			if err != nil {
				return nil, err
			}
			read, err := dd(ctx, e.Sizes.File, "if="+file, "of=/dev/null")
			if err != nil {
				return nil, err
			}
			if err := os.Remove(file); err != nil {
				return nil, err
			}
			if round > 0 { // the first warms up
				writes[at.name], reads[at.name] = append(writes[at.name], write), append(reads[at.name], read)
			}
		}
	}
	goal := report.RatioGoal("0.9", 0.9)
	return []report.Result{
		writes.result("dd bs=1M, writing a new file", measure.BytesPerSecond, goal, p.notes),
		reads.result("dd bs=1M, reading it", measure.BytesPerSecond, goal, nil),
	}, nil
}

// dd returns the rate of a program that moves n bytes.
func dd(ctx context.Context, n int64, args ...string) (float64, error) {
	began := time.Now()
	err := run(exec.CommandContext(ctx, "dd", append([]string{"bs=1M", "status=none"}, args...)...))
	return float64(n) / time.Since(began).Seconds(), err
}

// Small is row 21: processes create small files, and stat others.
func Small(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := mountAll(ctx, e, e.Sizes.File, "never")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.end()) }()
	n := e.Sizes.Small / 4
	crew, err := process.StartCrew(programs, process.WorkFiles, "--files", fmt.Sprint(n))
	if err != nil {
		return nil, err
	}
	dismiss := sync.OnceValue(crew.Dismiss)
	defer func() { err = errors.Join(err, dismiss()) }()
	defer context.AfterFunc(ctx, func() { _ = dismiss() })() // a worker may wait for a mount whose daemon was interrupted, too
	if err := crew.Await(); err != nil {
		return nil, err
	}
	creates, stats := figures{}, figures{}
	for round := range e.Sizes.Rounds + 1 {
		for _, at := range p.all {
			dir := filepath.Join(at.dir, fmt.Sprint("r", round))
			for _, o := range orders(dir, "") {
				if err := os.MkdirAll(o.Path, 0o755); err != nil {
					return nil, err
				}
			}
			var rates [3]float64
			for i, do := range []string{doCreate, doStat, doStat} { // the first stats of a name warm it
				began := time.Now()
				if err := crew.Work(orders(dir, do)); err != nil {
					return nil, err
				}
				rates[i] = measure.Rate(programs*n, time.Since(began))
			}
			if err := os.RemoveAll(dir); err != nil {
				return nil, err
			}
			if round > 0 {
				creates[at.name], stats[at.name] = append(creates[at.name], rates[0]), append(stats[at.name], rates[2])
			}
		}
	}
	of := fmt.Sprintf(", %d processes, each in a directory of its own", programs)
	return []report.Result{
		creates.result("create, write 4 KiB, close"+of, measure.PerSecond, report.Goal{Text: "25 thousand/s", Bound: 25e3, Absolute: true}, p.notes),
		stats.result("stat of warm names"+of, measure.PerSecond, report.Goal{Text: "500 thousand/s", Bound: 500e3, Absolute: true}, nil),
	}, nil
}

// What an order has a worker do in a directory.
const (
	doCreate = "create"
	doStat   = "stat"
)

// orders has every worker do something in a directory of its own, below dir. The kernel has one program at a time create a
// name in a directory.
func orders(dir, do string) (all []process.Order) {
	for i := range programs {
		all = append(all, process.Order{Do: do, Path: filepath.Join(dir, fmt.Sprint("p", i))})
	}
	return all
}

// ServeFiles creates n files, or makes n calls of stat, in the directory of each order.
func ServeFiles(n int, in io.Reader, out io.Writer) error {
	data := make([]byte, small)
	return process.Obey(in, out, func(o process.Order) error {
		for i := range n {
			if err := one(o, i, data); err != nil {
				return bb.Wrap("bench", o.Path, err)
			}
		}
		return nil
	})
}

func one(o process.Order, i int, data []byte) error {
	switch o.Do {
	case doCreate:
		f, err := os.OpenFile(fmt.Sprint(o.Path, "/", i), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return errors.Join(err, f.Close())
	case doStat:
		_, err := os.Stat(fmt.Sprint(o.Path, "/", i%warm))
		return err
	}
	return testbed.Invalid("order", o.Do, "there is none of that name")
}
