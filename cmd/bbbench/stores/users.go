package stores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Rows 11 and 13 by several users at once: a root daemon reaches the store of each with that user's
// rights. Each has a process, a buffer and a folder of its own.

const (
	firstUser  = 61_000 // uids that systems do not assign
	mostUsers  = 100
	userRegion = 64 << 20 // a region is one user's at a time
)

// The orders of a worker of kind workUser.
const (
	doMake    = "make"    // a buffer in front of a store, or none
	doFlush   = "flush"   // write files and drain them
	doStage   = "stage"   // stage a store in
	doDestroy = "destroy" // the buffer
)

// CheckUsers refuses a number of users that cannot be measured here.
func CheckUsers(o testbed.Place) error {
	switch {
	case o.Users == 0:
		return nil
	case o.Users < 0 || o.Users > mostUsers:
		return testbed.Invalid("users", fmt.Sprint(o.Users), fmt.Sprintf("is not a number from 1 to %d", mostUsers))
	case o.Socket != "":
		return testbed.Invalid("users", fmt.Sprint(o.Users), "needs a daemon of its own: run it without --socket")
	case os.Geteuid() != 0:
		return bb.E(bb.Permission, "bench", "--users", "only root can act as several users").WithRemedy("run it as root")
	}
	return nil
}

// userSizes divides bytes among users: so many files of a size for each.
func userSizes(total int64, users int) (files int, size int64) {
	share := total / int64(users)
	size = min(flushFile, max(hostlimit.Step, share/4/hostlimit.Step*hostlimit.Step))
	return int(max(1, share/size)), size
}

// tenants are the users of a row.
type tenants struct {
	e     *testbed.Env
	crew  *process.Crew
	dirs  []string // of each, below the folder of the row
	files int      // of each
	size  int64    // of a file
	undo  func() error
}

// withTenants runs a row with so many users on a daemon of its own.
func withTenants(ctx context.Context, e *testbed.Env, row func(*tenants) (report.Result, error)) (r report.Result, err error) {
	memory := testbed.WholeRegions(max(e.Sizes.Memory(), 2*userRegion*int64(e.Opts.Users)))
	e.Further = []string{"--memory-region-size", fmt.Sprint(userRegion)}
	defer func() { e.Further = nil }()
	err = e.WithMemory(ctx, memory, func() (err error) {
		if _, err := e.Connect(ctx); err != nil {
			return err
		}
		t, err := newTenants(e)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.end()) }()
		r, err = row(t)
		return err
	})
	return r, err
}

// newTenants starts the users' processes.
func newTenants(e *testbed.Env) (t *tenants, err error) {
	t = &tenants{e: e, crew: &process.Crew{}}
	for _, dir := range []string{e.State, e.Daemon.Dir, e.Store} {
		if err := os.Chmod(dir, 0o711); err != nil {
			return nil, bb.Wrap("bench", dir, err)
		}
	}
	t.files, t.size = userSizes(e.Sizes.Flush, e.Opts.Users)
	top, _, err := e.Folder("users")
	if err != nil {
		return nil, err
	}
	t.undo = func() error { return os.RemoveAll(top) }
	if err := os.Chmod(top, 0o711); err != nil {
		return nil, errors.Join(err, t.end())
	}
	for i := range e.Opts.Users {
		if err := t.add(top, i); err != nil {
			return nil, errors.Join(err, t.end())
		}
	}
	return t, t.crew.Await()
}

func (t *tenants) add(top string, i int) error {
	uid := firstUser + i
	dir := filepath.Join(top, fmt.Sprint(uid))
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
		return bb.Wrap("bench", dir, err)
	}
	t.dirs = append(t.dirs, dir)
	w := testbed.Writer{
		Address: "unix://" + t.e.Daemon.Socket, Buffer: fmt.Sprintf("bench-%d-of-%d", os.Getpid(), uid),
		Bytes: t.size, Source: min(t.size, 16<<20),
	}
	// Through /proc, since the user may not have the right to enter the binary's folder.
	cmd := exec.Command("/proc/self/exe", append([]string{"worker", process.WorkUser, "--files", fmt.Sprint(t.files)}, w.Args()...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return t.crew.Add(cmd)
}

func (t *tenants) end() error { return errors.Join(t.crew.Dismiss(), t.undo()) }

// bytes of all users' files together.
func (t *tenants) bytes() int64 { return int64(len(t.dirs)) * int64(t.files) * t.size }

func (t *tenants) what() string {
	return fmt.Sprintf("%s of %s, by %s at once", bb.Count(t.files*len(t.dirs), "file", "files"), measure.Quantity(float64(t.size), measure.Bytes), bb.Count(len(t.dirs), "user", "users"))
}

// do sends every user an order with a folder below the user's own.
func (t *tenants) do(what, folder string) error {
	orders := make([]process.Order, len(t.dirs))
	for i, dir := range t.dirs {
		orders[i].Do = what
		if folder != "" {
			orders[i].Path = "file://" + filepath.Join(dir, folder)
		}
	}
	return t.crew.Work(orders)
}

// folders makes a folder for each user, or removes it.
func (t *tenants) folders(name string) error {
	for i, dir := range t.dirs {
		dir = filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, firstUser+i, firstUser+i)); err != nil {
			return bb.Wrap("bench", dir, err)
		}
	}
	return nil
}

func (t *tenants) removeFolders(name string) error {
	var errs []error
	for _, dir := range t.dirs {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// flushRound has all users write and drain at once.
func (t *tenants) flushRound() (took time.Duration, err error) {
	if err := t.folders("flush"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.removeFolders("flush")) }()
	if err := t.do(doMake, "flush"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.do(doDestroy, "")) }()
	if err := t.e.Settle(); err != nil {
		return 0, err
	}
	began := time.Now()
	err = t.do(doFlush, "")
	return time.Since(began), err
}

