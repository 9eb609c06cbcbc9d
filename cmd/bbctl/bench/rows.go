package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// rowKind is a row that a run can measure.
type rowKind struct {
	name    string
	share   float64 // of the run's time
	measure func(context.Context, *Run, time.Duration) (Row, error)
}

// rows are all rows in their order. read needs the files of write.
var rows = []rowKind{
	{"write", 0.15, write},
	{"sync", 0.1, syncAppended},
	{"read", 0.15, read},
	{"drain", 0.3, drain},
	{"read back", 0.2, readBack},
	{"small files", 0.1, smallFiles},
}

// The shares of the size that rows have in the buffer: large files, and small ones beside them.
const (
	largeShare = 0.75
	smallShare = 0.125
)

const maxRounds = 20

// rounds calls one until the share of the time is used up: twice at least, since the first call maps
// memory.
func rounds(ctx context.Context, share time.Duration, one func(round int) error) error {
	began := time.Now()
	for round := 0; round < 2 || round < maxRounds && time.Since(began) < share; round++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := one(round); err != nil {
			return err
		}
	}
	return nil
}

func large(i int) string { return fmt.Sprintf("large-%d", i) }

func (r *Run) at(name string) string { return path.Join(r.dir, name) }

func (r *Run) quantity(bytes int64) string { return measure.Quantity(float64(bytes), measure.Bytes) }

func (r *Run) largeFiles(n int) string { return bb.Count(n, "file") + " of " + r.quantity(r.file) }

// write writes large files, which stay for read.
func write(ctx context.Context, r *Run, share time.Duration) (Row, error) {
	n := r.files(largeShare)
	var limits hostlimit.Limits
	var ours []float64
	err := rounds(ctx, share, func(round int) error {
		if round > 0 {
			if err := r.removeLarge(ctx, r.dir, n); err != nil {
				return err
			}
		}
		took, err := r.writeLarge(ctx, r.dir, n)
		if err != nil || round == 0 {
			return err
		}
		limits.Rates(r.target.Bytes, r.source.Bytes)
		ours = append(ours, measure.Rate(int64(n)*r.file, took))
		return nil
	})
	if err != nil {
		return Row{}, err
	}
	what := fmt.Sprintf("create, write and close %s, in writes of 1 MiB", r.largeFiles(n))
	return Row{
		Result: measure.Of(what, measure.BytesPerSecond, ours),
		Limit:  limits.Best("copy of memory with its checksum", measure.BytesPerSecond), Notes: r.writeNotes(),
	}, nil
}

// writeNotes name the other steps that Close waits for.
func (r *Run) writeNotes() []string {
	notes := r.network()
	if r.spec.Durability == admin.DurabilityFlushed {
		notes = append(notes, "Close waits until a file is on the store, as the buffer's durability has it")
	}
	if r.spec.Replicas > 1 {
		notes = append(notes, "Close waits until a second node has the bytes, as the buffer's replicas have it")
	}
	return notes
}

// network is the note of a row whose bytes also cross a network.
func (r *Run) network() []string {
	if r.c.Server().Mapped {
		return nil
	}
	return []string{"the daemon's memory is not mapped here, so that bytes go in messages, over a network or a socket: the limit is without these"}
}

