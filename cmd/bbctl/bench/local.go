package bench

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
)

// Rows 1 to 4 and 15: bytes between an application's memory and regions.

// localPair is the ground that local rows share: a scratch buffer, what is written, and
// memory like the regions for the limit.
type localPair struct {
	e      *env
	buffer *client.Buffer
	done   func() error
	source []byte
	target []byte
}

func newLocalPair(ctx context.Context, e *env) (*localPair, error) {
	if _, err := e.connect(ctx); err != nil {
		return nil, err
	}
	if err := e.fits(ctx, 2*e.sizes.File); err != nil {
		return nil, err
	}
	source, err := e.data(e.sizes.File)
	if err != nil {
		return nil, err
	}
	target, err := e.limitMemory(e.sizes.File)
	if err != nil {
		return nil, err
	}
	b, done, err := e.buffer(ctx, admin.BufferSpec{})
	return &localPair{e: e, buffer: b, done: done, source: source, target: target}, err
}

// warm writes as many bytes as the daemon has memory, so that this process has mapped
// every region, and returns how fast the very first file was.
func (p *localPair) warm(ctx context.Context) (*Figure, error) {
	s, err := p.e.status(ctx)
	if err != nil {
		return nil, err
	}
	var first *Figure
	for n := int64(0); n <= s.Memory.Capacity+p.e.sizes.File; n += p.e.sizes.File {
		took, err := p.write(ctx, "warm")
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = figure("the first file of a session, while it maps regions", BytesPerSecond, []float64{rate(p.e.sizes.File, took)})
		}
	}
	return first, nil
}

// write writes the source as a file that goes away before the next one comes.
func (p *localPair) write(ctx context.Context, name string) (time.Duration, error) {
	began := time.Now()
	err := writeFile(ctx, p.buffer, name, p.source, int64(len(p.source)))
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	return took, p.buffer.Remove(ctx, name)
}

func localWrite(ctx context.Context, e *env) (_ []Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	first, err := p.warm(ctx)
	if err != nil {
		return nil, err
	}
	var limit limits
	var plain, ours []float64
	for range e.sizes.Rounds {
		// The plain copy comes first, so that limit and result both find in the caches
		// what another pass over the same bytes has left there.
		plain = append(plain, rate(e.sizes.File, plainPass(p.target, p.source)))
		limit.rates(p.target, p.source)
		took, err := p.write(ctx, "file")
		if err != nil {
			return nil, err
		}
		ours = append(ours, rate(e.sizes.File, took))
	}
	size := quantity(float64(e.sizes.File), Bytes)
	return []Result{{
		Goal:    ratioGoal("0.9", 0.9),
		Limit:   limit.best("one pass of checksum and copy of "+size+" into "+e.target.kind, BytesPerSecond),
		Result:  figure("create, write "+size+" in 1 MiB writes, close", BytesPerSecond, ours),
		Details: []*Figure{figure("plain copy of the same bytes", BytesPerSecond, plain), first},
	}}, nil
}

