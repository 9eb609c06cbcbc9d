package stores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/measure"
)

// Row 17: from Close until the bytes are safe on the store.

const (
	durableFile = 4 << 20
	durableRate = 256 << 20 // bytes a second at most, to which the store's bandwidth is set
)

// loads are shares of the store's bandwidth that the application writes.
var loads = [...]float64{0.1, 0.5, 0.9}

// TimeToDurable is row 17.
func TimeToDurable(ctx context.Context, e *testbed.Env) ([]report.Result, error) {
	source, err := e.Data(e.Sizes.File)
	if err != nil {
		return nil, err
	}
	free, err := flushRound(ctx, e, source)
	if err != nil {
		return nil, err
	}
	bandwidth := min(durableRate, int64(free)/2)
	var results []report.Result
	for _, load := range loads {
		waits, late, err := durableAt(ctx, e, source, bandwidth, load)
		if err != nil {
			return results, err
		}
		results = append(results, durableResult(load, bandwidth, free, waits, late))
	}
	return results, nil
}

func durableResult(load float64, bandwidth int64, free float64, waits []float64, late int) report.Result {
	ours := measure.Of(fmt.Sprintf("from Close until the flushed event, median; a file of %s arrives on average every %s, at random",
		measure.Quantity(durableFile, measure.Bytes), measure.Quantity(durableFile/(load*float64(bandwidth)), measure.Seconds)), measure.Seconds, waits)
	ours.P99 = measure.Quantile(measure.Sorted(waits), 0.99)
	r := report.Result{
		What: fmt.Sprintf("time to durable at %.0f %% of the store's bandwidth", load*100), Goal: report.Goal{Text: "published"},
		Limit:  measure.Of("size / bandwidth", measure.Seconds, []float64{durableFile / float64(bandwidth)}),
		Result: ours,
		Notes: []string{fmt.Sprintf("p50 %s, p99 %s; the store's bandwidth is set to %s by the buffer's flush limit (flushing without limit reached %s)",
			measure.Quantity(ours.Value, measure.Seconds), measure.Quantity(ours.P99, measure.Seconds), measure.Quantity(float64(bandwidth), measure.BytesPerSecond), measure.Quantity(free, measure.BytesPerSecond))},
	}
	if late > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d events were missed; the namespace's own time was taken for those files", late))
	}
	return r
}

// arrivals returns when n files arrive: a Poisson process with a mean distance, the
// same in every run.
func arrivals(n int, mean time.Duration) []time.Duration {
	rng := rand.New(rand.NewPCG(1, 17))
	times := make([]time.Duration, n)
	at := time.Duration(0)
	for i := range times {
		times[i] = at
		at += time.Duration(rng.ExpFloat64() * float64(mean))
	}
	return times
}

// durableAt writes files at a share of the bandwidth and returns the time until each
// was durable.
func durableAt(ctx context.Context, e *testbed.Env, source []byte, bandwidth int64, load float64) (waits []float64, late int, err error) {
	dir, url, err := e.Folder("durable")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, done, err := e.Buffer(ctx, admin.BufferSpec{Backing: url, FlushLimit: bandwidth})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	watch, err := watchFlushed(ctx, e, b)
	if err != nil {
		return nil, 0, err
	}
	defer watch.stop()
	if err := e.Settle(); err != nil {
		return nil, 0, err
	}
	mean := time.Duration(durableFile / (load * float64(bandwidth)) * float64(time.Second))
	closed, err := writeArriving(ctx, b, source, arrivals(int(max(2, e.Sizes.DurableTime/mean)), mean))
	if err != nil {
		return nil, 0, err
	}
	if _, err := admin.Drain(ctx, e.Client, b.Name(), 10*time.Minute, nil); err != nil {
		return nil, 0, err
	}
	if err := testbed.Sleep(ctx, 200*time.Millisecond); err != nil { // the last events are under way
		return nil, 0, err
	}
	watch.stop()
	return watch.waits(ctx, b, closed)
}

// writeArriving writes a file at each time and returns when each was closed: the
// moment before Close was called.
func writeArriving(ctx context.Context, b *client.Buffer, source []byte, times []time.Duration) ([]time.Time, error) {
	closed := make([]time.Time, len(times))
	began := time.Now()
	for i, at := range times {
		if err := testbed.Sleep(ctx, time.Until(began.Add(at))); err != nil {
			return nil, err
		}
		f, err := b.Create(ctx, testbed.FileName(i))
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(testbed.Piece(source, i, durableFile)); err != nil {
			return nil, errors.Join(err, f.Abort())
		}
		closed[i] = time.Now()
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return closed, nil
}

// watch records the times of events of flushed files.
type watch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	heard  chan struct{} // closed at the first event

	// Of the listening goroutine until stop has returned.
	flushed map[string]time.Time
	err     error
}

// watchFlushed subscribes to a buffer's events and returns once they come. It writes files until
// one of them has its event.
func watchFlushed(ctx context.Context, e *testbed.Env, b *client.Buffer) (*watch, error) {
	w := &watch{heard: make(chan struct{}), flushed: map[string]time.Time{}}
	var watching context.Context
	watching, w.cancel = context.WithCancel(ctx)
	w.wg.Go(func() { w.listen(watching, e.Client, b.Name()) })
	for i := range 100 {
		if err := b.WriteFile(ctx, fmt.Sprintf("probe%d", i), []byte("probe"), 0o644); err != nil {
			w.stop()
			return nil, err
		}
		select {
		case <-w.heard:
			_, err := admin.Drain(ctx, e.Client, b.Name(), time.Minute, nil)
			return w, err
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.stop()
	return nil, errors.Join(errors.New("no event comes"), w.err)
}

func (w *watch) listen(ctx context.Context, c *client.Client, buffer string) {
	first := true
	for event, err := range admin.Events(ctx, c, buffer) {
		if err != nil {
			w.err = err
			return
		}
		if event.Kind == admin.EventFlushed {
			w.flushed[event.Path] = time.Now()
		}
		if first {
			close(w.heard)
			first = false
		}
	}
}

// stop ends listening. It may be called twice.
func (w *watch) stop() {
	w.cancel()
	w.wg.Wait()
}

// waits returns, after stop and for every file, the time from Close until its event. Where the event
// was missed, the namespace has the time of the flush.
func (w *watch) waits(ctx context.Context, b *client.Buffer, closed []time.Time) (waits []float64, late int, err error) {
	for i, at := range closed {
		flushed, ok := w.flushed[testbed.FileName(i)]
		if !ok {
			late++
			entry, err := b.Stat(ctx, testbed.FileName(i))
			if err != nil {
				return nil, 0, err
			}
			flushed = entry.Flushed.At
		}
		waits = append(waits, flushed.Sub(at).Seconds())
	}
	if i := slices.IndexFunc(waits, func(s float64) bool { return s <= 0 }); i >= 0 {
		return nil, 0, fmt.Errorf("%s was durable before it was closed, by its event", testbed.FileName(i))
	}
	return waits, late, nil
}
