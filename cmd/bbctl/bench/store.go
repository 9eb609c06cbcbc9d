package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// drainShare is the share of the size that is drained. As much is read back beside it.
const drainShare = largeShare / 2

// storeDepth is how many writes at a time the store's own rate is measured with.
const storeDepth = 8

const noStore = "the buffer has no store"

const maxDrains = 5

// drain writes large files and waits until they are on the store, where the last ones stay for
// readBack. It continues until half of the share is used up. The store's own rate takes the rest.
func drain(ctx context.Context, r *Run, share time.Duration) (Row, error) {
	if r.spec.Backing == "" {
		return Row{}, measure.Cannot(noStore)
	}
	n := r.files(drainShare)
	bytes := int64(n) * r.file
	dir := r.at("drain")
	if err := r.b.Mkdir(ctx, dir, 0o700); err != nil {
		return Row{}, err
	}
	var ours []float64
	began := time.Now()
	for len(ours) == 0 || len(ours) < maxDrains && time.Since(began) < share/2 {
		if len(ours) > 0 {
			if err := r.removeLarge(ctx, dir, n); err != nil {
				return Row{}, err
			}
		}
		took, err := r.drainOnce(ctx, dir, n, max(2*share, leastTime))
		if err != nil {
			return Row{}, err
		}
		ours = append(ours, measure.Rate(bytes, took))
	}
	row := Row{Result: measure.Of("from the first write until the store has "+r.largeFiles(n), measure.BytesPerSecond, ours)}
	if r.spec.FlushLimit > 0 {
		row.Notes = append(row.Notes, "the buffer's flush limit is "+measure.Quantity(float64(r.spec.FlushLimit), measure.BytesPerSecond))
	}
	var err error
	if row.Limit, err = r.storeWrite(ctx, bytes); err != nil {
		row.Notes = append(row.Notes, withoutLimit(err))
	}
	return row, ctx.Err()
}

// drainOnce writes n large files and drains them, within a time.
func (r *Run) drainOnce(ctx context.Context, dir string, n int, most time.Duration) (time.Duration, error) {
	began := time.Now()
	if _, err := r.writeLarge(ctx, dir, n); err != nil {
		return 0, err
	}
	report, err := admin.DrainBelow(ctx, r.c, r.b.Name(), dir, most, r.follow)
	took := time.Since(began)
	r.ended(ctx)
	switch {
	case report.TimedOut:
		return 0, fmt.Errorf("%s of %s were on the store after %v: give a smaller --size or a longer --time",
			r.quantity(report.BytesDone), r.quantity(int64(n)*r.file), took.Round(time.Second))
	case report.ExcludedTotal > 0:
		return 0, measure.Cannot("a pattern of the buffer keeps its files from the store")
	}
	return took, err
}

// follow records the job of the daemon that is under way.
func (r *Run) follow(p admin.Progress) { r.job = p.Job }

// ended removes the job, unless ctx has ended before it.
func (r *Run) ended(ctx context.Context) {
	if ctx.Err() == nil {
		r.job = ""
	}
}

func withoutLimit(err error) string { return "the store's own rate is not measured: " + err.Error() }

