package datapath

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/measure"
)

// Row 18: many writers of one file, in the pattern that shared file systems fear.

const (
	// sharedRecord is the record of the classic small-record N-to-1 pattern, in bytes. It fits no
	// block, page or stripe.
	sharedRecord  = 47_008
	sharedWriters = 16
)

// Shared has writers, each in a session of its own, write interleaved records into
// one file, and in turns with it the same records into a file each.
func Shared(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	p, err := newLocalPair(ctx, e)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.done()) }()
	var buffers []*client.Buffer
	for range sharedWriters {
		c, err := e.Daemon.Dial(ctx)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		buffers = append(buffers, c.Buffer(p.buffer.Name()))
	}
	var own, one []float64
	rounds := e.Sizes.File / (sharedRecord * sharedWriters)
	bytes := rounds * sharedRecord * sharedWriters
	for round := range e.Sizes.Rounds + 1 {
		// Its own: record r of writer w is at r in a file. Shared: it is at r*writers+w.
		apart, err := writeRecords(ctx, buffers, p.source, rounds, func(w int) string { return fmt.Sprint("own", w) }, func(_ int, r int64) int64 { return r })
		if err != nil {
			return nil, err
		}
		together, err := writeRecords(ctx, buffers, p.source, rounds, func(int) string { return "shared" }, func(w int, r int64) int64 { return r*sharedWriters + int64(w) })
		if err != nil {
			return nil, err
		}
		if round > 0 { // the first touched the memory
			own, one = append(own, measure.Rate(bytes, apart)), append(one, measure.Rate(bytes, together))
		}
		entry, err := p.buffer.Stat(ctx, "shared")
		if err != nil || entry.Size != bytes {
			return nil, fmt.Errorf("the shared file has %d bytes of %d: %w", entry.Size, bytes, err)
		}
		if err := p.buffer.Remove(ctx, "shared"); err != nil {
			return nil, err
		}
		for w := range sharedWriters {
			if err := p.buffer.Remove(ctx, fmt.Sprint("own", w)); err != nil {
				return nil, err
			}
		}
	}
	what := fmt.Sprintf("%d writers, records of %d bytes, %s in all, ", sharedWriters, sharedRecord, measure.Quantity(float64(bytes), measure.Bytes))
	return []report.Result{{
		What: "N-to-1: one shared file against a file each", Goal: report.Goal{Text: "published"},
		Limit:  measure.Of(what+"to a file each", measure.BytesPerSecond, own),
		Result: measure.Of(what+"interleaved in one file", measure.BytesPerSecond, one),
		Notes:  []string{"one daemon: writers on other nodes send their bytes to the file's owner besides (row 5)"},
	}}, nil
}

// writeRecords writes each writer's records where they belong and closes the files.
func writeRecords(ctx context.Context, buffers []*client.Buffer, source []byte, rounds int64, name func(w int) string, at func(w int, r int64) int64) (time.Duration, error) {
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for w, b := range buffers {
		group.Go(func() error {
			f, err := b.OpenFile(ctx, name(w), client.OpenOptions{Write: true, Create: true, Mode: 0o644})
			if err != nil {
				return err
			}
			for r := range rounds {
				from := (r*int64(len(buffers)) + int64(w)) * sharedRecord
				if _, err := f.WriteAt(source[from:from+sharedRecord], at(w, r)*sharedRecord); err != nil {
					return err
				}
			}
			return f.Close()
		})
	}
	err := group.Wait()
	return time.Since(began), err
}
