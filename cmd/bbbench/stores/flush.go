// Package stores measures rows 11 to 13, 16 and 17: bytes between regions and a store, and when an application
// may go on and its bytes are safe there. It must never depend on the adaptor of a store, but for the S3
// library that a row compares with.
package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"forebay/client/admin"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Rows 11 and 12: from regions to the store.

const (
	flushWorkers = 8        // the default of files that a daemon flushes at a time
	flushFile    = 64 << 20 // bytes of one file on a disk
	objectBytes  = 16 << 20 // bytes of one object: one request, no parts
)

// FlushPOSIX is row 11.
func FlushPOSIX(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	if e.Opts.Users > 0 {
		return measured(flushByUsers(ctx, e))
	}
	if _, err := e.Connect(ctx); err != nil {
		return nil, err
	}
	if err := e.Fits(ctx, e.Sizes.Flush); err != nil {
		return nil, err
	}
	source, err := e.Data(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	disk := findDiskWriter()
	var limit, ours []float64
	for range e.Sizes.Rounds {
		written, err := limitRound(ctx, e, disk)
		if err != nil {
			return nil, err
		}
		flushed, err := flushRound(ctx, e, source)
		if err != nil {
			return nil, err
		}
		limit, ours = append(limit, written), append(ours, flushed)
	}
	size := measure.Quantity(float64(e.Sizes.Flush), measure.Bytes)
	return []report.Result{{
		Goal:   report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of(fmt.Sprintf("sequential direct write of %s by %s, the faster of %v at a time", size, disk.name, depths), measure.BytesPerSecond, limit),
		Result: measure.Of(fmt.Sprintf("from the first write until %s in files of %s are drained", size, measure.Quantity(flushFile, measure.Bytes)), measure.BytesPerSecond, ours),
		Notes:  []string{"both on " + hostlimit.FileSystem(e.Store) + " at --dir"},
	}}, nil
}

func limitRound(ctx context.Context, e *testbed.Env, disk diskWriter) (_ float64, err error) {
	dir, _, err := e.Folder("limit")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return disk.diskLimit(ctx, dir, e.Sizes.Flush, e.Settle)
}

// flushRound writes files into a fresh buffer and drains it into a fresh folder.
func flushRound(ctx context.Context, e *testbed.Env, source []byte) (_ float64, err error) {
	dir, url, err := e.Folder("flush")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	size := min(flushFile, e.Sizes.Flush)
	took, err := drained(ctx, e, url, source, int(e.Sizes.Flush/size), size)
	return measure.Rate(e.Sizes.Flush/size*size, took), err
}

// drained writes n files into a fresh buffer in front of a store and returns the time
// from the first write until all are safe on the store.
func drained(ctx context.Context, e *testbed.Env, url string, source []byte, n int, size int64) (_ time.Duration, err error) {
	b, done, err := e.Buffer(ctx, admin.BufferSpec{Backing: url})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	c, err := e.Connect(ctx)
	if err != nil {
		return 0, err
	}
	if err := e.Settle(); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range n {
		if err := testbed.WriteFile(ctx, b, testbed.FileName(i), testbed.Piece(source, i, size), size); err != nil {
			return 0, err
		}
	}
	_, err = admin.Drain(ctx, c, b.Name(), 10*time.Minute, nil)
	return time.Since(began), err
}

// FlushS3 is row 12.
func FlushS3(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	plain, err := e.PlainS3(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	source, err := e.Data(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	n := int(max(1, e.Sizes.S3/objectBytes))
	bytes := int64(n) * objectBytes
	var limit, ours []float64
	for round := range e.Sizes.Rounds + 1 {
		took, err := testbed.InParallel(ctx, n, flushWorkers, func(i int) error {
			return plain.Put(ctx, objectName("limit", i), testbed.Piece(source, i, objectBytes))
		})
		if err != nil {
			return nil, err
		}
		flushed, err := drained(ctx, e, e.S3.Under("flush"), source, n, objectBytes)
		if err != nil {
			return nil, err
		}
		if err := removeObjects(ctx, plain, n, "limit", "flush"); err != nil {
			return nil, err
		}
		if round > 0 { // the first opens connections
			limit, ours = append(limit, measure.Rate(bytes, took)), append(ours, measure.Rate(bytes, flushed))
		}
	}
	what := fmt.Sprintf("%d objects of %s", n, measure.Quantity(objectBytes, measure.Bytes))
	return []report.Result{{
		Goal:   report.RatioGoal("0.95", 0.95),
		Limit:  measure.Of(fmt.Sprintf("minio-go puts %s from memory, %d at a time, without checksums", what, flushWorkers), measure.BytesPerSecond, limit),
		Result: measure.Of("from the first write until "+what+" are drained, each confirmed by its checksum", measure.BytesPerSecond, ours),
		Notes:  []string{e.S3.Note},
	}}, nil
}