func localRead(ctx context.Context, e *env) (_ []Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	if err := writeFile(ctx, p.buffer, "file", p.source, e.sizes.File); err != nil {
		return nil, err
	}
	into, err := anonymous(e.sizes.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, into.free()) }()
	ways[0].pass(p.target, p.source)
	_, sum := ways[0].pass(into.bytes, p.target)
	if _, err := readFile(ctx, p.buffer, "file", into.bytes); err != nil { // maps the regions
		return nil, err
	}
	var limit limits
	var ours []float64
	for range e.sizes.Rounds {
		limit.rates(into.bytes, p.target)
		took, err := readFile(ctx, p.buffer, "file", into.bytes)
		if err != nil {
			return nil, err
		}
		ours = append(ours, rate(e.sizes.File, took))
		if _, got := ways[0].pass(p.target, into.bytes); got != sum {
			return nil, errors.New("the bytes read are not those written")
		}
	}
	size := quantity(float64(e.sizes.File), Bytes)
	return []Result{{
		Goal:   ratioGoal("0.9", 0.9),
		Limit:  limit.best("one pass of checksum and copy of "+size+" out of "+e.target.kind, BytesPerSecond),
		Result: figure("open, read "+size+" in 1 MiB reads into the same memory, verified, close", BytesPerSecond, ours),
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
	for at := 0; at < len(p); at += step {
		if _, err := io.ReadFull(f, p[at:min(at+step, len(p))]); err != nil {
			return 0, err
		}
	}
	err = f.Close()
	return time.Since(began), err
}

func mappedRead(ctx context.Context, e *env) (_ []Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	small, err := p.timeMappings(ctx, step)
	if err != nil {
		return nil, err
	}
	large, err := p.timeMappings(ctx, e.sizes.File)
	if err != nil {
		return nil, err
	}
	call := functionCalls(e.sizes.Small)
	still := large.still(e.sizes.File)
	size := quantity(float64(e.sizes.File), Bytes)
	return []Result{{
		Goal: Goal{Text: "no byte moved"}, Reached: &still,
		Limit:  figure("a function call", Seconds, call),
		Result: figure("map all of a file of "+size+" and release it", Seconds, large.times),
		Details: []*Figure{
			figure("the same of a file of 1 MiB", Seconds, small.times),
			figure("allocated by one mapping of "+size, Bytes, []float64{large.allocated}),
			figure("slices of one mapping of "+size, "slices", []float64{float64(large.slices)}),
		},
		Notes: []string{fmt.Sprintf("two mappings of the file were the same memory: %v", large.same)},
	}}, nil
}

// mappings is what mapping a file many times showed.
type mappings struct {
	times     []float64
	allocated float64 // bytes for one mapping: a copy would need as many as the file has
	slices    int
	same      bool // two mappings were the same memory
}

// still reports whether what was seen rules out that the file's bytes were moved: both
// mappings were one memory, and nothing of the file's size was allocated.
func (m mappings) still(size int64) bool { return m.same && m.allocated < float64(size)/100 }

func (p *localPair) timeMappings(ctx context.Context, size int64) (m mappings, err error) {
	if err := writeFile(ctx, p.buffer, "mapped", p.source, size); err != nil {
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
	times := make([]time.Duration, p.e.sizes.Small)
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
	m.times, m.allocated = seconds(times), float64(after.TotalAlloc-before.TotalAlloc)/float64(len(times))
	return m, nil
}

// sameMemory maps a file twice and says whether both are the same memory.
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

func manyWriters(ctx context.Context, e *env) (_ []Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	if err := e.fits(ctx, writers*e.sizes.File); err != nil {
		return nil, err
	}
	part := e.sizes.File / writers / step * step
	w := writer{Address: "unix://" + e.daemon.socket, Buffer: p.buffer.Name(), Bytes: e.sizes.File, Source: part}
	c, err := startCrew(writers, workWrite, w.args()...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.dismiss()) }()
	if err := c.await(); err != nil {
		return nil, err
	}
	var limit limits
	var ours []float64
	for round := range e.sizes.Rounds + warmRounds {
		took, err := p.writeTogether(ctx, c, round)
		if err != nil {
			return nil, err
		}
		if round < warmRounds {
			continue // each process maps the regions
		}
		ours = append(ours, rate(writers*e.sizes.File, took))
		err = limit.measure(func(w way) (float64, error) {
			return rate(writers*e.sizes.File, w.together(p.target, p.source, part, e.sizes.File)), nil
		})
		if err != nil {
			return nil, err
		}
	}
	size, from := quantity(float64(e.sizes.File), Bytes), quantity(float64(part), Bytes)
	return []Result{{
		Goal:   ratioGoal("0.9", 0.9),
		Limit:  limit.best(fmt.Sprintf("%d threads, each checksum and copy of %s from %s of its own into %s", writers, size, from, e.target.kind), BytesPerSecond),
		Result: figure(fmt.Sprintf("%d processes, each create, write %s in 1 MiB writes from %s of its own, close", writers, size, from), BytesPerSecond, ours),
	}}, nil
}

// together is the copy limit with as many threads as writers, each with its part of
// the memory, for n bytes each.
func (w way) together(target, source []byte, part, n int64) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
	for i := range int64(writers) {
		from, to := source[i*part:(i+1)*part], target[i*part:(i+1)*part]
		wg.Go(func() {
			for left := n; left > 0; left -= part {
				w.pass(to, from[:min(left, part)])
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// writeTogether has every worker write a file, which are removed afterwards.
func (p *localPair) writeTogether(ctx context.Context, c *crew, round int) (time.Duration, error) {
	orders := make([]order, writers)
	for i := range orders {
		orders[i].Path = fmt.Sprintf("r%d-%d", round, i)
	}
	began := time.Now()
	err := c.work(orders)
	took := time.Since(began)
	for _, o := range orders {
		err = errors.Join(err, p.buffer.Remove(ctx, o.Path))
	}
	return took, err
}

func processorTime(ctx context.Context, e *env) (_ []Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	if _, err := p.warm(ctx); err != nil {
		return nil, err
	}
	gib := float64(e.sizes.File) / (1 << 30)
	var limit limits
	var own, daemons, total []float64
	for range e.sizes.Rounds {
		err := limit.measure(func(w way) (float64, error) {
			used, err := timed(func() error { w.pass(p.target, p.source); return nil })
			return used.Seconds() / gib, err
		})
		if err != nil {
			return nil, err
		}
		before, err := processTime(e.daemon.pid)
		if err != nil {
			return nil, err
		}
		mine, err := timed(func() error { _, err := p.write(ctx, "file"); return err })
		if err != nil {
			return nil, err
		}
		after, err := processTime(e.daemon.pid)
		if err != nil {
			return nil, err
		}
		theirs := after - before
		own = append(own, mine.Seconds()/gib)
		daemons, total = append(daemons, theirs.Seconds()/gib), append(total, (mine+theirs).Seconds()/gib)
	}
	return []Result{{
		Goal:   ratioGoal("at most 1.2", 1.2),
		Limit:  limit.best("processor time of one pass of checksum and copy", CPUPerGiB),
		Result: figure("processor time of daemon and client for create, write, close, remove", CPUPerGiB, total),
		Details: []*Figure{
			figure("of which the client", CPUPerGiB, own), figure("of which the daemon", CPUPerGiB, daemons),
		},
		Notes: pidNote(e),
	}}, nil
}

// timed returns the processor time that this process used for fn.
func timed(fn func() error) (time.Duration, error) {
	before, err := ownTime()
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := ownTime()
	return after - before, err
}

func pidNote(e *env) []string {
	if e.daemon.ours() {
		return nil
	}
	return []string{fmt.Sprintf("the daemon at %s (process %d of %d) may serve others at the same time", e.daemon.socket, e.daemon.pid, os.Getpid())}
}
