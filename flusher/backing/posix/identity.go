package posix

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// identity says which directory a store's root is, so that one which only lies under the
// same path, below a mount point on which nothing is mounted, is not taken for it.
//
// What is compared has to stay as it is when the file system is mounted again, after a
// reboot and on other nodes:
//
//   - the type of the file system;
//   - its id, where that is made of something on the disks or servers, and not of a device's
//     number (see stableIDs);
//   - the root's inode number, or the path of the mount point it is reached by. The former is
//     the same on nodes that mount in another way; the latter stays when the directory was
//     removed and made again.
//
// st_dev is none of it: it counts mounts.
type identity struct {
	kind  uint64 // f_type of statfs(2)
	id    uint64 // f_fsid; 0: says nothing
	inode uint64
	mount string // path of the mount point; "": not known
}

// stableIDs are the file systems whose f_fsid stays the same. Of the others it is zero (NFS,
// FUSE), or made of the number of a device (XFS, FAT).
var stableIDs = map[uint64]bool{
	unix.EXT4_SUPER_MAGIC:  true, // and ext2, ext3: of the UUID
	unix.BTRFS_SUPER_MAGIC: true, // of the UUID
	unix.F2FS_SUPER_MAGIC:  true, // of the UUID
	lustreMagic:            true, // of the name of the file system
	0x2fc12fc1:             true, // ZFS: of the data set's id
	0xc36400:               true, // Ceph: of the cluster's id
	// Of a tmpfs it is random for each mount, as is what it holds: another mount is another
	// file system. Kernels before 5.18 say zero.
	unix.TMPFS_MAGIC: true,
}

const identityFormat = "posix1"

// String encodes an identity: posix1:TYPE:ID:INODE:MOUNT, all but the last in hexadecimal digits.
func (i identity) String() string {
	return fmt.Sprintf("%s:%x:%x:%x:%s", identityFormat, i.kind, i.id, i.inode, i.mount)
}

// parseIdentity decodes String. What a newer release has written in another way cannot be compared.
func parseIdentity(s string) (i identity, ok bool) {
	parts := strings.SplitN(s, ":", 5)
	if len(parts) != 5 || parts[0] != identityFormat {
		return identity{}, false
	}
	for n, field := range []*uint64{&i.kind, &i.id, &i.inode} {
		v, err := strconv.ParseUint(parts[n+1], 16, 64)
		if err != nil {
			return identity{}, false
		}
		*field = v
	}
	i.mount = parts[4]
	return i, true
}

// differs says what tells a directory from the one that was recorded; "": nothing does.
func (i identity) differs(now identity) string {
	switch {
	case i.kind != now.kind:
		return fmt.Sprintf("it is on another kind of file system (type %x, was %x)", now.kind, i.kind)
	case i.id != now.id:
		return fmt.Sprintf("it is on another file system of the same kind (id %x, was %x)", now.id, i.id)
	case i.inode == now.inode, i.mount != "" && i.mount == now.mount:
		return ""
	}
	return fmt.Sprintf("it is another directory, of the file system that is mounted on %s, and was on %s", orUnknown(now.mount), orUnknown(i.mount))
}

func orUnknown(path string) string {
	if path == "" {
		return "an unknown place"
	}
	return path
}

// Identify returns what Options.Root wants to know of a directory.
func Identify(dir string) (string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return "", rootError(dir, err)
	}
	defer f.Close()
	i, err := identify(f)
	if err != nil {
		return "", rootError(dir, err)
	}
	i.mount = mountOf(f)
	return i.String(), nil
}

// identify returns all of an identity but the mount point.
func identify(dir *os.File) (identity, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(dir.Fd()), &fs); err != nil {
		return identity{}, os.NewSyscallError("statfs", err)
	}
	info, err := dir.Stat()
	if err != nil {
		return identity{}, err
	}
	i := identity{kind: uint64(fs.Type)}
	if stableIDs[i.kind] {
		i.id = uint64(uint32(fs.Fsid.Val[0])) | uint64(uint32(fs.Fsid.Val[1]))<<32
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		i.inode = st.Ino
	}
	return i, nil
}

// mountOf returns the path of the mount point that an open file was reached by (proc(5)).
func mountOf(f *os.File) string {
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

// checkRoot compares the directory that is open with the one that the store is of.
func (s *Store) checkRoot(dir *os.File) error {
	now, err := s.opts.identify(dir)
	if err != nil {
		return s.rootGone(err)
	}
	if now.inode != s.identity.inode { // seldom: to find the mount point takes longer than all the rest
		now.mount = mountOf(dir)
	}
	if why := s.identity.differs(now); why != "" {
		return bb.E(bb.Unavailable, "open backing", s.dir, "is not the directory that the buffer was made with: "+why).
			WithRemedy("mount the file system again; if it was replaced for good, copy the buffer elsewhere with bbctl stage-out")
	}
	return nil
}

// Identity returns which directory the store's root is, as Identify does.
func (s *Store) Identity() string { return s.identity.String() }
