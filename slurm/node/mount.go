package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"forebay/internal/bb"
	"forebay/internal/mounts"
	"forebay/slurm"
)

// A job's buffer is mounted below Config.Mounts, for programs that link no library. The mount is root's, so that the
// owner and the mode of the buffer's root admit the job's user alone. It ends with the job's processes. The epilog only
// detaches it.

// mountOf returns the directory on which a run's buffer is mounted, or "" if none is.
func (c *Config) mountOf(key string) string {
	if c.Mounts == "" {
		return ""
	}
	return filepath.Join(c.Mounts, key)
}

// mount mounts a run's buffer, if the site wants that, and returns the variables that name the directory. A prolog that
// runs again finds the mount.
func (c *Config) mount(ctx context.Context, key, buffer string) (env []string, err error) {
	dir := c.mountOf(key)
	if dir == "" {
		return nil, nil
	}
	if err := c.makeMountPoint(dir); err != nil {
		return nil, err
	}
	_, mounted, err := mounts.At(dir)
	if err == nil && mounted && mounts.Dead(dir, deadMount) { // of a prolog whose node went down
		err = mounts.Detach(dir)
		mounted = false
	}
	if err == nil && !mounted {
		err = c.Mount(ctx, buffer, dir)
	}
	if err != nil {
		return nil, bb.Wrap("prolog", dir, err)
	}
	return []string{"FOREBAY_DIR=" + dir}, nil
}

// deadMount is how long a mount may take to answer whether its process lives.
const deadMount = 2 * time.Second

// makeMountPoint makes the directory of a mount. The folder above it must be one that others cannot change.
func (c *Config) makeMountPoint(dir string) error {
	if err := os.MkdirAll(c.Mounts, 0o755); err != nil {
		return bb.Wrap("prolog", c.Mounts, err)
	}
	info, err := os.Stat(c.Mounts)
	switch {
	case err != nil:
		return bb.Wrap("prolog", c.Mounts, err)
	case !info.IsDir() || !owned(info) || info.Mode().Perm()&0o022 != 0:
		return bb.E(bb.Permission, "prolog", c.Mounts, "it is no folder that only this user may write").WithRemedy("remove it, or give another --mount")
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return bb.Wrap("prolog", dir, err)
	}
	return nil
}

// unmountLost detaches the mounts of runs that have left no note, since their epilog was lost. Other mounts in the folder
// are the site's.
func (c *Config) unmountLost() {
	if c.Mounts == "" {
		return
	}
	dirs, _ := os.ReadDir(c.Mounts)
	known := map[string]bool{}
	files, _ := filepath.Glob(filepath.Join(c.Dir, "*"+noteSuffix))
	for _, file := range files {
		if n, err := readNote(file); err == nil && n != nil {
			known[n.Dir] = true
		}
	}
	for _, d := range dirs {
		if dir := c.mountOf(d.Name()); slurm.IsRunKey(d.Name()) && !known[dir] {
			c.unmount(&note{Job: d.Name(), Dir: dir})
		}
	}
}

// unmount detaches the mount of a run that has left, also while a program has files open there. When the directory is removed, the kernel
// detaches the copies of the mount in the namespaces of other jobs (job_container/tmpfs) and containers too.
func (c *Config) unmount(n *note) {
	if n.Dir == "" {
		return
	}
	_, mounted, err := mounts.At(n.Dir)
	if err == nil && mounted {
		err = mounts.Detach(n.Dir)
	}
	if err == nil {
		if err = os.Remove(n.Dir); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		c.Log("job %s: its mount stays: %v", n.Job, err)
	}
}
