package bench

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
	"forebay/internal/bb"
)

// Rows 11 and 13 by several users at once: a root daemon reaches the store of each with that user's
// rights. Each has a process, a buffer and a folder of its own.

const (
	firstUser  = 61_000 // uids that systems give to nobody
	mostUsers  = 100
	userRegion = 64 << 20 // a region is one user's at a time
)

// What a worker of kind workUser does for an order.
const (
	doMake    = "make"    // a buffer in front of a store, or none
	doFlush   = "flush"   // write files and drain them
	doStage   = "stage"   // stage a store in
	doDestroy = "destroy" // the buffer
)

func checkUsers(o options) error {
	switch {
	case o.users == 0:
		return nil
	case o.users < 0 || o.users > mostUsers:
		return invalid("users", fmt.Sprint(o.users), fmt.Sprintf("is not a number from 1 to %d", mostUsers))
	case o.socket != "":
		return invalid("users", fmt.Sprint(o.users), "needs a daemon of its own: run it without --socket")
	case os.Geteuid() != 0:
		return bb.E(bb.Permission, "bench", "--users", "only root can act as several users").WithRemedy("run it as root")
	}
	return nil
}

// userSizes divides bytes among users: so many files of a size for each.
func userSizes(total int64, users int) (files int, size int64) {
	share := total / int64(users)
	size = min(flushFile, max(step, share/4/step*step))
	return int(max(1, share/size)), size
}

// tenants are the users of a row.
type tenants struct {
	e     *env
	crew  *crew
	dirs  []string // of each, below the folder of the row
	files int      // of each
	size  int64    // of a file
	undo  func() error
}

// withTenants runs a row with so many users on a daemon of its own.
func (e *env) withTenants(ctx context.Context, row func(*tenants) (Result, error)) (r Result, err error) {
	memory := wholeRegions(max(e.sizes.memory(), 2*userRegion*int64(e.opts.users)))
	e.further = []string{"--memory-region-size", fmt.Sprint(userRegion)}
	defer func() { e.further = nil }()
	err = e.withMemory(ctx, memory, func() (err error) {
		if _, err := e.connect(ctx); err != nil {
			return err
		}
		t, err := e.tenants()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.end()) }()
		r, err = row(t)
		return err
	})
	return r, err
}

// tenants starts the users' processes.
func (e *env) tenants() (t *tenants, err error) {
	t = &tenants{e: e, crew: &crew{}}
	for _, dir := range []string{e.state, e.daemon.dir, e.store} {
		if err := os.Chmod(dir, 0o711); err != nil {
			return nil, bb.Wrap("bench", dir, err)
		}
	}
	t.files, t.size = userSizes(e.sizes.Flush, e.opts.users)
	top, _, err := e.folder("users")
	if err != nil {
		return nil, err
	}
	t.undo = func() error { return os.RemoveAll(top) }
	if err := os.Chmod(top, 0o711); err != nil {
		return nil, errors.Join(err, t.end())
	}
	for i := range e.opts.users {
		if err := t.add(top, i); err != nil {
			return nil, errors.Join(err, t.end())
		}
	}
	return t, t.crew.await()
}

