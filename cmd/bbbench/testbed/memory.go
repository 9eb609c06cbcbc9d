package testbed

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/hostlimit"
)

// Data returns n bytes that an application might write: not compressible, larger than
// any cache, in huge pages where the kernel gives them.
func (e *Env) Data(n int64) ([]byte, error) {
	if int64(len(e.source.Bytes)) >= n {
		return e.source.Bytes[:n], nil
	}
	if err := e.source.Free(); err != nil {
		return nil, err
	}
	m, err := hostlimit.Anonymous(n)
	if err != nil {
		return nil, err
	}
	hostlimit.Fill(m.Bytes)
	e.source = m
	return m.Bytes, nil
}

// LimitMemory returns n bytes of the kind that the daemon's regions are of: a tmpfs
// with huge pages where the daemon has mounted one and we may, else a file in memory.
func (e *Env) LimitMemory(n int64) ([]byte, error) {
	if int64(len(e.Target.Bytes)) >= n {
		return e.Target.Bytes[:n], nil
	}
	if err := e.Target.Free(); err != nil {
		return nil, err
	}
	m, err := e.LikeRegions(n)
	if err != nil {
		return nil, err
	}
	e.Target, e.Regions = m, m.Kind
	return m.Bytes, nil
}

// LikeRegions returns n bytes of the kind that the daemon's regions are of, for the caller to free.
func (e *Env) LikeRegions(n int64) (hostlimit.Memory, error) {
	if e.Daemon != nil && e.Daemon.Ours() && isTmpfs(filepath.Join(e.Daemon.Dir, "mem")) {
		m, err := hostlimit.HugeFile(e.State, n)
		if err == nil {
			return m, nil
		}
		e.Log("no tmpfs of our own to compare with: %v", err)
	}
	return hostlimit.Memfd(n)
}

func isTmpfs(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Type == unix.TMPFS_MAGIC
}

// Settle makes the file system finish earlier work, such as discarding the blocks
// of removed files, so that it does not count with the next measurement.
func (e *Env) Settle() error {
	dir, err := os.Open(e.Store)
	if err != nil {
		return bb.Wrap("bench", e.Store, err)
	}
	defer dir.Close()
	return bb.Wrap("bench", e.Store, unix.Syncfs(int(dir.Fd())))
}
