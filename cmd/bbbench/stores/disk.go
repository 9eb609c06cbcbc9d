package stores

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"time"

	"forebay/cmd/bbbench/process"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
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
	return diskWriter{"an own writer (fio is not installed)", hostlimit.DirectWrite}
}

// fioWrite has fio write one file.
func fioWrite(ctx context.Context, fio, dir string, n int64, depth int) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, fio, "--name=limit", "--rw=write", "--bs=1M", "--direct=1", "--end_fsync=1",
		"--ioengine=libaio", fmt.Sprintf("--iodepth=%d", depth), fmt.Sprintf("--size=%d", n),
		"--directory="+dir, "--output-format=json")
	var said process.Tail
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("fio: %w: %s", err, said.String())
	}
	return parseFio(text)
}

// parseFio reads the durations of the first job's writes.
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

// depths are the numbers of writes at a time that the disk's limit is measured with. The faster one
// counts.
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
		best = max(best, measure.Rate(n, took))
	}
	return best, nil
}
