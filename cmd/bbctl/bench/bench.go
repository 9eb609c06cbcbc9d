// Package bench measures a buffer of a user for about a minute, in a directory of its own that it
// removes: write, sync, read, drain, read back and small files, each beside this machine's figure
// without Forebay. It must never touch another name in the buffer or in its store.
package bench

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Options are the user's choices.
type Options struct {
	Size int64         // bytes in the buffer at most; 0: a tenth of its limit
	Time time.Duration // of all rows together, about
}

const (
	minSize  = 4 << 20
	mostSize = 1 << 30 // unless a user sets more
	maxFile  = 64 << 20
	minTime  = time.Second
)

// Run is a measurement of one buffer. It is used by one goroutine.
type Run struct {
	c     *client.Client
	b     *client.Buffer
	spec  admin.BufferSpec
	dir   string // of its own, in the buffer
	size  int64  // bytes in the buffer at most
	file  int64  // of each large file
	time  time.Duration
	local bool // the daemon is on this machine

	source hostlimit.Memory // that is written
	into   hostlimit.Memory // that is read into
	target hostlimit.Memory // that limits copy to and from
	job    string           // of the daemon, while one is under way
}

// New checks that a directory of a buffer can be measured, and changes nothing.
func New(ctx context.Context, c *client.Client, at client.Address, o Options) (*Run, error) {
	if o.Time < minTime {
		return nil, invalid("--time", o.Time.String(), fmt.Sprintf("is less than %v", minTime))
	}
	b := c.Buffer(at.Buffer)
	spec, err := admin.BufferInfo(ctx, c, at.Buffer)
	if err != nil {
		return nil, err
	}
	if at.Path != "" {
		switch e, err := b.Stat(ctx, at.Path); {
		case err != nil:
			return nil, err
		case !e.IsDir():
			return nil, invalid("directory", at.String(), "is a file")
		}
	}
	size, err := sizeIn(ctx, c, spec.Capacity, o.Size)
	if err != nil {
		return nil, err
	}
	server := c.Server()
	return &Run{
		c: c, b: b, spec: spec, size: size, file: fileSize(size), time: o.Time,
		local: strings.HasPrefix(server.Address, "unix:"),
		dir:   path.Join(at.Path, "forebay-bench-"+strings.ToLower(rand.Text()[:8])),
	}, nil
}

func invalid(what, value, why string) error {
	return &client.Error{Kind: client.ErrInvalid, Op: "bench", Path: what + " " + value, Err: errors.New(why), Remedy: "see bbctl bench --help"}
}

// sizeIn returns how many bytes a run may have in a buffer that may hold capacity (0: all of the
// node's memory). asked is 0 for a tenth of that, which fits into the memory that is free.
func sizeIn(ctx context.Context, c *client.Client, capacity, asked int64) (int64, error) {
	var s struct {
		Memory struct{ Capacity, Free int64 }
	}
	text, err := admin.Status(ctx, c, "")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return 0, err
	}
	return chooseSize(capacity, s.Memory.Capacity, s.Memory.Free, asked)
}

func chooseSize(capacity, memory, free, asked int64) (int64, error) {
	if capacity == 0 || capacity > memory {
		capacity = memory
	}
	switch {
	case asked != 0 && asked < minSize:
		return 0, invalid("--size", measure.Quantity(float64(asked), measure.Bytes), "is less than "+measure.Quantity(minSize, measure.Bytes))
	case asked > capacity:
		return 0, invalid("--size", measure.Quantity(float64(asked), measure.Bytes),
			"is more than the "+measure.Quantity(float64(capacity), measure.Bytes)+" that the buffer may have in this node's memory")
	case asked != 0:
		return asked, nil
	}
	size := min(capacity/10, free/2, mostSize) / hostlimit.Step * hostlimit.Step
	if size < minSize {
		return 0, &client.Error{
			Kind: client.ErrNoSpace, Op: "bench", Path: "--size",
			Err:    fmt.Errorf("a tenth of the buffer, or half of the %s of memory that are free, is less than %s", measure.Quantity(float64(free), measure.Bytes), measure.Quantity(minSize, measure.Bytes)),
			Remedy: "choose --size yourself, or measure when the node is less full",
		}
	}
	return size, nil
}

