package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"forebay/client/admin"
	"forebay/flusher/backing/s3"
)

// Row 13: from a store into regions.

const stageFiles = 8

func stageIn(ctx context.Context, e *env) ([]Result, error) {
	if e.opts.users > 0 {
		return measured(stageByUsers(ctx, e))
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
	posix, err := e.stageFromPOSIX(ctx, source)
	if err != nil {
		return nil, err
	}
	object, err := e.stageFromS3(ctx, source)
	return append([]Result{posix}, object...), err
}

func (e *env) stageFromPOSIX(ctx context.Context, source []byte) (_ Result, err error) {
	dir, url, err := e.folder("stage")
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var files []string
	size := e.sizes.Flush / stageFiles
	for i := range stageFiles {
		files = append(files, filepath.Join(dir, fileName(i)))
		if err := writeDirect(files[i], piece(source, i, size), size, true); err != nil {
			return Result{}, err
		}
	}
	var limit, ours []float64
	for range e.sizes.Rounds {
		took, err := cold(files, func() error { return cat(ctx, files) })
		if err != nil {
			return Result{}, err
		}
		limit = append(limit, rate(size*stageFiles, took))
		took, err = e.staged(ctx, url, size*stageFiles, func(stage func() error) (time.Duration, error) { return cold(files, stage) })
		if err != nil {
			return Result{}, err
		}
		ours = append(ours, rate(size*stageFiles, took))
	}
	what := fmt.Sprintf("%d files of %s", stageFiles, quantity(float64(size), Bytes))
	return Result{
		What: "stage-in from POSIX", Goal: ratioGoal("0.9", 0.9),
		Limit:  figure("cat of "+what+" that are not in the page cache", BytesPerSecond, limit),
		Result: figure("stage-in of the same, not in the page cache", BytesPerSecond, ours),
		Notes:  []string{"both on " + fileSystem(e.store) + " at --dir; a virtual machine's host may still have the files in its memory"},
	}, nil
}

// cold times fn after dropping files from the page cache.
func cold(files []string, fn func() error) (time.Duration, error) {
	for _, file := range files {
		if err := evictPages(file); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	err := fn()
	return time.Since(began), err
}

// cat has cat(1) read files.
func cat(ctx context.Context, files []string) error {
	var said tail
	cmd := exec.CommandContext(ctx, "cat", files...) // to /dev/null
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cat: %w: %s", err, said.String())
	}
	return nil
}

// staged stages a tree into a fresh buffer and checks that it copied so many bytes.
// The stage-in is timed by its caller, who may have something to prepare.
func (e *env) staged(ctx context.Context, url string, bytes int64, timed func(func() error) (time.Duration, error)) (_ time.Duration, err error) {
	b, done, err := e.buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	c, err := e.connect(ctx)
	if err != nil {
		return 0, err
	}
	var report admin.Report
	took, err := timed(func() (err error) {
		report, err = admin.StageIn(ctx, c, admin.StageRequest{Buffer: b.Name(), URL: url}, nil)
		return err
	})
	if err == nil && report.BytesDone != bytes {
		err = fmt.Errorf("stage-in copied %d of %d bytes", report.BytesDone, bytes)
	}
	return took, err
}

func (e *env) stageFromS3(ctx context.Context, source []byte) (_ []Result, err error) {
	const what = "stage-in from S3"
	plain, err := e.plainS3(ctx)
	var reason unmeasured
	if errors.As(err, &reason) {
		return []Result{{What: what, Goal: ratioGoal("0.9", 0.9), NotMeasured: reason.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	n := int(max(1, e.sizes.S3/objectBytes))
	defer func() {
		err = errors.Join(err, removeObjects(context.WithoutCancel(ctx), plain, n, "stage"), plain.Close())
	}()
	for i := range n {
		if err := plain.Put(ctx, objectName("stage", i), piece(source, i, objectBytes)); err != nil {
			return nil, err
		}
	}
	limit, ours, err := e.stageRounds(ctx, plain, n)
	if err != nil {
		return nil, err
	}
	objects := fmt.Sprintf("%d objects of %s", n, quantity(objectBytes, Bytes))
	return []Result{{
		What: what, Goal: ratioGoal("0.9", 0.9),
		Limit:  figure(fmt.Sprintf("minio-go gets %s, %d at a time, and drops the bytes", objects, flushWorkers), BytesPerSecond, limit),
		Result: figure("stage-in of the same", BytesPerSecond, ours),
		Notes:  []string{e.s3.note},
	}}, nil
}

func (e *env) stageRounds(ctx context.Context, plain *s3.Plain, n int) (limit, ours []float64, err error) {
	bytes := int64(n) * objectBytes
	for round := range e.sizes.Rounds + 1 {
		read, err := inParallel(ctx, n, flushWorkers, func(i int) error {
			got, err := plain.Get(ctx, objectName("stage", i))
			if err == nil && got != objectBytes {
				err = fmt.Errorf("an object has %d bytes, not %d", got, objectBytes)
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		staged, err := e.staged(ctx, e.s3.under("stage"), bytes, func(stage func() error) (time.Duration, error) {
			began := time.Now()
			err := stage()
			return time.Since(began), err
		})
		if err != nil {
			return nil, nil, err
		}
		if round > 0 { // the first opens connections
			limit, ours = append(limit, rate(bytes, read)), append(ours, rate(bytes, staged))
		}
	}
	return limit, ours, nil
}