// writeLarge writes n large files into a directory.
func (r *Run) writeLarge(ctx context.Context, dir string, n int) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		if err := r.writeFile(ctx, path.Join(dir, large(i))); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (r *Run) writeFile(ctx context.Context, name string) error {
	f, err := r.b.Create(ctx, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	for at := int64(0); at < r.file; at += hostlimit.Step {
		if _, err := f.Write(r.source.Bytes[at:min(at+hostlimit.Step, r.file)]); err != nil {
			return err
		}
	}
	return f.Close()
}

func (r *Run) removeLarge(ctx context.Context, dir string, n int) error {
	for i := range n {
		if err := r.b.Remove(ctx, path.Join(dir, large(i))); err != nil {
			return err
		}
	}
	return nil
}

// read reads the files that write has left in memory, and removes them at the end.
func read(ctx context.Context, r *Run, share time.Duration) (Row, error) {
	n := r.files(largeShare)
	var limits hostlimit.Limits
	var ours []float64
	want := checksum.Sum(r.source.Bytes)
	err := rounds(ctx, share, func(round int) error {
		took, err := r.readLarge(ctx, r.dir, n)
		if err != nil {
			return err
		}
		if checksum.Sum(r.into.Bytes) != want {
			return errors.New("the bytes read are not those written")
		}
		if round > 0 {
			limits.Rates(r.into.Bytes, r.target.Bytes)
			ours = append(ours, measure.Rate(int64(n)*r.file, took))
		}
		return nil
	})
	if err != nil {
		return Row{}, err
	}
	if err := r.removeLarge(ctx, r.dir, n); err != nil {
		return Row{}, err
	}
	what := fmt.Sprintf("open, read and close %s in memory, in reads of 1 MiB, verified", r.largeFiles(n))
	return Row{
		Result: measure.Of(what, measure.BytesPerSecond, ours),
		Limit:  limits.Best("copy of memory with its checksum", measure.BytesPerSecond), Notes: r.network(),
	}, nil
}

func (r *Run) readLarge(ctx context.Context, dir string, n int) (time.Duration, error) {
	began := time.Now()
	for i := range n {
		if err := r.readFile(ctx, path.Join(dir, large(i))); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

func (r *Run) readFile(ctx context.Context, name string) error {
	f, err := r.b.Open(ctx, name)
	if err != nil {
		return err
	}
	defer f.Abort()
	for at := int64(0); at < r.file; at += hostlimit.Step {
		if _, err := io.ReadFull(f, r.into.Bytes[at:min(at+hostlimit.Step, r.file)]); err != nil {
			return err
		}
	}
	return f.Close()
}

const (
	smallFile = 4 << 10
	mostSmall = 1000 // operations of one round
	fewSmall  = 20   // operations of one round at least, however long they take
)

// smallOps is how many small operations fit into their share of the size.
func (r *Run) smallOps() int {
	return int(min(mostSmall, int64(smallShare*float64(r.size))/smallFile))
}

// each calls do with 0 to n-1, until half of the share of the time is used up. It returns how
// often. The first round is short, since it only warms up.
func each(round, n int, share time.Duration, do func(i int) error) (int, error) {
	if round == 0 {
		n = min(n, fewSmall)
	}
	until := time.Now().Add(share / 2)
	for i := range n {
		if i >= fewSmall && time.Now().After(until) {
			return i, nil
		}
		if err := do(i); err != nil {
			return i, err
		}
	}
	return n, nil
}

// trips measures the limit of operations that are a request each. It returns nil where requests cross a network.
func (r *Run) trips(n int) ([]time.Duration, error) {
	if !r.local {
		return nil, nil
	}
	return hostlimit.RoundTrips(n)
}

const tripIs = "round trip on a unix socket"

// tripLimit is the figure of round trips, or nil for none.
func tripLimit(unit measure.Unit, samples []float64) *measure.Figure {
	if len(samples) == 0 {
		return nil
	}
	if unit == measure.PerSecond {
		return measure.Of("round trips on a unix socket, one after the other", unit, samples)
	}
	return measure.Of(tripIs, unit, samples)
}

// syncAppended appends small pieces to a file and syncs each.
func syncAppended(ctx context.Context, r *Run, share time.Duration) (Row, error) {
	n := r.smallOps()
	data := r.source.Bytes[:smallFile]
	var trips, ours []float64
	err := rounds(ctx, share, func(round int) error {
		took, err := r.trips(n)
		if err != nil {
			return err
		}
		f, err := r.b.OpenFile(ctx, r.at("log"), client.OpenOptions{Write: true, Create: true, Truncate: true, Append: true})
		if err != nil {
			return err
		}
		defer f.Abort()
		var times []time.Duration
		_, err = each(round, n, share, func(int) error {
			began := time.Now()
			_, err := f.Write(data)
			if err == nil {
				err = f.Sync()
			}
			times = append(times, time.Since(began))
			return err
		})
		if err != nil {
			return err
		}
		if round > 0 {
			trips, ours = append(trips, measure.InSeconds(took)...), append(ours, measure.InSeconds(times)...)
		}
		return errors.Join(f.Close(), r.b.Remove(ctx, r.at("log")))
	})
	if err != nil {
		return Row{}, err
	}
	row := Row{Result: measure.Of("write 4 KiB at the end of a file, Sync", measure.Seconds, ours), Limit: tripLimit(measure.Seconds, trips)}
	if row.Result.P99 > 0 {
		row.Notes = append(row.Notes, "99 % of them took at most "+measure.Quantity(row.Result.P99, measure.Seconds))
	}
	return r.withoutTrips(row), nil
}

// withoutTrips adds the reason to a row without a limit.
func (r *Run) withoutTrips(row Row) Row {
	if row.Limit == nil {
		row.Notes = append(row.Notes, "the limit is not measured: it is a round trip over the network to the daemon")
	}
	return row
}

// smallFiles makes small files in a directory for each round.
func smallFiles(ctx context.Context, r *Run, share time.Duration) (Row, error) {
	n := r.smallOps()
	data := r.source.Bytes[:smallFile]
	var trips, ours []float64
	err := rounds(ctx, share, func(round int) error {
		took, err := r.trips(n)
		if err != nil {
			return err
		}
		dir := r.at(fmt.Sprintf("small-%d", round))
		if err := r.b.Mkdir(ctx, dir, 0o700); err != nil {
			return err
		}
		began := time.Now()
		done, err := each(round, n, share, func(i int) error {
			return r.b.WriteFile(ctx, path.Join(dir, fmt.Sprint(i)), data, 0o600)
		})
		if err != nil {
			return err
		}
		rate := measure.Rate(done, time.Since(began))
		if round > 0 {
			ours = append(ours, rate)
			for _, t := range took {
				trips = append(trips, measure.Rate(1, t))
			}
		}
		return r.b.RemoveAll(ctx, dir)
	})
	if err != nil {
		return Row{}, err
	}
	return r.withoutTrips(Row{Result: measure.Of("create, write 4 KiB and close, one file after the other", measure.PerSecond, ours), Limit: tripLimit(measure.PerSecond, trips)}), nil
}
