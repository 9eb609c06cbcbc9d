package syncgroup

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Proven reports whether syncfs(2) makes a file durable as fsync(2) does, and reports its errors. Both
// depend on the file system and the kernel:
//
//   - The errors of files' bytes are those of syncfs since Linux 5.8 (commit 735e4ae5ba28); those of the file
//     system, as of a journal that ended, since 5.17: before, sync_filesystem in fs/sync.c
//     drops what sync_fs returns.
//   - ext4 waits for the bytes, then for the commit of its journal, with a barrier (ext4_sync_fs). Without
//     a journal the barrier comes before the blocks of names, and the fsync of the directory that follows in every Put has
//     another one (ext4_fsync_nojournal). XFS waits for the bytes, whose end changes the file's
//     inode, and forces the log, which flushes the disk's cache first (xfs_fs_sync_fs).
//   - A file system that an error made read-only is not written, and syncfs succeeds; the rename that follows does not.
//   - Lustre has no sync_fs (lustre_super_operations in lustre/llite/super25.c): the servers get the bytes, and
//     are not asked to commit them. Only fsync asks (md_sync and OST_SYNC by ll_fsync in lustre/llite/file.c), and returns
//     the errors of bytes that were written late. NFS and FUSE have none either, and a file on tmpfs is as durable as it can be.
//   - btrfs commits all its trees: it was not measured, and fsync writes a log for each file.
func Proven(f *os.File) bool {
	var stat unix.Statfs_t
	err := control(f, func(fd int) error { return unix.Fstatfs(fd, &stat) })
	return err == nil && provenOn(int64(stat.Type), release())
}

func provenOn(kind int64, release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil || major < 5 || major == 5 && minor < 17 {
		return false
	}
	return kind == unix.EXT4_SUPER_MAGIC || kind == unix.XFS_SUPER_MAGIC
}

// release returns the kernel's, as uname(2) has it.
var release = sync.OnceValue(func() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
})
