package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"forebay/client/admin"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Row 16: the application's view.

// maxBurstRounds is how often the burst is written, since one takes long.
const maxBurstRounds = 2

// reserve is memory that a burst leaves for everything else on the machine.
const reserve = 2 << 30

// burstSize returns the size of a burst that fits into the available memory, with all of it kept by
// the daemon. It is at most the requested size, and whole files.
func burstSize(want, available, source int64) int64 {
	fits := (available - source - reserve - testbed.Region) * 8 / 9 // the daemon gets an eighth more than the burst
	return max(0, min(want, fits)) / flushFile * flushFile
}

// Burst is row 16.
func Burst(ctx context.Context, e *testbed.Env) (results []report.Result, err error) {
	if err := e.Target.Free(); err != nil {
		return nil, err
	}
	source, err := e.Data(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	size := e.Sizes.Burst
	if e.Opts.Socket == "" {
		if err := e.StopDaemon(); err != nil {
			return nil, err
		}
		size = burstSize(size, hostlimit.AvailableMemory(), 0)
	}
	if size < flushFile {
		return nil, measure.Cannot("not even a burst of %s fits: %s of memory are available", measure.Quantity(flushFile, measure.Bytes), measure.Quantity(float64(hostlimit.AvailableMemory()), measure.Bytes))
	}
	err = e.WithMemory(ctx, testbed.WholeRegions(size+size/8), func() (err error) {
		if err := e.Fits(ctx, size); err != nil {
			return err
		}
		results, err = burstRounds(ctx, e, source, size)
		return err
	})
	if err == nil && size < e.Sizes.Burst {
		results[0].Notes = append(results[0].Notes, fmt.Sprintf("a burst of %s, not %s: more does not fit into memory here",
			measure.Quantity(float64(size), measure.Bytes), measure.Quantity(float64(e.Sizes.Burst), measure.Bytes)))
	}
	return results, err
}

func burstRounds(ctx context.Context, e *testbed.Env, source []byte, size int64) ([]report.Result, error) {
	rounds := min(maxBurstRounds, e.Sizes.Rounds)
	var copies, direct, cached, ours, drains []float64
	for range rounds {
		c, err := copyRate(e, source)
		if err != nil {
			return nil, err
		}
		straight, err := writeStraight(e, source, size, true)
		if err != nil {
			return nil, err
		}
		unsafe, err := writeStraight(e, source, size, false)
		if err != nil {
			return nil, err
		}
		went, drained, err := burstOnce(ctx, e, source, size)
		if err != nil {
			return nil, err
		}
		copies, direct, cached = append(copies, c), append(direct, straight.Seconds()), append(cached, unsafe.Seconds())
		ours, drains = append(ours, went.Seconds()), append(drains, drained.Seconds())
	}
	return burstResult(size, copies, direct, cached, ours, drains), nil
}

func burstResult(size int64, copies, direct, cached, ours, drains []float64) []report.Result {
	var limit, gain []float64
	for i := range ours {
		limit = append(limit, copies[i]*direct[i]/float64(size)) // copy speed / store speed
		gain = append(gain, direct[i]/ours[i])
	}
	what := measure.Quantity(float64(size), measure.Bytes) + " in files of " + measure.Quantity(flushFile, measure.Bytes)
	return []report.Result{{
		Goal:   report.RatioGoal("0.9 of copy speed / store speed", 0.9),
		Limit:  measure.Of("speed of checksum and copy / speed of writing straight to the store with fsync", measure.Times, limit),
		Result: measure.Of("how many times sooner the application goes on than when it writes straight to the store with fsync", measure.Times, gain),
		Details: []*measure.Figure{
			measure.Of("until the application goes on: create, write, close "+what, measure.Seconds, ours),
			measure.Of("the same straight to --dir with fsync", measure.Seconds, direct),
			measure.Of("the same straight to --dir without fsync, where nothing is safe", measure.Seconds, cached),
			measure.Of("until all of the burst is drained", measure.Seconds, drains),
		},
	}}
}

// copyRate measures the copy limit, into as much memory as the source has.
func copyRate(e *testbed.Env, source []byte) (_ float64, err error) {
	target, err := e.LikeRegions(int64(len(source)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.Free()) }()
	hostlimit.PlainPass(target.Bytes, source)
	var limit hostlimit.Limits
	limit.Rates(target.Bytes, source)
	return limit.Best("copy", measure.BytesPerSecond).Value, nil
}

// writeStraight writes the burst as an application without a burst buffer would.
func writeStraight(e *testbed.Env, source []byte, size int64, safe bool) (_ time.Duration, err error) {
	dir, _, err := e.Folder("direct")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := e.Settle(); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range int(size / flushFile) {
		if err := writeDirect(filepath.Join(dir, testbed.FileName(i)), testbed.Piece(source, i, flushFile), flushFile, safe); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// writeDirect writes n bytes, src over and over, to a plain file in steps, and makes it durable on
// request.
func writeDirect(path string, src []byte, n int64, safe bool) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return bb.Wrap("bench", path, err)
	}
	defer func() { err = bb.Wrap("bench", path, errors.Join(err, f.Close())) }()
	for at := int64(0); at < n; {
		from := at % int64(len(src))
		m, err := f.Write(src[from : from+min(hostlimit.Step, n-at, int64(len(src))-from)])
		if err != nil {
			return err
		}
		at += int64(m)
	}
	if safe {
		return f.Sync()
	}
	return nil
}

// burstOnce writes the burst into a fresh buffer and drains it.
func burstOnce(ctx context.Context, e *testbed.Env, source []byte, size int64) (went, drained time.Duration, err error) {
	dir, url, err := e.Folder("burst")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, done, err := e.Buffer(ctx, admin.BufferSpec{Backing: url})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	c, err := e.Connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := e.Settle(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for i := range int(size / flushFile) {
		if err := testbed.WriteFile(ctx, b, testbed.FileName(i), testbed.Piece(source, i, flushFile), flushFile); err != nil {
			return 0, 0, err
		}
	}
	went = time.Since(began)
	_, err = admin.Drain(ctx, c, b.Name(), 10*time.Minute, nil)
	return went, time.Since(began), err
}