func (t *tenants) add(top string, i int) error {
	uid := firstUser + i
	dir := filepath.Join(top, fmt.Sprint(uid))
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, uid, uid)); err != nil {
		return bb.Wrap("bench", dir, err)
	}
	t.dirs = append(t.dirs, dir)
	w := writer{
		Address: "unix://" + t.e.daemon.socket, Buffer: fmt.Sprintf("bench-%d-of-%d", os.Getpid(), uid),
		Bytes: t.size, Source: min(t.size, 16<<20),
	}
	// Through /proc, since the binary may lie where the user cannot look.
	cmd := exec.Command("/proc/self/exe", append([]string{"bench", "worker", workUser, "--files", fmt.Sprint(t.files)}, w.args()...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return t.crew.add(cmd)
}

func (t *tenants) end() error { return errors.Join(t.crew.dismiss(), t.undo()) }

// bytes of all users' files together.
func (t *tenants) bytes() int64 { return int64(len(t.dirs)) * int64(t.files) * t.size }

func (t *tenants) what() string {
	return fmt.Sprintf("%s of %s, by %s at once", bb.Count(t.files*len(t.dirs), "file", "files"), quantity(float64(t.size), Bytes), bb.Count(len(t.dirs), "user", "users"))
}

// do gives every user an order with a folder below the user's own.
func (t *tenants) do(what, folder string) error {
	orders := make([]order, len(t.dirs))
	for i, dir := range t.dirs {
		orders[i].Do = what
		if folder != "" {
			orders[i].Path = "file://" + filepath.Join(dir, folder)
		}
	}
	return t.crew.work(orders)
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
	if err := t.e.settle(); err != nil {
		return 0, err
	}
	began := time.Now()
	err = t.do(doFlush, "")
	return time.Since(began), err
}

func flushByUsers(ctx context.Context, e *env) (Result, error) {
	return e.withTenants(ctx, func(t *tenants) (Result, error) {
		disk := findDiskWriter()
		var limit, ours []float64
		for range e.sizes.Rounds {
			written, err := e.limitRound(ctx, disk)
			if err != nil {
				return Result{}, err
			}
			took, err := t.flushRound()
			if err != nil {
				return Result{}, err
			}
			limit, ours = append(limit, written), append(ours, rate(t.bytes(), took))
		}
		return Result{
			Goal:   ratioGoal("0.9", 0.9),
			Limit:  figure(fmt.Sprintf("sequential direct write of %s by %s, the faster of %v at a time", quantity(float64(e.sizes.Flush), Bytes), disk.name, depths), BytesPerSecond, limit),
			Result: figure("from the first write until "+t.what()+", are drained", BytesPerSecond, ours),
			Notes:  []string{"both on " + fileSystem(e.store) + " at --dir"},
		}, nil
	})
}

// makeStaged writes the files that users stage in, and returns those of each.
func (t *tenants) makeStaged() (files [][]string, err error) {
	if err := t.folders("stage"); err != nil {
		return nil, err
	}
	source, err := t.e.data(t.e.sizes.File)
	if err != nil {
		return nil, err
	}
	for i, dir := range t.dirs {
		var of []string
		for k := range t.files {
			path := filepath.Join(dir, "stage", fileName(k))
			if err := writeDirect(path, piece(source, i*t.files+k, t.size), t.size, true); err != nil {
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

func stageByUsers(ctx context.Context, e *env) (Result, error) {
	return e.withTenants(ctx, func(t *tenants) (Result, error) {
		files, err := t.makeStaged()
		if err != nil {
			return Result{}, err
		}
		all := slices.Concat(files...)
		var limit, ours []float64
		for range e.sizes.Rounds {
			took, err := cold(all, func() error {
				_, err := inParallel(ctx, len(files), len(files), func(i int) error { return cat(ctx, files[i]) })
				return err
			})
			if err != nil {
				return Result{}, err
			}
			limit = append(limit, rate(t.bytes(), took))
			if took, err = t.stageRound(all); err != nil {
				return Result{}, err
			}
			ours = append(ours, rate(t.bytes(), took))
		}
		return Result{
			What: "stage-in from POSIX", Goal: ratioGoal("0.9", 0.9),
			Limit:  figure("cat of "+t.what()+", not in the page cache", BytesPerSecond, limit),
			Result: figure("stage-in of the same, not in the page cache", BytesPerSecond, ours),
			Notes:  []string{"both on " + fileSystem(e.store) + " at --dir; a virtual machine's host may still have the files in its memory"},
		}, nil
	})
}

// serveUser is a worker of kind workUser.
func (w writer) serveUser(ctx context.Context, files int, in io.Reader, out io.Writer) error {
	c, err := client.Dial(ctx, client.Options{Address: w.Address, Name: "bbctl bench user", RetryFor: -1})
	if err != nil {
		return err
	}
	defer c.Close()
	if !c.Server().Mapped {
		return cannot("uid %d cannot map the daemon's memory", c.Server().UID)
	}
	source, err := anonymous(w.Source)
	if err != nil {
		return err
	}
	fill(source.bytes)
	err = obey(in, out, func(o order) error {
		switch o.Do {
		case doMake:
			_, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: w.Buffer, Backing: o.Path})
			return err
		case doFlush:
			return w.flush(ctx, c, files, source.bytes)
		case doStage:
			return w.stage(ctx, c, files, o.Path)
		case doDestroy:
			return admin.DiscardBuffer(ctx, c, w.Buffer)
		}
		return invalid("order", o.Do, "is not known")
	})
	return errors.Join(err, source.free())
}

func (w writer) flush(ctx context.Context, c *client.Client, files int, source []byte) error {
	b := c.Buffer(w.Buffer)
	for i := range files {
		if err := writeFile(ctx, b, fileName(i), source, w.Bytes); err != nil {
			return err
		}
	}
	_, err := admin.Drain(ctx, c, w.Buffer, 10*time.Minute, nil)
	return err
}

func (w writer) stage(ctx context.Context, c *client.Client, files int, url string) error {
	report, err := admin.StageIn(ctx, c, admin.StageRequest{Buffer: w.Buffer, URL: url}, nil)
	if want := int64(files) * w.Bytes; err == nil && report.BytesDone != want {
		err = fmt.Errorf("stage-in copied %d of %d bytes", report.BytesDone, want)
	}
	return err
}

// measured is what a row of one line returns.
func measured(r Result, err error) ([]Result, error) {
	if err != nil {
		return nil, err
	}
	return []Result{r}, nil
}
