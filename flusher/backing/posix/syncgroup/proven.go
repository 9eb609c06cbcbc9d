package syncgroup

import (
	"fmt"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"
)

// Proven reports whether syncfs(2), between the two calls of sync_file_range(2) that Files makes for each file, makes a file
// durable as fsync(2) does, and reports its errors: on ext4 with a journal since Linux 5.17, and nowhere else. Both depend on
// the file system and the kernel:
//
//   - The errors of files' bytes are recorded with the file since Linux 4.13 (errseq_t), and those of the file system, as of a
//     journal that ended, are those of syncfs since 5.17: before, sync_filesystem in fs/sync.c drops the result of sync_fs.
//   - ext4 allocates blocks when it writes the bytes, and drops these if it cannot, as in a group of blocks whose bitmap is
//     damaged: mpage_map_and_submit_extent in fs/ext4/inode.c returns the error, and records it nowhere (Linux 6.18). fsync
//     returns it, as it has called that itself. Under syncfs alone a kworker has, so the error is lost and syncfs succeeds;
//     sync_file_range makes the same call as fsync, in the thread of the call, and returns the error likewise.
//   - After that, the fsync of a file is the commit of the journal's transaction that has its inode (ext4_fsync_journal in
//     fs/ext4/fsync.c); syncfs commits the newest one, and flushes the disk's cache first (ext4_sync_fs in fs/ext4/super.c).
//   - ext2 and an ext4 without a journal have the same magic number. There syncfs flushes the disk's cache before the
//     blocks of inodes are written.
//   - A file system that an error made read-only is not written, and syncfs succeeds; the rename that follows does not.
//   - XFS has all that is needed (iomap_writeback_folio, xfs_fs_sync_fs), and the two calls report what syncfs alone does not. On a
//     full device, a block of inodes was damaged after a remount more often than with an fsync of each file (docs/durability.md).
//     Until the cause is known, each file has its own fsync there.
//   - 9P returns the magic number of the server's file system (v9fs_statfs in fs/9p/vfs_super.c), and has no sync_fs. Its st_dev
//     has no major number, as that of no network file system has; ext4 is on a block device, which has one.
//   - Lustre has no sync_fs (lustre_super_operations in lustre/llite/super25.c). The servers get
//     the bytes, and no request to commit them. Only fsync sends one (md_sync and OST_SYNC by
//     ll_fsync in lustre/llite/file.c), and returns the errors of bytes that were written late. NFS
//     and FUSE have none either, and a file on tmpfs is as durable as it can be.
//   - btrfs commits all its trees. It was not measured, and fsync writes a log for each file.
//
// dev is the file's st_dev.
func Proven(f *os.File, dev uint64) bool {
	if unix.Major(dev) == 0 { // also spares a network file system's servers the question
		return false
	}
	var stat unix.Statfs_t
	err := control(f, func(fd int) error { return unix.Fstatfs(fd, &stat) })
	return err == nil && provenOn(dev, int64(stat.Type), release()) && hasJournal(dev)
}

func provenOn(dev uint64, kind int64, release string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil || major < 5 || major == 5 && minor < 17 {
		return false
	}
	return unix.Major(dev) != 0 && kind == unix.EXT4_SUPER_MAGIC
}

// hasJournal reports whether the ext4 on a device has a journal on the same device, whose inode is
// 8 then (EXT4_JOURNAL_INO). A property that cannot be found out counts as absent. It is read each
// time. A file system may be mounted without its journal later.
func hasJournal(dev uint64) bool {
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	return err == nil && unix.Access("/proc/fs/jbd2/"+path.Base(device)+"-8/info", unix.F_OK) == nil
}

// release returns the kernel's, as uname(2) has it.
var release = sync.OnceValue(func() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
})
