// Package mounted measures unmodified programs on a mount of a buffer, beside the same programs on tmpfs,
// on ext4 and on a mount of rclone. It must never depend on the way that bytes go below the mount.
package mounted

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client/admin"
	"forebay/cmd/bbbench/process"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
	"forebay/internal/measure"
)

// Names of the places. The first is the result, the second the limit.
const (
	buffer = "the mount"
	tmpfs  = "a bare tmpfs"
	ext4   = "ext4 on a loop device"
	rclone = "rclone mount --vfs-cache-mode full"
)

// place is a directory where programs run.
type place struct {
	name string
	dir  string
	end  func() error // unmounts it
}

// places are those that this machine can have. notes are the reasons of the missing ones.
type places struct {
	all   []place
	notes []string
}

// end unmounts all, the newest first.
func (p *places) end() error {
	var errs []error
	for i := len(p.all) - 1; i >= 0; i-- {
		errs = append(errs, p.all[i].end())
	}
	return errors.Join(errs...)
}

// mountAll mounts all places, each with room for so many bytes. huge is whether the tmpfs has huge pages (tmpfs(5)). A
// small file would have a whole one.
func mountAll(ctx context.Context, e *testbed.Env, room int64, huge string) (p *places, err error) {
	if os.Geteuid() != 0 {
		return nil, measure.Cannot("it mounts a tmpfs to compare with: run it as root")
	}
	p = &places{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.end())
		}
	}()
	for _, m := range []struct {
		name     string
		required bool
		mount    func(dir string) (func() error, error)
	}{
		{buffer, true, func(dir string) (func() error, error) { return mountBuffer(ctx, e, dir) }},
		{tmpfs, true, func(dir string) (func() error, error) { return mountTmpfs(dir, room, huge) }},
		{ext4, false, func(dir string) (func() error, error) { return mountExt4(ctx, e, dir, room) }},
		{rclone, false, func(dir string) (func() error, error) { return mountRclone(ctx, e, dir) }},
	} {
		dir, err := os.MkdirTemp(e.State, "mnt")
		if err != nil {
			return p, bb.Wrap("bench", e.State, err)
		}
		end, err := m.mount(dir)
		switch {
		case err == nil:
			p.all = append(p.all, place{m.name, dir, end})
		case m.required:
			return p, err
		default:
			p.notes = append(p.notes, "not on "+m.name+": "+err.Error())
		}
	}
	return p, nil
}

// mountBuffer mounts a buffer that is flushed to a folder.
func mountBuffer(ctx context.Context, e *testbed.Env, dir string) (end func() error, err error) {
	program, err := bbmount(e)
	if err != nil {
		return nil, err
	}
	_, url, err := e.Folder("mounted")
	if err != nil {
		return nil, err
	}
	b, done, err := e.Buffer(ctx, admin.BufferSpec{Backing: url})
	if err != nil {
		return nil, err
	}
	unmount, err := serve(ctx, dir, exec.Command(program, "--foreground", "--socket", "unix://"+e.Daemon.Socket, "bb://"+b.Name(), dir))
	if err != nil {
		return nil, errors.Join(err, done())
	}
	return func() error { return errors.Join(unmount(), done()) }, nil
}

// bbmount returns the program that mounts.
func bbmount(e *testbed.Env) (string, error) {
	if e.Opts.Bbmount != "" {
		return e.Opts.Bbmount, nil
	}
	if bbd, err := testbed.FindDaemon(e.Opts.Bbd); err == nil {
		beside := filepath.Join(filepath.Dir(bbd), "bbmount")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("bbmount")
	if err != nil {
		return "", measure.Cannot("bbmount is neither beside bbd nor on PATH: give --bbmount FILE")
	}
	return path, nil
}

func mountTmpfs(dir string, room int64, huge string) (func() error, error) {
	if err := unix.Mount("forebay-bench", dir, "tmpfs", 0, fmt.Sprintf("size=%d,huge=%s", room, huge)); err != nil {
		return nil, bb.Wrap("mount", dir, err)
	}
	return func() error { return bb.Wrap("unmount", dir, unix.Unmount(dir, 0)) }, nil
}

// mountExt4 mounts a fresh ext4 with its usual journal, on a file in the folder to flush to.
func mountExt4(ctx context.Context, e *testbed.Env, dir string, room int64) (func() error, error) {
	image, err := os.CreateTemp(e.Store, "ext4")
	if err != nil {
		return nil, err
	}
	err = errors.Join(image.Truncate(room+room/4), image.Close())
	if err == nil {
		err = run(exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", image.Name()))
	}
	if err == nil {
		err = run(exec.CommandContext(ctx, "mount", "-o", "loop", image.Name(), dir))
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(image.Name()))
	}
	return func() error {
		return errors.Join(run(exec.Command("umount", dir)), os.Remove(image.Name()))
	}, nil
}

// mountRclone mounts a folder as a remote of rclone that caches whole files, beside the folder of the buffer.
func mountRclone(ctx context.Context, e *testbed.Env, dir string) (func() error, error) {
	program, err := exec.LookPath("rclone")
	if err != nil {
		return nil, errors.New("rclone is not on PATH")
	}
	folder, _, err := e.Folder("rclone")
	if err != nil {
		return nil, err
	}
	cache, _, err := e.Folder("cache")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--config", "/dev/null", "mount", ":local:"+folder, dir, "--vfs-cache-mode", "full", "--cache-dir", cache)
	var env []string
	// It mounts by fusermount of FUSE 2, for which that of FUSE 3 can stand.
	if _, err := exec.LookPath("fusermount"); err != nil {
		third, err := exec.LookPath("fusermount3")
		if err == nil {
			err = os.Symlink(third, filepath.Join(cache, "fusermount"))
		}
		if err != nil {
			return nil, fmt.Errorf("neither fusermount nor fusermount3: %w", err)
		}
		env = []string{"PATH=" + cache + ":" + os.Getenv("PATH")}
	}
	return serve(ctx, dir, cmd, env...)
}

// serve starts a program that mounts dir, and waits until it has.
func serve(ctx context.Context, dir string, cmd *exec.Cmd, env ...string) (unmount func() error, err error) {
	p, err := process.StartProcess(cmd, env)
	if err != nil {
		return nil, err
	}
	unmount = func() error {
		return errors.Join(bb.Wrap("unmount", dir, unix.Unmount(dir, 0)), p.End(unix.SIGTERM, process.StopTime))
	}
	ctx, cancel := context.WithTimeout(ctx, process.StartTime)
	defer cancel()
	for {
		var now unix.Statfs_t
		if err := unix.Statfs(dir, &now); err == nil && now.Type == unix.FUSE_SUPER_MAGIC {
			return unmount, nil
		}
		select {
		case <-p.Ended:
			return nil, fmt.Errorf("%s has ended: %s", cmd.Path, p.Said())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s does not serve: %s", cmd.Path, p.Said()), p.End(unix.SIGTERM, process.StopTime))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// run runs a program that reports its failure on standard error.
func run(cmd *exec.Cmd) error {
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, said)
	}
	return nil
}
