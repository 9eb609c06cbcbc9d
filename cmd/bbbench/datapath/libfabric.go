package datapath

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
	"forebay/rdma"
	"forebay/rdma/ofi"
	"forebay/rdma/ofi/fi"
	"forebay/rdma/tcp"
)

// Row 6: bytes between two processes over libfabric, by its own provider over TCP on
// loopback: files as in row 5, and below them one-sided operations.

// overTCP is the libfabric that the row is about, which every machine has.
var overTCP = fi.Want{Provider: "tcp", Endpoint: fi.Message, Address: "127.0.0.1"}

const (
	fabricMemory = 64 << 20 // bytes that one-sided operations go round in
	large        = 1 << 20
	small        = 4 << 10
	window       = 64 // of the limit for large operations: the window of fi_rma_bw
)

// Libfabric is row 6.
func Libfabric(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	if !fi.Supported {
		return nil, measure.Cannot("this bbbench was built without libfabric: bbbench-ofi measures it")
	}
	if e.Opts.Socket != "" {
		return nil, measure.Cannot("it needs a daemon of its own, which listens over libfabric: run it without --socket")
	}
	e.Further = []string{"--fabric-ofi", "on", "--fabric-provider", overTCP.Provider, "--fabric-address", overTCP.Address}
	defer func() { e.Further = nil }()
	var results []report.Result
	err := e.WithMemory(ctx, e.Sizes.Memory(), func() (err error) {
		results, err = libfabricFiles(ctx, e)
		return err
	})
	if err != nil {
		return results, err
	}
	below, err := oneSided(ctx, e)
	return append(results, below...), err
}

// libfabricFiles writes and reads a file over libfabric, in turns with libfabric alone.
func libfabricFiles(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	times, err := remoteRounds(ctx, e, raw{}, func() error { return goesBy(ctx, e, "ofi/"+overTCP.Provider) })
	if err != nil {
		return nil, err
	}
	size := measure.Quantity(float64(e.Sizes.File), measure.Bytes)
	return []report.Result{{
		What: "remote write, ofi over tcp, 1 MiB", Goal: report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of(fmt.Sprintf("fi_write of 1 MiB, %d in flight, as fi_rma_bw does it, %s", window, size), measure.BytesPerSecond, times.sent),
		Result: measure.Of("create, write "+size+" in 1 MiB writes, close, over libfabric", measure.BytesPerSecond, times.written),
	}, {
		What: "remote read, ofi over tcp, 1 MiB", Goal: report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of(fmt.Sprintf("fi_read of 1 MiB, %d in flight, %s", window, size), measure.BytesPerSecond, times.received),
		Result: measure.Of("open, read "+size+" in 1 MiB reads, verified, close, over libfabric", measure.BytesPerSecond, times.read),
	}}, nil
}

// goesBy fails unless some session of the daemon's goes a way.
func goesBy(ctx context.Context, e *testbed.Env, path string) error {
	s, err := e.Status(ctx)
	if err != nil {
		return err
	}
	for _, session := range s.Sessions {
		if session.Path == path {
			return nil
		}
	}
	return fmt.Errorf("no session goes by %s: %+v", path, s.Sessions)
}

// oneSided compares rdma/ofi with libfabric alone, and its processor time with the provider without
// libfabric.
func oneSided(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	ours, err := startFabricPair(ctx, "ofi")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ours.stop()) }()
	plain, err := startFabricPair(ctx, "tcp")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.stop()) }()
	cases := []fabricCase{
		{"write of 1 MiB", measure.BytesPerSecond, fi.RawWrite, large, window, e.Sizes.File / large},
		{"write of 4 KiB, until it is there", measure.Seconds, fi.RawDeliver, small, 1, int64(e.Sizes.Small)},
		{"read of 4 KiB", measure.Seconds, fi.RawRead, small, 1, int64(e.Sizes.Small)},
		{"writes of 4 KiB, 1 in flight", measure.PerSecond, fi.RawDeliver, small, 1, int64(e.Sizes.Small)},
		{"writes of 4 KiB, 4 in flight", measure.PerSecond, fi.RawDeliver, small, 4, int64(e.Sizes.Small)},
		{"writes of 4 KiB, 16 in flight", measure.PerSecond, fi.RawDeliver, small, 16, int64(e.Sizes.Small)},
	}
	var results []report.Result
	for _, c := range cases {
		r, err := c.compare(ctx, e, ours)
		if err != nil {
			return results, fmt.Errorf("%s: %w", c.what, err)
		}
		results = append(results, r)
	}
	var cpu [2][]float64
	for range e.Sizes.Rounds {
		for i, p := range []*fabricPair{plain, ours} {
			used, err := p.processorTime(ctx, e.Sizes.File)
			if err != nil {
				return results, err
			}
			cpu[i] = append(cpu[i], used)
		}
	}
	return append(results, report.Result{
		What:   "processor time of writes of 1 MiB",
		Limit:  measure.Of("rdma/tcp, both processes", measure.CPUPerGiB, cpu[0]),
		Result: measure.Of("rdma/ofi over libfabric's tcp, both processes", measure.CPUPerGiB, cpu[1]),
	}), nil
}

