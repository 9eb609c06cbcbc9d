// Package stage copies between a store and a buffer: stage-in and stage-out of
// files and trees, with several pieces at a time, skipping files that are already there.
// It reaches the buffer through small interfaces, and must never depend on segments,
// leases or namespaces.
package stage

import (
	"context"
	"errors"
	"sync"
	"time"

	"forebay/internal/bb"
)

// Options are the options of a copy.
type Options struct {
	Parallel int   // pieces at a time, of one file or of several; 0: 4
	Range    int64 // bytes of a piece of a large file; 0: 32 MiB
	DryRun   bool  // only list the files to copy
	// Progress is called with the totals so far, at most every 200 ms and once at the end,
	// by one goroutine at a time. Nil: no calls.
	Progress func(Progress)
}

func (o Options) withDefaults() Options {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Range <= 0 {
		o.Range = 32 << 20
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// Progress counts files and bytes. Totals grow while the listing lasts. Skipped and failed files
// count as done.
type Progress struct {
	Files, FilesDone, Skipped, Failed int64
	Bytes, BytesDone                  int64
	BytesNotCopied                    int64 // done, of files that were skipped or have failed
}

// Failure is a file that was not copied.
type Failure struct {
	Name  string
	Bytes int64
	Err   error
}

// MaxNamed bounds the names in a Report.
const MaxNamed = 10_000

// Report is the result of a copy.
type Report struct {
	Progress
	Failures []Failure // at most MaxNamed
	Names    []string  // of a dry run: files to copy; at most MaxNamed
}

// Err returns nil if every file was copied or skipped.
func (r *Report) Err(op string) error {
	if r.Failed == 0 {
		return nil
	}
	first := r.Failures[0]
	return &bb.Error{Kind: bb.KindOf(first.Err), Op: op, Path: first.Name, Err: errors.Join(first.Err, more(r.Failed-1))}
}

func more(n int64) error {
	if n == 0 {
		return nil
	}
	return bb.E(bb.Internal, "", "", "and others failed")
}

// copier runs the pieces of one call. run waits for all of them.
type copier struct {
	opts Options

	mu     sync.Mutex
	report Report
	told   time.Time
	slots  chan struct{}
	wg     sync.WaitGroup
}

const tellEvery = 200 * time.Millisecond

func newCopier(opts Options) *copier {
	opts = opts.withDefaults()
	return &copier{opts: opts, slots: make(chan struct{}, opts.Parallel)}
}

// begin counts a file.
func (c *copier) begin(bytes int64) {
	c.update(func(r *Report) {
		r.Files++
		r.Bytes += bytes
	})
}

// end counts the outcome of a file. left are the bytes of it that were not counted. A dry run has
// copied nothing, and names the files that it would have.
func (c *copier) end(name string, bytes, left int64, err error) {
	c.update(func(r *Report) {
		if errors.Is(err, errDry) {
			if len(r.Names) < MaxNamed {
				r.Names = append(r.Names, name)
			}
			return
		}
		r.FilesDone++
		r.BytesDone += left
		if err != nil {
			r.BytesNotCopied += bytes
		}
		if errors.Is(err, errSame) {
			r.Skipped++
			return
		}
		if err != nil {
			r.Failed++
			if len(r.Failures) < MaxNamed {
				r.Failures = append(r.Failures, Failure{name, bytes, err})
			}
		}
	})
}

// Reasons why a file was not copied, without a failure.
var (
	errSame = errors.New("already there and equal")
	errDry  = errors.New("it would be copied")
)

func (c *copier) update(change func(*Report)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.report)
	if now := time.Now(); now.Sub(c.told) >= tellEvery {
		c.told = now
		c.opts.Progress(c.report.Progress)
	}
}

// acquire waits for the right to work on a piece.
func (c *copier) acquire(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *copier) free() { <-c.slots }

// finish waits for all pieces and returns the result.
func (c *copier) finish(ctx context.Context, op string, err error) (Report, error) {
	c.wg.Wait()
	c.opts.Progress(c.report.Progress)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = c.report.Err(op)
	}
	return c.report, bb.Wrap(op, "", err)
}
