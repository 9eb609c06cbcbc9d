package hostlimit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
	"forebay/internal/measure"
)

// DirectWrite writes one file of n bytes with O_DIRECT in steps, so many of them at a
// time, and makes it durable.
func DirectWrite(ctx context.Context, dir string, n int64, depth int) (_ time.Duration, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "limit"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		return 0, measure.Cannot("the file system of %s (%s) has no direct writes", dir, FileSystem(dir))
	}
	if err != nil {
		return 0, bb.Wrap("bench", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block, err := Anonymous(Step) // O_DIRECT needs aligned memory
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, block.Free()) }()
	Fill(block.Bytes)
	if err := unix.Fallocate(int(f.Fd()), 0, 0, n); err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return 0, bb.Wrap("bench", dir, err)
	}
	began := time.Now()
	err = writeBlocks(ctx, f, block.Bytes, n/Step, depth)
	if err = errors.Join(err, f.Sync()); err != nil {
		return 0, bb.Wrap("bench", dir, err)
	}
	return time.Since(began), nil
}

// writeBlocks writes blocks in order, depth of them at a time.
func writeBlocks(ctx context.Context, f *os.File, block []byte, n int64, depth int) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, depth)
	for worker := range depth {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < n && errs[worker] == nil && ctx.Err() == nil; i = next.Add(1) - 1 {
				_, errs[worker] = f.WriteAt(block, i*Step)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// FileSystem names the file system of a folder (statfs(2)).
func FileSystem(dir string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "unknown: " + bb.KindOf(err).String()
	}
	switch fs.Type {
	case unix.TMPFS_MAGIC:
		return "tmpfs (memory, no disk)"
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case 0x0BD00BD0: // not in package unix: LL_SUPER_MAGIC of Lustre
		return "lustre"
	default:
		return fmt.Sprintf("type %#x", fs.Type)
	}
}

// EvictPages drops a file from the page cache, so that it is read from the disk.
func EvictPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return bb.Wrap("bench", path, err)
	}
	defer f.Close()
	return bb.Wrap("bench", path, errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)))
}