// fabricCase is one kind of operation.
type fabricCase struct {
	what  string
	unit  measure.Unit
	op    fi.RawOp
	size  int
	depth int
	count int64
}

// compare measures libfabric alone and ours in turns.
func (c fabricCase) compare(ctx context.Context, e *testbed.Env, ours *fabricPair) (report.Result, error) {
	var limit, result []float64
	for round := range e.Sizes.Rounds + 1 {
		alone, err := raw{}.run(c.op, c.size, c.depth, c.count)
		if err != nil {
			return report.Result{}, err
		}
		took, err := ours.run(ctx, c.op, c.size, c.depth, c.count)
		if err != nil {
			return report.Result{}, err
		}
		if round > 0 { // the first one warms up
			limit, result = append(limit, c.value(alone)), append(result, c.value(took))
		}
	}
	return report.Result{
		What:   c.what,
		Limit:  measure.Of(fmt.Sprintf("libfabric alone, one thread that polls, %d in flight", c.depth), c.unit, limit),
		Result: measure.Of("rdma/ofi", c.unit, result),
	}, nil
}

func (c fabricCase) value(took time.Duration) float64 {
	switch {
	case c.unit == measure.BytesPerSecond:
		return measure.Rate(c.count*int64(c.size), took)
	case c.unit == measure.PerSecond:
		return measure.Rate(c.count, took)
	default:
		return took.Seconds() / float64(c.count)
	}
}

// raw is libfabric alone between this process and a worker. Both poll until they end, so each
// measurement has a pair of its own.
type raw struct{}

func (raw) run(op fi.RawOp, size, depth int, count int64) (_ time.Duration, err error) {
	worker, err := process.StartCrew(1, process.WorkRaw, "--bytes", fmt.Sprint(fabricMemory))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, worker.Dismiss()) }()
	there, err := worker.Ready()
	if err != nil {
		return 0, err
	}
	near, err := fi.OpenRaw(overTCP.Provider, overTCP.Address, fabricMemory)
	if err != nil {
		return 0, err
	}
	defer near.Close()
	if err := near.Connect(there.Address); err != nil {
		return 0, err
	}
	if _, err := near.Run(op, size, depth, max(1, count/10)); err != nil { // warms up
		return 0, err
	}
	return near.Run(op, size, depth, count)
}

// move is the work of plain connections in row 5: as many bytes, there or back.
func (r raw) move(b []byte, send bool) (time.Duration, error) {
	op := fi.RawRead
	if send {
		op = fi.RawWrite
	}
	return r.run(op, large, window, int64(len(b)/large))
}

// ServeRaw is the worker at the other end.
func ServeRaw(size int64, out io.Writer) error {
	r, err := fi.OpenRaw(overTCP.Provider, overTCP.Address, size)
	if err != nil {
		return err
	}
	defer r.Close()
	address, err := r.Listen()
	if err == nil {
		err = json.NewEncoder(out).Encode(process.Outcome{Address: address})
	}
	if err != nil {
		return err
	}
	return r.Serve()
}

// newFabric opens a provider of package rdma.
func newFabric(provider string) (rdma.Fabric, error) {
	if provider == "tcp" {
		return tcp.New(tcp.Options{})
	}
	return ofi.New(ofi.Options{Want: overTCP})
}

