// Package datapath measures rows 1 to 6, 15 and 18: bytes between the memory of applications and
// regions of a daemon, on this machine and as from another. It must never depend on a store.
package datapath

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Rows 1 to 4 and 15: bytes between an application's memory and regions.

// localPair is the ground that local rows share: a scratch buffer, the bytes to write, and
// memory like the regions for the limit.
type localPair struct {
	e      *testbed.Env
	buffer *client.Buffer
	done   func() error
	source []byte
	target []byte
}

func newLocalPair(ctx context.Context, e *testbed.Env) (*localPair, error) {
	if _, err := e.Connect(ctx); err != nil {
		return nil, err
	}
	if err := e.Fits(ctx, 2*e.Sizes.File); err != nil {
		return nil, err
	}
	source, err := e.Data(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	target, err := e.LimitMemory(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	b, done, err := e.Buffer(ctx, admin.BufferSpec{})
	return &localPair{e: e, buffer: b, done: done, source: source, target: target}, err
}

// warm writes as many bytes as the daemon has memory, so that this process has mapped
// every region, and returns how fast the very first file was.
func (p *localPair) warm(ctx context.Context) (*measure.Figure, error) {
	s, err := p.e.Status(ctx)
	if err != nil {
		return nil, err
	}
	var first *measure.Figure
	for n := int64(0); n <= s.Memory.Capacity+p.e.Sizes.File; n += p.e.Sizes.File {
		took, err := p.write(ctx, "warm")
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = measure.Of("the first file of a session, while it maps regions", measure.BytesPerSecond, []float64{measure.Rate(p.e.Sizes.File, took)})
		}
	}
	return first, nil
}

// write writes the source as a file that goes away before the next one comes.
func (p *localPair) write(ctx context.Context, name string) (time.Duration, error) {
	began := time.Now()
	err := testbed.WriteFile(ctx, p.buffer, name, p.source, int64(len(p.source)))
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return took, p.buffer.Remove(ctx, name)
}

// Write is row 1.
func Write(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	first, err := p.warm(ctx)
	if err != nil {
		return nil, err
	}
	var limit hostlimit.Limits
	var plain, ours []float64
	for range e.Sizes.Rounds {
		// The plain copy comes first, so that limit and result both find the caches as another pass
		// over the same bytes leaves them.
		plain = append(plain, measure.Rate(e.Sizes.File, hostlimit.PlainPass(p.target, p.source)))
		limit.Rates(p.target, p.source)
		took, err := p.write(ctx, "file")
		if err != nil {
			return nil, err
		}
		ours = append(ours, measure.Rate(e.Sizes.File, took))
	}
	size := measure.Quantity(float64(e.Sizes.File), measure.Bytes)
	return []report.Result{{
		Goal:    report.RatioGoal("0.9", 0.9),
		Limit:   limit.Best("one pass of checksum and copy of "+size+" into "+e.Target.Kind, measure.BytesPerSecond),
		Result:  measure.Of("create, write "+size+" in 1 MiB writes, close", measure.BytesPerSecond, ours),
		Details: []*measure.Figure{measure.Of("plain copy of the same bytes", measure.BytesPerSecond, plain), first},
	}}, nil
}

// Read is row 2.
func Read(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	if err := testbed.WriteFile(ctx, p.buffer, "file", p.source, e.Sizes.File); err != nil {
		return nil, err
	}
	into, err := hostlimit.Anonymous(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.Free()) }()
	hostlimit.Ways[0].Pass(p.target, p.source)
	_, sum := hostlimit.Ways[0].Pass(into.Bytes, p.target)
	if _, err := readFile(ctx, p.buffer, "file", into.Bytes); err != nil { // maps the regions
		return nil, err
	}
	var limit hostlimit.Limits
	var ours []float64
	for range e.Sizes.Rounds {
		limit.Rates(into.Bytes, p.target)
		took, err := readFile(ctx, p.buffer, "file", into.Bytes)
		if err != nil {
			return nil, err
		}
		ours = append(ours, measure.Rate(e.Sizes.File, took))
		if _, got := hostlimit.Ways[0].Pass(p.target, into.Bytes); got != sum {
			return nil, errors.New("the bytes read are not those written")
		}
	}
	size := measure.Quantity(float64(e.Sizes.File), measure.Bytes)
	return []report.Result{{
		Goal:   report.RatioGoal("0.9", 0.9),
		Limit:  limit.Best("one pass of checksum and copy of "+size+" out of "+e.Target.Kind, measure.BytesPerSecond),
		Result: measure.Of("open, read "+size+" in 1 MiB reads into the same memory, verified, close", measure.BytesPerSecond, ours),
	}}, nil
}