// storeWrite measures how fast this machine writes so many bytes to the store's folder without
// Forebay, in a directory of its own below the run's.
func (r *Run) storeWrite(ctx context.Context, bytes int64) (_ *measure.Figure, err error) {
	folder, err := r.folder()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(filepath.Join(folder, r.dir), "limit-")
	if err != nil {
		return nil, notWritable(folder, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	took, err := hostlimit.DirectWrite(ctx, dir, bytes, storeDepth)
	if err != nil {
		return nil, err
	}
	return measure.Of("direct write to the store", measure.BytesPerSecond, []float64{measure.Rate(bytes, took)}), nil
}

// folder returns the store's folder on this machine.
func (r *Run) folder() (string, error) {
	where, err := bb.ParseBacking(r.spec.Backing)
	switch {
	case err != nil:
		return "", err
	case !where.IsDirectory():
		return "", measure.Cannot("an object store needs its keys")
	case !r.local:
		return "", measure.Cannot("its folder is the daemon's, on another machine")
	}
	return where.Path, nil
}

func notWritable(folder string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return measure.Cannot("you may not write below %s", folder)
	}
	return measure.Cannot("%v", err)
}

// readBack reads the drained files from the store. No command evicts a file, so files that are still
// in memory are staged in beside themselves instead, which reads and verifies as much from the store.
func readBack(ctx context.Context, r *Run, _ time.Duration) (Row, error) {
	if r.spec.Backing == "" {
		return Row{}, measure.Cannot(noStore)
	}
	n := r.files(drainShare)
	bytes := int64(n) * r.file
	gone, err := r.evicted(ctx, n)
	if err != nil {
		if client.KindOf(err) == client.ErrNotFound {
			err = measure.Cannot("drain left nothing to read")
		}
		return Row{}, err
	}
	if gone < n && r.spec.Codec != "" {
		return Row{}, measure.Cannot("nothing has evicted the files, and a stage-in takes compressed ones as they are")
	}
	var row Row
	cold, coldErr := r.storeRead(n) // before, so that the files are not in the page cache for both
	var took time.Duration
	what := "open, read and close %s that were evicted"
	if gone == n {
		took, err = r.readLarge(ctx, r.at("drain"), n)
	} else {
		what = "stage-in of %s, which nothing has evicted"
		took, err = r.stageBack(ctx, bytes)
	}
	if err != nil {
		return Row{}, err
	}
	row.Result = measure.Of(fmt.Sprintf(what, r.largeFiles(n)), measure.BytesPerSecond, []float64{measure.Rate(bytes, took)})
	if row.Limit = cold; coldErr != nil {
		row.Notes = append(row.Notes, withoutLimit(coldErr))
	}
	return row, errors.Join(r.b.RemoveAll(ctx, r.at("back")), r.b.RemoveAll(ctx, r.at("drain")))
}

// evicted counts the files of drain that only the store has.
func (r *Run) evicted(ctx context.Context, n int) (gone int, err error) {
	for i := range n {
		e, err := r.b.Stat(ctx, path.Join(r.at("drain"), large(i)))
		switch {
		case err != nil:
			return 0, err
		case e.State == client.StateDirty || e.State == client.StateOpen:
			return 0, measure.Cannot("drain did not come to its end")
		case e.State == client.StateEvicted:
			gone++
		}
	}
	return gone, nil
}

// storeRead measures how fast this machine reads the files from the store's folder without Forebay.
// They are dropped from the page cache before, and after.
func (r *Run) storeRead(n int) (_ *measure.Figure, err error) {
	folder, err := r.folder()
	if err != nil {
		return nil, err
	}
	if r.spec.Codec != "" {
		return nil, measure.Cannot("the store's files are compressed")
	}
	names := make([]string, n)
	for i := range names {
		names[i] = filepath.Join(folder, r.at("drain"), large(i))
		if err := hostlimit.EvictPages(names[i]); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	var bytes int64
	for _, name := range names {
		n, err := r.readPlain(name)
		if err != nil {
			return nil, err
		}
		bytes += n
	}
	rate := measure.Rate(bytes, time.Since(began))
	for _, name := range names {
		if err := hostlimit.EvictPages(name); err != nil {
			return nil, err
		}
	}
	return measure.Of("read of the store's files, not in the page cache", measure.BytesPerSecond, []float64{rate}), nil
}

func (r *Run) readPlain(name string) (int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, r.into.Bytes[:hostlimit.Step])
}

// stageBack stages the drained files into a directory beside them.
func (r *Run) stageBack(ctx context.Context, bytes int64) (time.Duration, error) {
	where, err := below(r.spec.Backing, r.at("drain"))
	if err != nil {
		return 0, err
	}
	began := time.Now()
	report, err := admin.StageIn(ctx, r.c, admin.StageRequest{Buffer: r.b.Name(), Path: r.at("back"), URL: where}, r.follow)
	took := time.Since(began)
	r.ended(ctx)
	if err == nil && report.BytesDone-report.BytesNotCopied != bytes {
		err = fmt.Errorf("stage-in copied %s of %s", r.quantity(report.BytesDone-report.BytesNotCopied), r.quantity(bytes))
	}
	return took, err
}

// below returns the URL of a path in a store.
func below(store, name string) (string, error) {
	u, err := url.Parse(store)
	if err != nil {
		return "", err
	}
	u.Path = strings.TrimRight(u.Path, "/") + "/" + name
	return u.String(), nil
}