// fabricPair is a connection of package rdma between this process and a worker.
type fabricPair struct {
	fabric rdma.Fabric
	conn   rdma.Conn
	local  rdma.Region
	memory hostlimit.Memory
	key    rdma.RemoteKey
	queue  *rdma.Queue
	worker *process.Crew
	ops    []rdma.Op
	done   []rdma.Completion
}

func startFabricPair(ctx context.Context, provider string) (_ *fabricPair, err error) {
	p := &fabricPair{queue: rdma.NewQueue(window), ops: make([]rdma.Op, 1), done: make([]rdma.Completion, window)}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.worker, err = process.StartCrew(1, process.WorkTarget, "--provider", provider, "--bytes", fmt.Sprint(fabricMemory)); err != nil {
		return nil, err
	}
	there, err := p.worker.Ready()
	if err != nil {
		return nil, err
	}
	if p.key, err = rdma.DecodeRemoteKey(there.Key); err != nil {
		return nil, err
	}
	if p.fabric, err = newFabric(provider); err != nil {
		return nil, err
	}
	if p.memory, err = hostlimit.Anonymous(fabricMemory); err != nil {
		return nil, err
	}
	hostlimit.Fill(p.memory.Bytes)
	if p.local, err = p.fabric.Register(p.memory.Bytes, rdma.AccessLocal); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, process.StartTime)
	defer cancel()
	p.conn, err = p.fabric.Dial(ctx, there.Address)
	return p, err
}

// run is Raw.Run of libfabric alone.
func (p *fabricPair) run(ctx context.Context, op fi.RawOp, size, depth int, count int64) (time.Duration, error) {
	began := time.Now()
	kind := rdma.OpWrite
	if op == fi.RawRead {
		kind = rdma.OpRead
	}
	posted := int64(0)
	for done := int64(0); done < count; {
		for ; posted < count && posted-done < int64(depth); posted++ {
			at := int(posted*int64(size)) % (fabricMemory / size * size)
			p.ops[0] = rdma.Op{Kind: kind, Local: p.memory.Bytes[at : at+size], Remote: rdma.Remote{Key: p.key, Offset: uint64(at)}}
			if _, err := p.conn.Post(ctx, p.queue, p.ops); err != nil {
				return 0, err
			}
		}
		n, err := p.queue.Wait(ctx, p.done)
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(p.done[:n], func(c rdma.Completion) bool { return c.Err != nil }); i >= 0 {
			return 0, p.done[i].Err
		}
		done += int64(n)
	}
	return time.Since(began), nil
}

// processorTime returns the processor seconds per GiB of both processes while n bytes
// are written.
func (p *fabricPair) processorTime(ctx context.Context, n int64) (float64, error) {
	before, err := p.used()
	if err != nil {
		return 0, err
	}
	if _, err := p.run(ctx, fi.RawDeliver, large, window, n/large); err != nil {
		return 0, err
	}
	after, err := p.used()
	return (after - before).Seconds() * (1 << 30) / float64(n), err
}

func (p *fabricPair) used() (time.Duration, error) {
	own, err := testbed.OwnTime()
	if err != nil {
		return 0, err
	}
	other, err := testbed.ProcessTime(p.worker.Pid())
	return own + other, err
}

func (p *fabricPair) stop() error {
	var errs []error
	if p.conn != nil {
		errs = append(errs, p.conn.Close())
	}
	if p.fabric != nil {
		errs = append(errs, p.fabric.Close())
	}
	if p.worker != nil {
		errs = append(errs, p.worker.Dismiss())
	}
	return errors.Join(append(errs, p.memory.Free())...)
}

// ServeTarget is the worker at the other end. It prints its address and the key to its memory, and
// takes one connection, until that ends.
func ServeTarget(ctx context.Context, provider string, size int64, out io.Writer) (err error) {
	fabric, err := newFabric(provider)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fabric.Close()) }()
	m, err := hostlimit.Anonymous(size)
	if err != nil {
		return err
	}
	hostlimit.Fill(m.Bytes)
	region, err := fabric.Register(m.Bytes, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		return err
	}
	l, err := fabric.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	key, _ := region.Key().AppendBinary(nil) // cannot fail
	if err := json.NewEncoder(out).Encode(process.Outcome{Address: l.Addr(), Key: key}); err != nil {
		return err
	}
	conn, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	select {
	case <-conn.Done():
		if err := conn.Err(); !errors.Is(err, rdma.ErrPeerGone) {
			return err
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