// readFile reads a whole file in steps into p.
func readFile(ctx context.Context, b *client.Buffer, path string, p []byte) (time.Duration, error) {
	began := time.Now()
	f, err := b.Open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer f.Abort()
	for at := 0; at < len(p); at += hostlimit.Step {
		if _, err := io.ReadFull(f, p[at:min(at+hostlimit.Step, len(p))]); err != nil {
			return 0, err
		}
	}
	err = f.Close()
	return time.Since(began), err
}

// Mapped is row 3.
func Mapped(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	small, err := p.timeMappings(ctx, hostlimit.Step)
	if err != nil {
		return nil, err
	}
	large, err := p.timeMappings(ctx, e.Sizes.File)
	if err != nil {
		return nil, err
	}
	call := functionCalls(e.Sizes.Small)
	still := large.still(e.Sizes.File)
	size := measure.Quantity(float64(e.Sizes.File), measure.Bytes)
	return []report.Result{{
		Goal: report.Goal{Text: "no byte moved"}, Reached: &still,
		Limit:  measure.Of("a function call", measure.Seconds, call),
		Result: measure.Of("map all of a file of "+size+" and release it", measure.Seconds, large.times),
		Details: []*measure.Figure{
			measure.Of("the same of a file of 1 MiB", measure.Seconds, small.times),
			measure.Of("allocated by one mapping of "+size, measure.Bytes, []float64{large.allocated}),
			measure.Of("slices of one mapping of "+size, "slices", []float64{float64(large.slices)}),
		},
		Notes: []string{fmt.Sprintf("two mappings of the file were the same memory: %v", large.same)},
	}}, nil
}

// mappings is the result of mapping a file many times.
type mappings struct {
	times     []float64
	allocated float64 // bytes for one mapping, since a copy would need as many as the file has
	slices    int
	same      bool // two mappings were the same memory
}

// still reports whether the observations rule out that the file's bytes were moved. Both mappings
// were one memory, and nothing of the file's size was allocated.
func (m mappings) still(size int64) bool { return m.same && m.allocated < float64(size)/100 }

func (p *localPair) timeMappings(ctx context.Context, size int64) (m mappings, err error) {
	if err := testbed.WriteFile(ctx, p.buffer, "mapped", p.source, size); err != nil {
		return m, err
	}
	f, err := p.buffer.Open(ctx, "mapped")
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if m.slices, m.same, err = sameMemory(f, size); err != nil {
		return m, err
	}
	var before, after runtime.MemStats
	times := make([]time.Duration, p.e.Sizes.Small)
	runtime.ReadMemStats(&before)
	for i := range times {
		began := time.Now()
		mapping, err := f.Map(0, size)
		if err != nil {
			return m, err
		}
		if err := mapping.Release(); err != nil {
			return m, err
		}
		times[i] = time.Since(began)
	}
	runtime.ReadMemStats(&after)
	m.times, m.allocated = measure.InSeconds(times), float64(after.TotalAlloc-before.TotalAlloc)/float64(len(times))
	return m, nil
}

// sameMemory maps a file twice and reports whether both are the same memory.
func sameMemory(f *client.File, size int64) (slices int, same bool, err error) {
	one, err := f.Map(0, size)
	if err != nil {
		return 0, false, err
	}
	defer one.Release()
	two, err := f.Map(0, size)
	if err != nil {
		return 0, false, err
	}
	defer two.Release()
	a, b := one.Slices(), two.Slices()
	if one.Len() != size || two.Len() != size || len(a) != len(b) {
		return 0, false, fmt.Errorf("mapped %d and %d of %d bytes", one.Len(), two.Len(), size)
	}
	for i := range a {
		if &a[i][0] != &b[i][0] {
			return len(a), false, nil
		}
	}
	return len(a), true, nil
}

// functionCalls times a call that cannot be inlined, a thousand at a time.
func functionCalls(n int) []float64 {
	const calls = 1000
	times := make([]float64, n)
	call, sink := nothing, 0
	for i := range times {
		began := time.Now()
		for range calls {
			sink = call(sink)
		}
		times[i] = time.Since(began).Seconds() / calls
	}
	return times
}

//go:noinline
func nothing(n int) int { return n + 1 }

const (
	writers    = 4 // clients of row 4
	warmRounds = 2 // in which they map the regions
)