func flushByUsers(ctx context.Context, e *testbed.Env) (report.Result, error) {
	return withTenants(ctx, e, func(t *tenants) (report.Result, error) {
		disk := findDiskWriter()
		var limit, ours []float64
		for range e.Sizes.Rounds {
			written, err := limitRound(ctx, e, disk)
			if err != nil {
				return report.Result{}, err
			}
			took, err := t.flushRound()
			if err != nil {
				return report.Result{}, err
			}
			limit, ours = append(limit, written), append(ours, measure.Rate(t.bytes(), took))
		}
		return report.Result{
			Goal:   report.RatioGoal("0.9", 0.9),
			Limit:  measure.Of(fmt.Sprintf("sequential direct write of %s by %s, the faster of %v at a time", measure.Quantity(float64(e.Sizes.Flush), measure.Bytes), disk.name, depths), measure.BytesPerSecond, limit),
			Result: measure.Of("from the first write until "+t.what()+", are drained", measure.BytesPerSecond, ours),
			Notes:  []string{"both on " + hostlimit.FileSystem(e.Store) + " at --dir"},
		}, nil
	})
}

// makeStaged writes the files that users stage in, and returns those of each.
func (t *tenants) makeStaged() (files [][]string, err error) {
	if err := t.folders("stage"); err != nil {
		return nil, err
	}
	source, err := t.e.Data(t.e.Sizes.File)
	if err != nil {
		return nil, err
	}
	for i, dir := range t.dirs {
		var of []string
		for k := range t.files {
			path := filepath.Join(dir, "stage", testbed.FileName(k))
			if err := writeDirect(path, testbed.Piece(source, i*t.files+k, t.size), t.size, true); err != nil {
				return nil, err
			}
			if err := os.Chown(path, firstUser+i, firstUser+i); err != nil {
				return nil, err
			}
			of = append(of, path)
		}
		files = append(files, of)
	}
	return files, nil
}

// stageRound has all users stage in at once.
func (t *tenants) stageRound(files []string) (took time.Duration, err error) {
	if err := t.do(doMake, ""); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.do(doDestroy, "")) }()
	return cold(files, func() error { return t.do(doStage, "stage") })
}

func stageByUsers(ctx context.Context, e *testbed.Env) (report.Result, error) {
	return withTenants(ctx, e, func(t *tenants) (report.Result, error) {
		files, err := t.makeStaged()
		if err != nil {
			return report.Result{}, err
		}
		all := slices.Concat(files...)
		var limit, ours []float64
		for range e.Sizes.Rounds {
			took, err := cold(all, func() error {
				_, err := testbed.InParallel(ctx, len(files), len(files), func(i int) error { return cat(ctx, files[i]) })
				return err
			})
			if err != nil {
				return report.Result{}, err
			}
			limit = append(limit, measure.Rate(t.bytes(), took))
			if took, err = t.stageRound(all); err != nil {
				return report.Result{}, err
			}
			ours = append(ours, measure.Rate(t.bytes(), took))
		}
		return report.Result{
			What: "stage-in from POSIX", Goal: report.RatioGoal("0.9", 0.9),
			Limit:  measure.Of("cat of "+t.what()+", not in the page cache", measure.BytesPerSecond, limit),
			Result: measure.Of("stage-in of the same, not in the page cache", measure.BytesPerSecond, ours),
			Notes:  []string{"both on " + hostlimit.FileSystem(e.Store) + " at --dir; a virtual machine's host may still have the files in its memory"},
		}, nil
	})
}

// ServeUser is a worker of kind workUser.
func ServeUser(ctx context.Context, w testbed.Writer, files int, in io.Reader, out io.Writer) error {
	c, err := client.Dial(ctx, client.Options{Address: w.Address, Name: "bbbench user", RetryFor: -1})
	if err != nil {
		return err
	}
	defer c.Close()
	if !c.Server().Mapped {
		return measure.Cannot("uid %d cannot map the daemon's memory", c.Server().UID)
	}
	source, err := hostlimit.Anonymous(w.Source)
	if err != nil {
		return err
	}
	hostlimit.Fill(source.Bytes)
	err = process.Obey(in, out, func(o process.Order) error {
		switch o.Do {
		case doMake:
			_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: w.Buffer, Backing: o.Path})
			return err
		case doFlush:
			return flush(ctx, w, c, files, source.Bytes)
		case doStage:
			return stage(ctx, w, c, files, o.Path)
		case doDestroy:
			return admin.DiscardBuffer(ctx, c, w.Buffer)
		}
		return testbed.Invalid("order", o.Do, "is not known")
	})
	return errors.Join(err, source.Free())
}

func flush(ctx context.Context, w testbed.Writer, c *client.Client, files int, source []byte) error {
	b := c.Buffer(w.Buffer)
	for i := range files {
		if err := testbed.WriteFile(ctx, b, testbed.FileName(i), source, w.Bytes); err != nil {
			return err
		}
	}
	_, err := admin.Drain(ctx, c, w.Buffer, 10*time.Minute, nil)
	return err
}

func stage(ctx context.Context, w testbed.Writer, c *client.Client, files int, url string) error {
	report, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: w.Buffer, URL: url}, nil)
	if want := int64(files) * w.Bytes; err == nil && report.BytesDone != want {
		err = fmt.Errorf("stage-in copied %d of %d bytes", report.BytesDone, want)
	}
	return err
}

// measured is the result of a row of one line.
func measured(r report.Result, err error) ([]report.Result, error) {
	if err != nil {
		return nil, err
	}
	return []report.Result{r}, nil
}
