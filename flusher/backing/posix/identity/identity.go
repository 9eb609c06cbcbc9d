// Package identity distinguishes directories that lie under the same path at different times. It must never
// know a store, nor change anything.
package identity

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing/posix/lustre"
)

// Identity identifies the directory of a store's root, so that one which only lies under the same
// path, below a mount point on which nothing is mounted, is not taken for it.
//
// The compared properties have to stay the same when the file system is mounted again, after a
// reboot and on other nodes:
//
//   - the type of the file system;
//   - its id, where that is made of something on the disks or servers, and not of a device's
//     number (see stableIDs);
//   - the root's inode number, or the path of the mount point it is reached by. The former is
//     the same on nodes that mount in another way; the latter stays when the directory was
//     removed and made again.
//
// st_dev is none of it, since it counts mounts.
type Identity struct {
	Kind  uint64 // f_type of statfs(2)
	ID    uint64 // f_fsid; 0: not comparable
	Inode uint64
	Mount string // path of the mount point; "": not known
}

// stableIDs are the file systems whose f_fsid stays the same. Of the others it is zero (NFS,
// FUSE), or made of the number of a device (XFS, FAT).
var stableIDs = map[uint64]bool{
	unix.EXT4_SUPER_MAGIC:  true, // and ext2, ext3: of the UUID
	unix.BTRFS_SUPER_MAGIC: true, // of the UUID
	unix.F2FS_SUPER_MAGIC:  true, // of the UUID
	lustre.Magic:           true, // of the name of the file system
	0x2fc12fc1:             true, // ZFS: of the data set's id
	0xc36400:               true, // Ceph: of the cluster's id
	// Of a tmpfs it is random for each mount, which has files of its own, so another mount is
	// another file system. Kernels before 5.18 report zero.
	unix.TMPFS_MAGIC: true,
}

// Stands are types of file systems that are treated as others. Tests alone set it, before anything
// else, so that a file system of theirs plays Lustre.
var Stands map[uint64]uint64

const format = "posix1"

// String encodes an identity: posix1:TYPE:ID:INODE:MOUNT, all but the last in hexadecimal digits.
func (i Identity) String() string {
	return fmt.Sprintf("%s:%x:%x:%x:%s", format, i.Kind, i.ID, i.Inode, i.Mount)
}

// Parse decodes String. Another form, of a newer release, cannot be compared.
func Parse(s string) (i Identity, ok bool) {
	parts := strings.SplitN(s, ":", 5)
	if len(parts) != 5 || parts[0] != format {
		return Identity{}, false
	}
	for n, field := range []*uint64{&i.Kind, &i.ID, &i.Inode} {
		v, err := strconv.ParseUint(parts[n+1], 16, 64)
		if err != nil {
			return Identity{}, false
		}
		*field = v
	}
	i.Mount = parts[4]
	return i, true
}

// Differs returns the difference between a directory and the one that was recorded, or "" if there is none.
func (i Identity) Differs(now Identity) string {
	switch {
	case i.Kind != now.Kind:
		return fmt.Sprintf("it is on another kind of file system (type %x, was %x)", now.Kind, i.Kind)
	case i.ID != now.ID:
		return fmt.Sprintf("it is on another file system of the same kind (id %x, was %x)", now.ID, i.ID)
	case i.Inode == now.Inode, i.Mount != "" && i.Mount == now.Mount:
		return ""
	}
	return fmt.Sprintf("it is another directory, of the file system that is mounted on %s, and was on %s", orUnknown(now.Mount), orUnknown(i.Mount))
}

func orUnknown(path string) string {
	if path == "" {
		return "an unknown place"
	}
	return path
}

// Of returns all of the identity of an open directory but the mount point, which MountOf finds.
func Of(dir *os.File) (Identity, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return Identity{}, os.NewSyscallError("statfs", err)
	}
	info, err := dir.Stat()
	if err != nil {
		return Identity{}, err
	}
	i := Identity{Kind: uint64(fs.Type)}
	if other, ok := Stands[i.Kind]; ok {
		i.Kind = other
	}
	if stableIDs[i.Kind] {
		i.ID = uint64(uint32(fs.Fsid.Val[0])) | uint64(uint32(fs.Fsid.Val[1]))<<32
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		i.Inode = st.Ino
	}
	return i, nil
}

// MountOf returns the path of the mount point that an open file was reached by (proc(5)).
func MountOf(f *os.File) string {
	fdinfo, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if err != nil {
		return ""
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return mountPoint(string(fdinfo), string(mounts))
}

func mountPoint(fdinfo, mountinfo string) string {
	id := ""
	for line := range strings.Lines(fdinfo) {
		if after, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id = strings.TrimSpace(after)
		}
	}
	for line := range strings.Lines(mountinfo) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[0] == id {
			return fields[4]
		}
	}
	return ""
}