// fileSize is that of the large files of a run: so many that memory is not all in the caches.
func fileSize(size int64) int64 {
	return min(maxFile, max(hostlimit.Step, size/8/hostlimit.Step*hostlimit.Step))
}

// files returns how many large files are a share of the size.
func (r *Run) files(share float64) int {
	return int(max(1, int64(share*float64(r.size))/r.file))
}

// Directory is where the run writes, as users address it.
func (r *Run) Directory() string {
	return client.Address{Buffer: r.b.Name(), Path: r.dir}.String()
}

// Size is how many bytes the run has in the buffer at most.
func (r *Run) Size() int64 { return r.size }

// Measure measures all rows and removes its files, also when ctx ends. step is called before each
// row. The error is that of the run. The errors of rows are in the report.
func (r *Run) Measure(ctx context.Context, step func(row, rows int, name string)) (report *Report, err error) {
	began := time.Now()
	defer func() { err = errors.Join(err, r.free()) }()
	if err := r.memories(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.remove(ctx)) }()
	if err := r.b.Mkdir(ctx, r.dir, 0o700); err != nil {
		return nil, err
	}
	report = &Report{Buffer: r.b.Name(), Directory: r.Directory(), Bytes: r.size, Daemon: r.c.Server().Version}
	for i, what := range rows {
		step(i+1, len(rows), what.name)
		row := r.one(ctx, what)
		if ctx.Err() != nil {
			return report, context.Cause(ctx)
		}
		report.Rows = append(report.Rows, row)
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// one measures a row within its share of the time. A row that cannot be measured has the reason.
func (r *Run) one(ctx context.Context, what rowKind) Row {
	share := time.Duration(what.share * float64(r.time))
	most := max(3*share, leastTime)
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("no end after %v: the buffer may have no room, or its node is busy", most.Round(time.Second)))
	defer cancel()
	row, err := what.measure(ctx, r, share)
	row.Name = what.name
	row.Ratio = measure.Ratio(row.Result, row.Limit)
	if err == nil {
		return row
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var cannot measure.Unmeasured
	row.NotMeasured, row.Failed, row.err = err.Error(), !errors.As(err, &cannot), err
	return row
}

// leastTime is the time that a row has in any case, in the shortest run.
const leastTime = 20 * time.Second

// memories maps the sources and destinations of rows' copies.
func (r *Run) memories() (err error) {
	if r.source, err = hostlimit.Anonymous(r.file); err != nil {
		return err
	}
	hostlimit.Fill(r.source.Bytes)
	if r.into, err = hostlimit.Anonymous(r.file); err != nil {
		return err
	}
	r.target, err = hostlimit.Memfd(r.file)
	return err
}

func (r *Run) free() error { return errors.Join(r.source.Free(), r.into.Free(), r.target.Free()) }

// cleanTime is how long the removal may take when the run was cancelled.
const cleanTime = 30 * time.Second

// remove ends the daemon's work for the run and removes the run's directory, also when ctx has
// ended.
func (r *Run) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	if r.job != "" {
		_ = admin.CancelOperation(ctx, r.c, r.job) // it may have ended by itself
		_, _ = admin.WatchOperation(ctx, r.c, r.job, func(admin.Operation) {})
	}
	err := r.b.RemoveAll(ctx, r.dir)
	if err == nil || client.KindOf(err) == client.ErrNotFound {
		return nil
	}
	return &client.Error{Kind: client.KindOf(err), Op: "bench", Path: r.Directory(), Err: err, Remedy: "remove it: bbctl rm -r " + r.Directory()}
}
