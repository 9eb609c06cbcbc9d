// Package restart measures row 14: a daemon that was killed serves the files again that its memory has kept. It
// must never depend on the regions and journals that it is restarted from.
package restart

import (
	"context"
	"errors"
	"fmt"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/checksum"
	"forebay/internal/measure"
)

// Row 14: kill -9 and start again.

const (
	restartDirs     = 100
	restartParallel = 8
)

// Measure is row 14.
func Measure(ctx context.Context, e *testbed.Env) (_ []report.Result, err error) {
	if e.Opts.Socket != "" {
		return nil, measure.Cannot("it kills the daemon, and the one at --socket is not ours")
	}
	size := 4 * e.Sizes.File / int64(e.Sizes.Files)
	b, done, err := e.Buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done(), e.Target.Free()) }()
	sums, err := fillBuffer(ctx, e, b, size)
	if err != nil {
		return nil, err
	}
	total := size * int64(e.Sizes.Files)
	var limit, serving, first, all []float64
	for range e.Sizes.Rounds {
		mapped, err := mapExisting(e, total)
		if err != nil {
			return nil, err
		}
		t, err := restartOnce(ctx, e, b.Name(), size, sums)
		if err != nil {
			done = e.StopDaemon // the next row gets a fresh one
			return nil, err
		}
		limit, serving = append(limit, mapped.Seconds()), append(serving, t.serving.Seconds())
		first, all = append(first, t.first.Seconds()), append(all, t.all.Seconds())
	}
	return restartResult(e.Sizes.Files, total, limit, serving, first, all), nil
}

func restartResult(files int, total int64, limit, serving, first, all []float64) []report.Result {
	what := fmt.Sprintf("%s in %d files", measure.Quantity(float64(total), measure.Bytes), files)
	return []report.Result{{
		Goal:   report.Goal{Text: "under 1 s", Bound: 1, Absolute: true},
		Limit:  measure.Of("mapping "+measure.Quantity(float64(total), measure.Bytes)+" of pages that exist, and touching them", measure.Seconds, limit),
		Result: measure.Of("from the start of the killed daemon until a file is read and verified, with "+what+" resident", measure.Seconds, first),
		Details: []*measure.Figure{
			measure.Of("until it takes connections", measure.Seconds, serving),
			measure.Of("until every file has been opened, mapped and closed", measure.Seconds, all),
		},
		Notes: []string{"every file's size was compared, and the content of every hundredth"},
	}}
}

func residentName(i int) string { return fmt.Sprintf("d%d/%s", i%restartDirs, testbed.FileName(i)) }

// fillBuffer writes the files that are to survive, and returns their checksums.
func fillBuffer(ctx context.Context, e *testbed.Env, b *client.Buffer, size int64) ([]uint64, error) {
	source, err := e.Data(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	for i := range restartDirs {
		if err := b.Mkdir(ctx, fmt.Sprintf("d%d", i), 0o755); err != nil {
			return nil, err
		}
	}
	sums := make([]uint64, e.Sizes.Files)
	_, err = testbed.InParallel(ctx, e.Sizes.Files, restartParallel, func(i int) error {
		data := testbed.Piece(source, i, size)
		sums[i] = checksum.Sum(data)
		return testbed.WriteFile(ctx, b, residentName(i), data, size)
	})
	return sums, err
}

// mapExisting maps an existing file of memory, as a daemon does when it adopts its regions, and
// returns the time that took.
func mapExisting(e *testbed.Env, n int64) (time.Duration, error) {
	if _, err := e.LimitMemory(n); err != nil {
		return 0, err
	}
	return e.Target.MapAgain(n)
}

// restartTimes are counted from the moment the process is started.
type restartTimes struct{ serving, first, all time.Duration }

// restartOnce kills the daemon, starts it and reads its resident files.
func restartOnce(ctx context.Context, e *testbed.Env, buffer string, size int64, sums []uint64) (t restartTimes, err error) {
	if err := errors.Join(e.Disconnect(), e.Daemon.Kill()); err != nil {
		return t, err
	}
	began := time.Now()
	if err := e.Daemon.Start(ctx); err != nil {
		return t, err
	}
	t.serving = time.Since(began)
	if e.Client, err = e.Daemon.Dial(ctx); err != nil {
		return t, err
	}
	b := e.Client.Buffer(buffer)
	if err := readResident(ctx, b, 0, sums); err != nil {
		return t, err
	}
	t.first = time.Since(began)
	_, err = testbed.InParallel(ctx, len(sums), restartParallel, func(i int) error { return touchResident(ctx, b, residentName(i), size) })
	if err != nil {
		return t, err
	}
	t.all = time.Since(began)
	for i := 0; i < len(sums); i += 100 {
		if err := readResident(ctx, b, i, sums); err != nil {
			return t, err
		}
	}
	return t, nil
}

// readResident reads a file and compares it with its expected content.
func readResident(ctx context.Context, b *client.Buffer, i int, sums []uint64) error {
	got, err := b.ReadFile(ctx, residentName(i))
	if err == nil && checksum.Sum(got) != sums[i] {
		err = fmt.Errorf("%s does not hold what was written", residentName(i))
	}
	return err
}

// touchResident opens and maps a file.
func touchResident(ctx context.Context, b *client.Buffer, name string, size int64) error {
	f, err := b.Open(ctx, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	m, err := f.Map(0, size)
	if err != nil {
		return err
	}
	if m.Len() != size {
		err = fmt.Errorf("%s has %d bytes, not %d", name, m.Len(), size)
	}
	return errors.Join(err, m.Release(), f.Close())
}
