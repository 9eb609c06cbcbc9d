package bench

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
)

// Row 17: from Close until the bytes are safe on the store.

const (
	durableFile = 4 << 20
	durableRate = 256 << 20 // bytes a second at most: what the store's bandwidth is set to
)

// loads are shares of the store's bandwidth that the application writes.
var loads = [...]float64{0.1, 0.5, 0.9}

func timeToDurable(ctx context.Context, e *env) ([]Result, error) {
	source, err := e.data(e.sizes.File)
	if err != nil {
		return nil, err
	}
	free, err := e.flushRound(ctx, source)
	if err != nil {
		return nil, err
	}
	bandwidth := min(durableRate, int64(free)/2)
	var results []Result
	for _, load := range loads {
		waits, late, err := e.durableAt(ctx, source, bandwidth, load)
		if err != nil {
			return results, err
		}
		results = append(results, durableResult(load, bandwidth, free, waits, late))
	}
	return results, nil
}

func durableResult(load float64, bandwidth int64, free float64, waits []float64, late int) Result {
	ours := figure(fmt.Sprintf("from Close until the flushed event, median; a file of %s arrives on average every %s, at random",
		quantity(durableFile, Bytes), quantity(durableFile/(load*float64(bandwidth)), Seconds)), Seconds, waits)
	ours.P99 = quantile(sortedCopy(waits), 0.99)
	r := Result{
		What: fmt.Sprintf("time to durable at %.0f %% of the store's bandwidth", load*100), Goal: Goal{Text: "published"},
		Limit:  figure("size / bandwidth", Seconds, []float64{durableFile / float64(bandwidth)}),
		Result: ours,
		Notes: []string{fmt.Sprintf("p50 %s, p99 %s; the store's bandwidth is set to %s by the buffer's flush limit (flushing without limit reached %s)",
			quantity(ours.Value, Seconds), quantity(ours.P99, Seconds), quantity(float64(bandwidth), BytesPerSecond), quantity(free, BytesPerSecond))},
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

// durableAt writes files at a share of the bandwidth and returns how long each took to
// become durable.
func (e *env) durableAt(ctx context.Context, source []byte, bandwidth int64, load float64) (waits []float64, late int, err error) {
	dir, url, err := e.folder("durable")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b, done, err := e.buffer(ctx, admin.BufferSpec{Backing: url, FlushLimit: bandwidth})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, done()) }()
	watch, err := e.watchFlushed(ctx, b)
	if err != nil {
		return nil, 0, err
	}
	defer watch.stop()
	if err := e.settle(); err != nil {
		return nil, 0, err
	}
	mean := time.Duration(durableFile / (load * float64(bandwidth)) * float64(time.Second))
	closed, err := writeArriving(ctx, b, source, arrivals(int(max(2, e.sizes.DurableTime/mean)), mean))
	if err != nil {
		return nil, 0, err
	}
	if _, err := admin.Drain(ctx, e.client, b.Name(), 10*time.Minute, nil); err != nil {
		return nil, 0, err
	}
	if err := sleep(ctx, 200*time.Millisecond); err != nil { // the last events are under way
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
		if err := sleep(ctx, time.Until(began.Add(at))); err != nil {
			return nil, err
		}
		f, err := b.Create(ctx, fileName(i))
		if err != nil {
			return nil, err
		}
		if _, err := f.Write(piece(source, i, durableFile)); err != nil {
			return nil, errors.Join(err, f.Abort())
		}
		closed[i] = time.Now()
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	return closed, nil
}

// watch notes when events say that files were flushed.
type watch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	heard  chan struct{} // closed at the first event

	// Of the listening goroutine until stop has returned.
	flushed map[string]time.Time
	err     error
}

// watchFlushed subscribes to a buffer's events and returns once they come: it writes
// files until it hears of one.
func (e *env) watchFlushed(ctx context.Context, b *client.Buffer) (*watch, error) {
	w := &watch{heard: make(chan struct{}), flushed: map[string]time.Time{}}
	var watching context.Context
	watching, w.cancel = context.WithCancel(ctx)
	w.wg.Go(func() { w.listen(watching, e.client, b.Name()) })
	for i := range 100 {
		if err := b.WriteFile(ctx, fmt.Sprintf("probe%d", i), []byte("probe"), 0o644); err != nil {
			w.stop()
			return nil, err
		}
		select {
		case <-w.heard:
			_, err := admin.Drain(ctx, e.client, b.Name(), time.Minute, nil)
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

// stop ends listening; it may be called twice.
func (w *watch) stop() {
	w.cancel()
	w.wg.Wait()
}

// waits returns, after stop and for every file, the time from Close until its event. Where the event
// was missed, the namespace says when it was flushed.
func (w *watch) waits(ctx context.Context, b *client.Buffer, closed []time.Time) (waits []float64, late int, err error) {
	for i, at := range closed {
		flushed, ok := w.flushed[fileName(i)]
		if !ok {
			late++
			entry, err := b.Stat(ctx, fileName(i))
			if err != nil {
				return nil, 0, err
			}
			flushed = entry.Flushed.At
		}
		waits = append(waits, flushed.Sub(at).Seconds())
	}
	if i := slices.IndexFunc(waits, func(s float64) bool { return s <= 0 }); i >= 0 {
		return nil, 0, fmt.Errorf("%s was durable before it was closed, says its event", fileName(i))
	}
	return waits, late, nil
}
