package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/checksum"
)

// Row 14: kill -9 and start again.

const (
	restartDirs     = 100
	restartParallel = 8
)

func restart(ctx context.Context, e *env) (_ []Result, err error) {
	if e.opts.socket != "" {
		return nil, cannot("it kills the daemon, and the one at --socket is not ours")
	}
	size := 4 * e.sizes.File / int64(e.sizes.Files)
	b, done, err := e.buffer(ctx, admin.BufferSpec{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done(), e.target.free()) }()
	sums, err := e.fillBuffer(ctx, b, size)
	if err != nil {
		return nil, err
	}
	total := size * int64(e.sizes.Files)
	var limit, serving, first, all []float64
	for range e.sizes.Rounds {
		mapped, err := e.mapExisting(total)
		if err != nil {
			return nil, err
		}
		t, err := e.restartOnce(ctx, b.Name(), size, sums)
		if err != nil {
			done = e.stopDaemon // the next row gets a fresh one
			return nil, err
		}
		limit, serving = append(limit, mapped.Seconds()), append(serving, t.serving.Seconds())
		first, all = append(first, t.first.Seconds()), append(all, t.all.Seconds())
	}
	return restartResult(e.sizes.Files, total, limit, serving, first, all), nil
}

func restartResult(files int, total int64, limit, serving, first, all []float64) []Result {
	what := fmt.Sprintf("%s in %d files", quantity(float64(total), Bytes), files)
	return []Result{{
		Goal:   Goal{Text: "under 1 s", Bound: 1, Absolute: true},
		Limit:  figure("mapping "+quantity(float64(total), Bytes)+" of pages that exist, and touching them", Seconds, limit),
		Result: figure("from the start of the killed daemon until a file is read and verified, with "+what+" resident", Seconds, first),
		Details: []*Figure{
			figure("until it takes connections", Seconds, serving),
			figure("until every file has been opened, mapped and closed", Seconds, all),
		},
		Notes: []string{"every file's size was compared, and the content of every hundredth"},
	}}
}

func residentName(i int) string { return fmt.Sprintf("d%d/%s", i%restartDirs, fileName(i)) }

// fillBuffer writes the files that are to survive, and returns their checksums.
func (e *env) fillBuffer(ctx context.Context, b *client.Buffer, size int64) ([]uint64, error) {
	source, err := e.data(e.sizes.File)
	if err != nil {
		return nil, err
	}
	for i := range restartDirs {
		if err := b.Mkdir(ctx, fmt.Sprintf("d%d", i), 0o755); err != nil {
			return nil, err
		}
	}
	sums := make([]uint64, e.sizes.Files)
	_, err = inParallel(ctx, e.sizes.Files, restartParallel, func(i int) error {
		data := piece(source, i, size)
		sums[i] = checksum.Sum(data)
		return writeFile(ctx, b, residentName(i), data, size)
	})
	return sums, err
}

// mapExisting maps a file of memory that exists, as a daemon does when it adopts its
// regions, and returns how long that took.
func (e *env) mapExisting(n int64) (time.Duration, error) {
	if _, err := e.limitMemory(n); err != nil {
		return 0, err
	}
	began := time.Now()
	p, err := unix.Mmap(int(e.target.file.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("map %d bytes: %w", n, err)
	}
	return took, unix.Munmap(p)
}

// restartTimes are counted from the moment the process is started.
type restartTimes struct{ serving, first, all time.Duration }

// restartOnce kills the daemon, starts it and reads what it held.
func (e *env) restartOnce(ctx context.Context, buffer string, size int64, sums []uint64) (t restartTimes, err error) {
	if err := errors.Join(e.disconnect(), e.daemon.kill()); err != nil {
		return t, err
	}
	began := time.Now()
	if err := e.daemon.start(ctx); err != nil {
		return t, err
	}
	t.serving = time.Since(began)
	if e.client, err = e.daemon.dial(ctx); err != nil {
		return t, err
	}
	b := e.client.Buffer(buffer)
	if err := readResident(ctx, b, 0, sums); err != nil {
		return t, err
	}
	t.first = time.Since(began)
	_, err = inParallel(ctx, len(sums), restartParallel, func(i int) error { return touchResident(ctx, b, residentName(i), size) })
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

// readResident reads a file and compares it with what was written.
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
