package stores

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"forebay/client/admin"
	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/flusher/backing/s3"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Row 13: from a store into regions.

const stageFiles = 8

// StageIn is row 13.
func StageIn(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	if e.Opts.Users > 0 {
		return measured(stageByUsers(ctx, e))
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
	posix, err := stageFromPOSIX(ctx, e, source)
	if err != nil {
		return nil, err
	}
	object, err := stageFromS3(ctx, e, source)
	return append([]report.Result{posix}, object...), err
}

func stageFromPOSIX(ctx context.Context, e *testbed.Env, source []byte) (_ report.Result, err error) {
	dir, url, err := e.Folder("stage")
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var files []string
	size := e.Sizes.Flush / stageFiles
	for i := range stageFiles {
		files = append(files, filepath.Join(dir, testbed.FileName(i)))
		if err := writeDirect(files[i], testbed.Piece(source, i, size), size, true); err != nil {
			return report.Result{}, err
		}
	}
	var limit, ours []float64
	for range e.Sizes.Rounds {
		took, err := cold(files, func() error { return cat(ctx, files) })
		if err != nil {
			return report.Result{}, err
		}
		limit = append(limit, measure.Rate(size*stageFiles, took))
		took, err = staged(ctx, e, url, size*stageFiles, func(stage func() error) (time.Duration, error) { return cold(files, stage) })
		if err != nil {
			return report.Result{}, err
		}
		ours = append(ours, measure.Rate(size*stageFiles, took))
	}
	what := fmt.Sprintf("%d files of %s", stageFiles, measure.Quantity(float64(size), measure.Bytes))
	return report.Result{
		What: "stage-in from POSIX", Goal: report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of("cat of "+what+" that are not in the page cache", measure.BytesPerSecond, limit),
		Result: measure.Of("stage-in of the same, not in the page cache", measure.BytesPerSecond, ours),
		Notes:  []string{"both on " + hostlimit.FileSystem(e.Store) + " at --dir; a virtual machine's host may still have the files in its memory"},
	}, nil
}

// cold times fn after dropping files from the page cache.
func cold(files []string, fn func() error) (time.Duration, error) {
	for _, file := range files {
		if err := hostlimit.EvictPages(file); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	err := fn()
	return time.Since(began), err
}

// cat has cat(1) read files.
func cat(ctx context.Context, files []string) error {
	var said process.Tail
	cmd := exec.CommandContext(ctx, "cat", files...) // to /dev/null
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cat: %w: %s", err, said.String())
	}
	return nil
}

// staged stages a tree into a fresh buffer and checks that it copied so many bytes.
// The stage-in is timed by its caller, which may have something to prepare.
func staged(ctx context.Context, e *testbed.Env, url string, bytes int64, timed func(func() error) (time.Duration, error)) (_ time.Duration, err error) {
	b, done, err := e.Buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	c, err := e.Connect(ctx)
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

func stageFromS3(ctx context.Context, e *testbed.Env, source []byte) (_ []report.Result, err error) {
	const what = "stage-in from S3"
	plain, err := e.PlainS3(ctx)
	var reason measure.Unmeasured
	if errors.As(err, &reason) {
		return []report.Result{{What: what, Goal: report.RatioGoal("0.9", 0.9), NotMeasured: reason.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	n := int(max(1, e.Sizes.S3/objectBytes))
	defer func() {
		err = errors.Join(err, removeObjects(context.WithoutCancel(ctx), plain, n, "stage"), plain.Close())
	}()
	for i := range n {
		if err := plain.Put(ctx, objectName("stage", i), testbed.Piece(source, i, objectBytes)); err != nil {
			return nil, err
		}
	}
	limit, ours, err := stageRounds(ctx, e, plain, n)
	if err != nil {
		return nil, err
	}
	objects := fmt.Sprintf("%d objects of %s", n, measure.Quantity(objectBytes, measure.Bytes))
	return []report.Result{{
		What: what, Goal: report.RatioGoal("0.9", 0.9),
		Limit:  measure.Of(fmt.Sprintf("minio-go gets %s, %d at a time, and drops the bytes", objects, flushWorkers), measure.BytesPerSecond, limit),
		Result: measure.Of("stage-in of the same", measure.BytesPerSecond, ours),
		Notes:  []string{e.S3.Note},
	}}, nil
}

func stageRounds(ctx context.Context, e *testbed.Env, plain *s3.Plain, n int) (limit, ours []float64, err error) {
	bytes := int64(n) * objectBytes
	for round := range e.Sizes.Rounds + 1 {
		read, err := testbed.InParallel(ctx, n, flushWorkers, func(i int) error {
			got, err := plain.Get(ctx, objectName("stage", i))
			if err == nil && got != objectBytes {
				err = fmt.Errorf("an object has %d bytes, not %d", got, objectBytes)
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		staged, err := staged(ctx, e, e.S3.Under("stage"), bytes, func(stage func() error) (time.Duration, error) {
			began := time.Now()
			err := stage()
			return time.Since(began), err
		})
		if err != nil {
			return nil, nil, err
		}
		if round > 0 { // the first opens connections
			limit, ours = append(limit, measure.Rate(bytes, read)), append(ours, measure.Rate(bytes, staged))
		}
	}
	return limit, ours, nil
}
