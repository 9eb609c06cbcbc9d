// Package latency measures rows 7 to 10: operations that move few bytes, and how many of them are done in a
// second. It must never depend on a store.
package latency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Rows 7 to 10: small operations.

const (
	smallFile = 4 << 10
	inFlight  = 64
)

// Sync is row 7.
func Sync(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	b, done, err := e.Buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	f, err := b.OpenFile(ctx, "log", client.OpenOptions{Write: true, Create: true, Append: true})
	if err != nil {
		return nil, err
	}
	defer f.Abort()
	raw, err := startPing(process.WorkEcho)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, raw.stop()) }()
	network, err := startPing(process.WorkEchoNet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, network.stop()) }()
	var limit, viaNet, ours []time.Duration
	for round := range e.Sizes.Rounds + 1 {
		blocking, err := raw.trips(e.Sizes.Small)
		if err != nil {
			return nil, err
		}
		goNet, err := network.trips(e.Sizes.Small)
		if err != nil {
			return nil, err
		}
		syncs, err := appendSynced(f, e.Sizes.Small)
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first warms up
			limit, viaNet, ours = append(limit, blocking...), append(viaNet, goNet...), append(ours, syncs...)
		}
	}
	return syncResults(measure.InSeconds(limit), measure.InSeconds(viaNet), measure.InSeconds(ours)), f.Close()
}

func syncResults(limit, viaNet, ours []float64) []report.Result {
	trip := measure.Of(fmt.Sprintf("round trip of %d bytes on a unix socket to another process, blocking system calls", hostlimit.MessageBytes), measure.Seconds, limit)
	median := measure.Of("write 4 KiB at the end of a file, Sync", measure.Seconds, ours)
	tail := *median
	tail.What, tail.Value = "99th percentile of the same", measure.Quantile(measure.Sorted(ours), 0.99)
	return []report.Result{
		{
			What: "sync of 4 KiB appended, median", Goal: report.RatioGoal("under 2 round trips", 2), Limit: trip, Result: median,
			Details: []*measure.Figure{measure.Of("round trip between two Go programs through package net", measure.Seconds, viaNet)},
		},
		{What: "sync of 4 KiB appended, p99", Goal: report.RatioGoal("under 5 round trips", 5), Limit: trip, Result: &tail},
	}
}

// appendSynced appends and syncs n times.
func appendSynced(f *client.File, n int) ([]time.Duration, error) {
	p := make([]byte, smallFile)
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		if _, err := f.Write(p); err != nil {
			return nil, err
		}
		if err := f.Sync(); err != nil {
			return nil, err
		}
		times[i] = time.Since(began)
	}
	return times, nil
}

// ping is our end of a socket whose other end answers in another process.
type ping struct {
	process *process.Process
	file    *os.File
	conn    net.Conn // of package net; nil: blocking system calls
}

func startPing(kind string) (*ping, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	p := &ping{file: ours}
	cmd, err := process.SelfCommand(kind)
	if err == nil {
		cmd.ExtraFiles = []*os.File{theirs}
		p.process, err = process.StartProcess(cmd, nil)
	}
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	if kind == process.WorkEchoNet {
		if p.conn, err = net.FileConn(ours); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}
	return p, nil
}

// trips times n round trips.
func (p *ping) trips(n int) ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	message := make([]byte, hostlimit.MessageBytes)
	times := make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		if err := p.trip(message); err != nil {
			return nil, fmt.Errorf("round trip: %w: %s", err, p.process.Said())
		}
		times[i] = time.Since(began)
	}
	return times, nil
}

func (p *ping) trip(message []byte) error {
	if p.conn != nil {
		if _, err := p.conn.Write(message); err != nil {
			return err
		}
		_, err := io.ReadFull(p.conn, message)
		return err
	}
	fd := int(p.file.Fd())
	if _, err := unix.Write(fd, message); err != nil {
		return err
	}
	return hostlimit.Receive(fd, message)
}

func (p *ping) stop() error {
	err := p.file.Close() // the end of the socket ends the process
	if p.conn != nil {
		err = errors.Join(err, p.conn.Close())
	}
	return errors.Join(err, p.process.End(unix.SIGTERM, process.StopTime))
}

// CreateOne is row 8.
func CreateOne(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	return createSmall(ctx, e, 1)
}

// CreateMany is row 9.
func CreateMany(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	return createSmall(ctx, e, inFlight)
}

