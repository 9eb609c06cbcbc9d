package syncgroup

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Proven reports whether syncfs(2) makes a file durable as fsync(2) does, and reports its errors: on XFS since Linux 5.17,
// and nowhere else. Both depend on the file system and the kernel:
//
//   - The errors of files' bytes are those of syncfs since Linux 5.8 (commit 735e4ae5ba28), if the file system records
//     them with mapping_set_error; those of the file system, as of a journal that ended, since 5.17: before,
//     sync_filesystem in fs/sync.c drops the result of sync_fs.
//   - XFS records each error of a write and of the allocation before it (iomap_writepage_map in fs/iomap/buffered-io.c, since
//     Linux 6.17 iomap_writeback_folio). It waits for the bytes, whose end changes the file's inode, and forces the log,
//     which flushes the disk's cache first (xfs_fs_sync_fs).
//   - ext4 allocates blocks when it writes the bytes, and drops these if it cannot, as in a group of blocks whose bitmap is
//     damaged: mpage_map_and_submit_extent in fs/ext4/inode.c returns the error, and records it nowhere (Linux 6.18). fsync returns it, as it has called that itself. Under syncfs a kworker has called it, so the error is lost and syncfs succeeds.
//     ext2 and an ext4 without a journal have the same magic number, and syncfs is worth less there.
//   - A file system that an error made read-only is not written, and syncfs succeeds; the rename that follows does not.
//   - 9P returns the magic number of the server's file system (v9fs_statfs in fs/9p/vfs_super.c), and has no sync_fs. Its st_dev
//     has no major number, as that of no network file system has; XFS is on a block device, which has one.
//   - Lustre has no sync_fs (lustre_super_operations in lustre/llite/super25.c): the servers get the bytes, and no request to commit them. Only fsync sends one (md_sync and OST_SYNC by ll_fsync in lustre/llite/file.c), and returns
//     the errors of bytes that were written late. NFS and FUSE have none either, and a file on tmpfs is as durable as it can be.
//   - btrfs commits all its trees: it was not measured, and fsync writes a log for each file.
//
// dev is the file's st_dev.
func Proven(f *os.File, dev uint64) bool {
	if unix.Major(dev) == 0 { // also spares a network file system's servers the question
		return false
	}
	var stat unix.Statfs_t
	err := control(f, func(fd int) error { return unix.Fstatfs(fd, &stat) })
	return err == nil && provenOn(dev, int64(stat.Type), release())
}

func provenOn(dev uint64, kind int64, release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil || major < 5 || major == 5 && minor < 17 {
		return false
	}
	return unix.Major(dev) != 0 && kind == unix.XFS_SUPER_MAGIC
}

// release returns the kernel's, as uname(2) has it.
var release = sync.OnceValue(func() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
})
