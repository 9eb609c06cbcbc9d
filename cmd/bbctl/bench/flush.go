package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"forebay/client/admin"
)

// Rows 11 and 12: from regions to the store.

const (
	flushWorkers = 8        // files that a daemon flushes at a time unless it is told otherwise
	flushFile    = 64 << 20 // bytes of one file on a disk
	objectBytes  = 16 << 20 // bytes of one object: one request, no parts
)

func flushPOSIX(ctx context.Context, e *env) ([]Result, error) {
	if e.opts.users > 0 {
		return measured(flushByUsers(ctx, e))
	}
	if _, err := e.connect(ctx); err != nil {
		return nil, err
	}
	if err := e.fits(ctx, e.sizes.Flush); err != nil {
		return nil, err
	}
	source, err := e.data(e.sizes.File)
	if err != nil {
		return nil, err
	}
	disk := findDiskWriter()
	var limit, ours []float64
	for range e.sizes.Rounds {
		written, err := e.limitRound(ctx, disk)
		if err != nil {
			return nil, err
		}
		flushed, err := e.flushRound(ctx, source)
		if err != nil {
			return nil, err
		}
		limit, ours = append(limit, written), append(ours, flushed)
	}
	size := quantity(float64(e.sizes.Flush), Bytes)
	return []Result{{
		Goal:   ratioGoal("0.9", 0.9),
		Limit:  figure(fmt.Sprintf("sequential direct write of %s by %s, the faster of %v at a time", size, disk.name, depths), BytesPerSecond, limit),
		Result: figure(fmt.Sprintf("from the first write until %s in files of %s are drained", size, quantity(flushFile, Bytes)), BytesPerSecond, ours),
		Notes:  []string{"both on " + fileSystem(e.store) + " at --dir"},
	}}, nil
}

func (e *env) limitRound(ctx context.Context, disk diskWriter) (_ float64, err error) {
	dir, _, err := e.folder("limit")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return disk.diskLimit(ctx, dir, e.sizes.Flush, e.settle)
}

// flushRound writes files into a fresh buffer and drains it into a fresh folder.
func (e *env) flushRound(ctx context.Context, source []byte) (_ float64, err error) {
	dir, url, err := e.folder("flush")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	size := min(flushFile, e.sizes.Flush)
	took, err := e.drained(ctx, url, source, int(e.sizes.Flush/size), size)
	return rate(e.sizes.Flush/size*size, took), err
}

// drained writes n files into a fresh buffer in front of a store and returns the time
// from the first write until all are safe on the store.
func (e *env) drained(ctx context.Context, url string, source []byte, n int, size int64) (_ time.Duration, err error) {
	b, done, err := e.buffer(ctx, admin.BufferSpec{Backing: url})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	c, err := e.connect(ctx)
	if err != nil {
		return 0, err
	}
	if err := e.settle(); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range n {
		if err := writeFile(ctx, b, fileName(i), piece(source, i, size), size); err != nil {
			return 0, err
		}
	}
	_, err = admin.Drain(ctx, c, b.Name(), 10*time.Minute, nil)
	return time.Since(began), err
}

// piece returns the i-th piece of a size, counted in a circle.
func piece(source []byte, i int, size int64) []byte {
	size = min(size, int64(len(source)))
	at := int64(i) % (int64(len(source)) / size) * size
	return source[at : at+size]
}

func flushS3(ctx context.Context, e *env) (_ []Result, err error) {
	plain, err := e.plainS3(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plain.Close()) }()
	source, err := e.data(e.sizes.File)
	if err != nil {
		return nil, err
	}
	n := int(max(1, e.sizes.S3/objectBytes))
	bytes := int64(n) * objectBytes
	var limit, ours []float64
	for round := range e.sizes.Rounds + 1 {
		took, err := inParallel(ctx, n, flushWorkers, func(i int) error {
			return plain.Put(ctx, objectName("limit", i), piece(source, i, objectBytes))
		})
		if err != nil {
			return nil, err
		}
		flushed, err := e.drained(ctx, e.s3.under("flush"), source, n, objectBytes)
		if err != nil {
			return nil, err
		}
		if err := removeObjects(ctx, plain, n, "limit", "flush"); err != nil {
			return nil, err
		}
		if round > 0 { // the first opens connections
			limit, ours = append(limit, rate(bytes, took)), append(ours, rate(bytes, flushed))
		}
	}
	what := fmt.Sprintf("%d objects of %s", n, quantity(objectBytes, Bytes))
	return []Result{{
		Goal:   ratioGoal("0.95", 0.95),
		Limit:  figure(fmt.Sprintf("minio-go puts %s from memory, %d at a time, without checksums", what, flushWorkers), BytesPerSecond, limit),
		Result: figure("from the first write until "+what+" are drained, each confirmed by its checksum", BytesPerSecond, ours),
		Notes:  []string{e.s3.note},
	}}, nil
}