// Writers is row 4.
func Writers(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	if err := e.Fits(ctx, writers*e.Sizes.File); err != nil {
		return nil, err
	}
	part := e.Sizes.File / writers / hostlimit.Step * hostlimit.Step
	w := testbed.Writer{Address: "unix://" + e.Daemon.Socket, Buffer: p.buffer.Name(), Bytes: e.Sizes.File, Source: part}
	c, err := process.StartCrew(writers, process.WorkWrite, w.Args()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Dismiss()) }()
	if err := c.Await(); err != nil {
		return nil, err
	}
	var limit hostlimit.Limits
	var ours []float64
	for round := range e.Sizes.Rounds + warmRounds {
		took, err := p.writeTogether(ctx, c, round)
		if err != nil {
			return nil, err
		}
		if round < warmRounds {
			continue // each process maps the regions
		}
		ours = append(ours, measure.Rate(writers*e.Sizes.File, took))
		err = limit.Measure(func(w hostlimit.Way) (float64, error) {
			return measure.Rate(writers*e.Sizes.File, together(w, p.target, p.source, part, e.Sizes.File)), nil
		})
		if err != nil {
			return nil, err
		}
	}
	size, from := measure.Quantity(float64(e.Sizes.File), measure.Bytes), measure.Quantity(float64(part), measure.Bytes)
	return []report.Result{{
		Goal:   report.RatioGoal("0.9", 0.9),
		Limit:  limit.Best(fmt.Sprintf("%d threads, each checksum and copy of %s from %s of its own into %s", writers, size, from, e.Target.Kind), measure.BytesPerSecond),
		Result: measure.Of(fmt.Sprintf("%d processes, each create, write %s in 1 MiB writes from %s of its own, close", writers, size, from), measure.BytesPerSecond, ours),
	}}, nil
}

// together is the copy limit with as many threads as writers, each with its part of
// the memory, for n bytes each.
func together(w hostlimit.Way, target, source []byte, part, n int64) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for i := range int64(writers) {
		from, to := source[i*part:(i+1)*part], target[i*part:(i+1)*part]
		wg.Go(func() {
			for left := n; left > 0; left -= part {
				w.Pass(to, from[:min(left, part)])
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// writeTogether has every worker write a file, which are removed afterwards.
func (p *localPair) writeTogether(ctx context.Context, c *process.Crew, round int) (time.Duration, error) {
	orders := make([]process.Order, writers)
	for i := range orders {
		orders[i].Path = fmt.Sprintf("r%d-%d", round, i)
	}
	began := time.Now()
	err := c.Work(orders)
	took := time.Since(began)
	for _, o := range orders {
		err = errors.Join(err, p.buffer.Remove(ctx, o.Path))
	}
	return took, err
}

// ProcessorTime is row 15.
func ProcessorTime(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	if _, err := p.warm(ctx); err != nil {
		return nil, err
	}
	gib := float64(e.Sizes.File) / (1 << 30)
	var limit hostlimit.Limits
	var own, daemons, total []float64
	for range e.Sizes.Rounds {
		err := limit.Measure(func(w hostlimit.Way) (float64, error) {
			used, err := timed(func() error { w.Pass(p.target, p.source); return nil })
			return used.Seconds() / gib, err
		})
		if err != nil {
			return nil, err
		}
		before, err := testbed.ProcessTime(e.Daemon.Pid)
		if err != nil {
			return nil, err
		}
		mine, err := timed(func() error { _, err := p.write(ctx, "file"); return err })
		if err != nil {
			return nil, err
		}
		after, err := testbed.ProcessTime(e.Daemon.Pid)
		if err != nil {
			return nil, err
		}
		theirs := after - before
		own = append(own, mine.Seconds()/gib)
		daemons, total = append(daemons, theirs.Seconds()/gib), append(total, (mine+theirs).Seconds()/gib)
	}
	return []report.Result{{
		Goal:   report.RatioGoal("at most 1.2", 1.2),
		Limit:  limit.Best("processor time of one pass of checksum and copy", measure.CPUPerGiB),
		Result: measure.Of("processor time of daemon and client for create, write, close, remove", measure.CPUPerGiB, total),
		Details: []*measure.Figure{
			measure.Of("of which the client", measure.CPUPerGiB, own), measure.Of("of which the daemon", measure.CPUPerGiB, daemons),
		},
		Notes: pidNote(e),
	}}, nil
}

// timed returns the processor time that this process used for fn.
func timed(fn func() error) (time.Duration, error) {
	before, err := testbed.OwnTime()
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := testbed.OwnTime()
	return after - before, err
}

func pidNote(e *testbed.Env) []string {
	if e.Daemon.Ours() {
		return nil
	}
	return []string{fmt.Sprintf("the daemon at %s (process %d of %d) may serve others at the same time", e.Daemon.Socket, e.Daemon.Pid, os.Getpid())}
}
