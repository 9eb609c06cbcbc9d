package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
)

// Row 16: what the application sees.

// burstRounds is how often the burst is written; it is long.
const burstRounds = 2

// reserve is memory that a burst leaves for everything else on the machine.
const reserve = 2 << 30

// burstSize returns how large a burst fits into the memory that is available, when the
// daemon keeps all of it. It is at most what was asked for, and whole files.
func burstSize(want, available, source int64) int64 {
	fits := (available - source - reserve - region) * 8 / 9 // the daemon gets an eighth more than the burst
	return max(0, min(want, fits)) / flushFile * flushFile
}

func burst(ctx context.Context, e *env) (results []Result, err error) {
	if err := e.freeLimits(); err != nil {
		return nil, err
	}
	source, err := e.data(e.sizes.File)
	if err != nil {
		return nil, err
	}
	size := e.sizes.Burst
	if e.opts.socket == "" {
		if err := e.stopDaemon(); err != nil {
			return nil, err
		}
		size = burstSize(size, availableMemory(), 0)
	}
	if size < flushFile {
		return nil, cannot("not even a burst of %s fits: %s of memory are available", quantity(flushFile, Bytes), quantity(float64(availableMemory()), Bytes))
	}
	err = e.withMemory(ctx, wholeRegions(size+size/8), func() (err error) {
		if err := e.fits(ctx, size); err != nil {
			return err
		}
		results, err = e.burstRounds(ctx, source, size)
		return err
	})
	if err == nil && size < e.sizes.Burst {
		results[0].Notes = append(results[0].Notes, fmt.Sprintf("a burst of %s, not %s: more does not fit into memory here",
			quantity(float64(size), Bytes), quantity(float64(e.sizes.Burst), Bytes)))
	}
	return results, err
}

// freeLimits gives memory back that rows compare with.
func (e *env) freeLimits() error { return e.target.free() }

func (e *env) burstRounds(ctx context.Context, source []byte, size int64) ([]Result, error) {
	rounds := min(burstRounds, e.sizes.Rounds)
	var copies, direct, cached, ours, drains []float64
	for range rounds {
		c, err := e.copyRate(source)
		if err != nil {
			return nil, err
		}
		straight, err := e.writeStraight(source, size, true)
		if err != nil {
			return nil, err
		}
		unsafe, err := e.writeStraight(source, size, false)
		if err != nil {
			return nil, err
		}
		went, drained, err := e.burstOnce(ctx, source, size)
		if err != nil {
			return nil, err
		}
		copies, direct, cached = append(copies, c), append(direct, straight.Seconds()), append(cached, unsafe.Seconds())
		ours, drains = append(ours, went.Seconds()), append(drains, drained.Seconds())
	}
	return burstResult(size, copies, direct, cached, ours, drains), nil
}

func burstResult(size int64, copies, direct, cached, ours, drains []float64) []Result {
	var limit, gain []float64
	for i := range ours {
		limit = append(limit, copies[i]*direct[i]/float64(size)) // copy speed / store speed
		gain = append(gain, direct[i]/ours[i])
	}
	what := quantity(float64(size), Bytes) + " in files of " + quantity(flushFile, Bytes)
	return []Result{{
		Goal:   ratioGoal("0.9 of copy speed / store speed", 0.9),
		Limit:  figure("speed of checksum and copy / speed of writing straight to the store with fsync", Times, limit),
		Result: figure("how many times sooner the application goes on than when it writes straight to the store with fsync", Times, gain),
		Details: []*Figure{
			figure("until the application goes on: create, write, close "+what, Seconds, ours),
			figure("the same straight to --dir with fsync", Seconds, direct),
			figure("the same straight to --dir without fsync, where nothing is safe", Seconds, cached),
			figure("until all of the burst is drained", Seconds, drains),
		},
	}}
}

// copyRate measures the copy limit, into as much memory as the source has.
func (e *env) copyRate(source []byte) (_ float64, err error) {
	target, err := e.likeRegions(int64(len(source)))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.free()) }()
	plainPass(target.bytes, source)
	var limit limits
	limit.rates(target.bytes, source)
	return limit.best("copy", BytesPerSecond).Value, nil
}

// writeStraight writes the burst as an application without a burst buffer would.
func (e *env) writeStraight(source []byte, size int64, safe bool) (_ time.Duration, err error) {
	dir, _, err := e.folder("direct")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := e.settle(); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range int(size / flushFile) {
		if err := writeDirect(filepath.Join(dir, fileName(i)), piece(source, i, flushFile), flushFile, safe); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// writeDirect writes n bytes, src over and over, to a plain file in steps, and makes
// it durable if that is wanted.
func writeDirect(path string, src []byte, n int64, safe bool) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return bb.Wrap("bench", path, err)
	}
	defer func() { err = bb.Wrap("bench", path, errors.Join(err, f.Close())) }()
	for at := int64(0); at < n; {
		from := at % int64(len(src))
		m, err := f.Write(src[from : from+min(step, n-at, int64(len(src))-from)])
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
func (e *env) burstOnce(ctx context.Context, source []byte, size int64) (went, drained time.Duration, err error) {
	dir, url, err := e.folder("burst")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, done, err := e.buffer(ctx, admin.BufferSpec{Backing: url})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	c, err := e.connect(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := e.settle(); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for i := range int(size / flushFile) {
		if err := writeFile(ctx, b, fileName(i), piece(source, i, flushFile), flushFile); err != nil {
			return 0, 0, err
		}
	}
	went = time.Since(began)
	_, err = admin.Drain(ctx, c, b.Name(), 10*time.Minute, nil)
	return went, time.Since(began), err
}
