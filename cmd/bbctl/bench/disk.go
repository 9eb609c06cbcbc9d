package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// diskWriter is how the limit of a disk is measured: sequential writes past the page
// cache, made durable at the end.
type diskWriter struct {
	name  string
	write func(ctx context.Context, dir string, n int64, depth int) (time.Duration, error)
}

// findDiskWriter returns fio where it is installed, else our own that does the same.
func findDiskWriter() diskWriter {
	if path, err := exec.LookPath("fio"); err == nil {
		return diskWriter{"fio", func(ctx context.Context, dir string, n int64, depth int) (time.Duration, error) {
			return fioWrite(ctx, path, dir, n, depth)
		}}
	}
	return diskWriter{"an own writer (fio is not installed)", directWrite}
}

// fioWrite has fio write one file.
func fioWrite(ctx context.Context, fio, dir string, n int64, depth int) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, fio, "--name=limit", "--rw=write", "--bs=1M", "--direct=1", "--end_fsync=1",
		"--ioengine=libaio", fmt.Sprintf("--iodepth=%d", depth), fmt.Sprintf("--size=%d", n),
		"--directory="+dir, "--output-format=json")
	var said tail
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("fio: %w: %s", err, said.String())
	}
	return parseFio(text)
}

// parseFio reads how long the first job's writes took.
func parseFio(text []byte) (time.Duration, error) {
	var answer struct {
		Jobs []struct {
			Error int `json:"error"`
			Write struct {
				Bytes   int64 `json:"io_bytes"`
				Runtime int64 `json:"runtime"` // ms
			} `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return 0, fmt.Errorf("fio's answer: %w", err)
	}
	if len(answer.Jobs) != 1 || answer.Jobs[0].Error != 0 || answer.Jobs[0].Write.Runtime <= 0 {
		return 0, fmt.Errorf("fio did not write: %.200q", text)
	}
	return time.Duration(answer.Jobs[0].Write.Runtime) * time.Millisecond, nil
}

// directWrite writes one file of n bytes with O_DIRECT in steps, so many of them at a
// time, and makes it durable.
func directWrite(ctx context.Context, dir string, n int64, depth int) (_ time.Duration, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "limit"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		return 0, cannot("the file system of %s (%s) knows no direct writes: give another --dir", dir, fileSystem(dir))
	}
	if err != nil {
		return 0, bb.Wrap("bench", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block, err := anonymous(step) // O_DIRECT wants aligned memory
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, block.free()) }()
	fill(block.bytes)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return 0, bb.Wrap("bench", dir, err)
	}
	began := time.Now()
	err = writeBlocks(ctx, f, block.bytes, n/step, depth)
	if err = errors.Join(err, f.Sync()); err != nil {
		return 0, bb.Wrap("bench", dir, err)
	}
	return time.Since(began), nil
}

// writeBlocks writes blocks in order, depth of them at a time.
func writeBlocks(ctx context.Context, f *os.File, block []byte, n int64, depth int) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, depth)
	for worker := range depth {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < n && errs[worker] == nil && ctx.Err() == nil; i = next.Add(1) - 1 {
				_, errs[worker] = f.WriteAt(block, i*step)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// depths are the numbers of writes at a time that the disk's limit is measured with;
// the faster one counts.
var depths = [...]int{1, 8}

// diskLimit measures the disk once with each depth and returns the better rate.
func (w diskWriter) diskLimit(ctx context.Context, dir string, n int64, settle func() error) (float64, error) {
	best := 0.0
	for _, depth := range depths {
		if err := settle(); err != nil {
			return 0, err
		}
		took, err := w.write(ctx, dir, n, depth)
		if err != nil {
			return 0, err
		}
		best = max(best, rate(n, took))
	}
	return best, nil
}

// evictPages drops a file from the page cache, so that it is read from the disk.
func evictPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return bb.Wrap("bench", path, err)
	}
	defer f.Close()
	return bb.Wrap("bench", path, errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)))
}

// settle has the file system finish what was done before, such as discarding the blocks
// of removed files, so that it is not counted with what comes next.
func (e *env) settle() error {
	dir, err := os.Open(e.store)
	if err != nil {
		return bb.Wrap("bench", e.store, err)
	}
	defer dir.Close()
	return bb.Wrap("bench", e.store, unix.Syncfs(int(dir.Fd())))
}
