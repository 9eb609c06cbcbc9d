// Package opendir keeps directories open while files are put into them. Those put at about the same time share one
// descriptor, and the checks of it. It must never depend on the files' content, nor their names.
package opendir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/rounds"
)

// shared is how long after it was opened a directory is handed to others. Its path may lead elsewhere by then.
const shared = time.Second

// Cache has the directories that are open now. An unused one is closed, since it would keep its
// file system from being unmounted. The zero value is ready for use. Its methods may be called
// concurrently.
type Cache struct {
	mu   sync.Mutex
	open map[string]*Dir
}

// Dir is an open directory. Its methods may be called concurrently, with names that have no slash.
type Dir struct {
	Root   *os.Root // that it was opened below
	File   *os.File
	Opened uint64 // of syncgroup.Dirs

	cache *Cache
	path  string
	users int // guarded by the cache
	until time.Time
	check rounds.Group[struct{}]

	mu     sync.Mutex
	failed error // of a sync; another one of the same descriptor would not report it again
}

// Get returns the directory of a path, which the caller releases. It is that of another caller, or the result of open, which
// sets Root, File and Opened.
func (c *Cache) Get(path string, open func() (*Dir, error)) (*Dir, error) {
	if d := c.join(path); d != nil {
		return d, nil
	}
	d, err := open()
	if err != nil {
		return nil, err
	}
	d.cache, d.path, d.users, d.until = c, path, 1, time.Now().Add(shared)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[string]*Dir{}
	}
	c.open[path] = d
	return d, nil
}

func (c *Cache) join(path string) *Dir {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.open[path]
	if d == nil || time.Now().After(d.until) {
		return nil
	}
	d.users++
	return d
}

// Forget stops sharing all open directories when paths lead elsewhere.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.open)
}

// Release closes the directory when all of its users have released it.
func (d *Dir) Release() {
	c := d.cache
	c.mu.Lock()
	d.users--
	last := d.users == 0
	if last && c.open[d.path] == d {
		delete(c.open, d.path)
	}
	c.mu.Unlock()
	if last {
		d.File.Close()
		d.Root.Close()
	}
}

// Check calls check, or waits for another caller's check that begins after this call.
func (d *Dir) Check(ctx context.Context, check func() error) error {
	_, err := d.check.Do(ctx, func(context.Context) (struct{}, error) { return struct{}{}, check() })
	return err
}

// InPlace returns an error, ESTALE, if the directory is not the one that its path below the root leads to.
func (d *Dir) InPlace() error {
	own, err := d.File.Stat()
	if err != nil {
		return err
	}
	now, err := d.Root.Stat(d.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(own, now) {
		err = &fs.PathError{Op: "stat", Path: d.path, Err: unix.ESTALE}
	}
	return err
}

// Sync calls sync, which syncs the directory. After one has failed, all fail.
func (d *Dir) Sync(sync func() error) error {
	err := sync()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed == nil && err != nil {
		d.failed = err
		d.cache.forget(d)
	}
	return d.failed
}

// forget stops sharing a directory.
func (c *Cache) forget(d *Dir) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[d.path] == d {
		delete(c.open, d.path)
	}
}

// Create opens a file for writing, with further flags of open(2). A present file is an error.
func (d *Dir) Create(name string, flags int, mode uint32) (*os.File, error) {
	fd := -1
	err := d.at("openat", name, func(dir int) (err error) {
		fd, err = unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|flags, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path.Join(d.path, name)), nil
}

// Free reports whether nothing has the name, for certain.
func (d *Dir) Free(name string) bool {
	var stat unix.Stat_t
	err := d.at("fstatat", name, func(dir int) error { return unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW) })
	return errors.Is(err, fs.ErrNotExist)
}

// Remove removes a file.
func (d *Dir) Remove(name string) error {
	return d.at("unlinkat", name, func(dir int) error { return unix.Unlinkat(dir, name, 0) })
}

// Rename renames a file in the directory, with flags of renameat2(2).
func (d *Dir) Rename(old, newName string, flags uint) error {
	err := d.at("", old, func(dir int) error {
		if flags == 0 {
			return unix.Renameat(dir, old, dir, newName)
		}
		return unix.Renameat2(dir, old, dir, newName, flags)
	})
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return &os.LinkError{Op: "renameat2", Old: path.Join(d.path, old), New: path.Join(d.path, newName), Err: errno}
	}
	return err
}

// at calls do with the descriptor, again while a signal interrupts it.
func (d *Dir) at(op, name string, do func(dir int) error) error {
	conn, err := d.File.SyscallConn()
	if err != nil {
		return err
	}
	inner := error(unix.EINTR)
	err = conn.Control(func(fd uintptr) {
		for inner == unix.EINTR {
			inner = do(int(fd))
		}
	})
	if err == nil && inner != nil {
		err = &fs.PathError{Op: op, Path: path.Join(d.path, name), Err: inner}
	}
	return err
}

// Rename renames a file below a root, from one directory to another as a rule, with flags of renameat2(2).
func Rename(root *os.Root, old, newName string, flags uint) error {
	from, err := root.OpenFile(path.Dir(old), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	to := from
	if path.Dir(old) != path.Dir(newName) {
		if to, err = root.OpenFile(path.Dir(newName), os.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
			return err
		}
		defer to.Close()
	}
	err = unix.Renameat2(int(from.Fd()), path.Base(old), int(to.Fd()), path.Base(newName), flags)
	if err != nil {
		return &os.LinkError{Op: "renameat2", Old: old, New: newName, Err: err}
	}
	return nil
}