// createSmall compares whole small files with single puts into the namespace's server.
func createSmall(ctx context.Context, e *testbed.Env, parallel int) (_ []report.Result, err error) {
	puts, err := newPutter(ctx, e)
	if err != nil {
		return nil, err
	}
	b, done, err := e.Buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	n := e.Sizes.Small
	if parallel > 1 {
		n *= 5
	}
	var remote, inProcess, ours []float64
	for round := range e.Sizes.Rounds + 1 {
		over, err := puts.measure(ctx, n, parallel, "--url", puts.url)
		if err != nil {
			return nil, err
		}
		inside, err := puts.measure(ctx, n, parallel, "--dir", puts.dir)
		if err != nil {
			return nil, err
		}
		took, err := createFiles(ctx, b, fmt.Sprintf("r%d", round), n, parallel)
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first warms up
			remote, inProcess, ours = append(remote, over), append(inProcess, inside), append(ours, measure.Rate(n, took))
		}
	}
	return []report.Result{{
		Goal:    report.RatioGoal("0.7", 0.7),
		Limit:   measure.Of(fmt.Sprintf("JetStream key-value puts of 200 B on the daemon's own server over TCP, %d in flight", parallel), measure.PerSecond, remote),
		Result:  measure.Of(fmt.Sprintf("create, write 4 KiB, close, %d in flight", parallel), measure.PerSecond, ours),
		Details: []*measure.Figure{measure.Of(fmt.Sprintf("the same puts inside one process with a server of its own, %d in flight", parallel), measure.PerSecond, inProcess)},
	}}, nil
}

// createFiles creates n files in a fresh directory from as many goroutines as are to be in flight.
func createFiles(ctx context.Context, b *client.Buffer, dir string, n, parallel int) (time.Duration, error) {
	if err := b.Mkdir(ctx, dir, 0o755); err != nil {
		return 0, err
	}
	data := make([]byte, smallFile)
	return testbed.InParallel(ctx, n, parallel, func(i int) error {
		return testbed.WriteFile(ctx, b, fmt.Sprintf("%s/%d", dir, i), data, smallFile)
	})
}

// putter measures puts into JetStream with `bbd bench-put`. Only the daemon's program may use NATS.
type putter struct {
	binary string
	url    string
	dir    string // for a server in the same process
}

func newPutter(ctx context.Context, e *testbed.Env) (*putter, error) {
	binary, err := testbed.FindDaemon(e.Opts.Bbd)
	if err != nil {
		return nil, err
	}
	s, err := e.Status(ctx)
	if err != nil {
		return nil, err
	}
	url := e.Daemon.Nats
	if url == "" {
		url = s.NATS.URL
	}
	if !strings.Contains(url, "://") {
		return nil, measure.Cannot("the daemon's NATS server takes no other clients: set nats.embedded.listen")
	}
	dir, err := os.MkdirTemp(e.State, "nats")
	return &putter{binary: binary, url: url, dir: dir}, err
}

// measure returns puts a second.
func (p *putter) measure(ctx context.Context, n, parallel int, where ...string) (float64, error) {
	args := append([]string{"bench-put", "--count", fmt.Sprint(n), "--in-flight", fmt.Sprint(parallel)}, where...)
	cmd := exec.CommandContext(ctx, p.binary, args...)
	var said process.Tail
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("bbd bench-put: %w: %s", err, strings.TrimSpace(said.String()))
	}
	var answer struct {
		Count   int     `json:"count"`
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Count != n || answer.Seconds <= 0 {
		return 0, fmt.Errorf("bbd bench-put answered %q: %w", text, err)
	}
	return float64(answer.Count) / answer.Seconds, nil
}

// Stat is row 10.
func Stat(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	b, done, err := e.Buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	const files = 100
	if _, err := createFiles(ctx, b, "dir", files, 1); err != nil {
		return nil, err
	}
	n := 10 * e.Sizes.Small
	rateOf := func(parallel int) (float64, error) {
		took, err := testbed.InParallel(ctx, n, parallel, func(i int) error {
			_, err := b.Stat(ctx, fmt.Sprintf("dir/%d", i%files))
			return err
		})
		return measure.Rate(n, took), err
	}
	var one, many []float64
	for range e.Sizes.Rounds {
		alone, err := rateOf(1)
		if err != nil {
			return nil, err
		}
		together, err := rateOf(inFlight)
		if err != nil {
			return nil, err
		}
		one, many = append(one, alone), append(many, together)
	}
	return []report.Result{{
		Goal:    report.Goal{Text: "100 thousand/s", Bound: 100e3, Absolute: true},
		Result:  measure.Of(fmt.Sprintf("stat by one client, %d in flight", inFlight), measure.PerSecond, many),
		Details: []*measure.Figure{measure.Of("stat by one client, one at a time", measure.PerSecond, one)},
	}}, nil
}
