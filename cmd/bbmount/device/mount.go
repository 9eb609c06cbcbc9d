package device

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Mount mounts a file system on a directory: as root by the system call, else by fusermount3. Its requests wait for Begin.
func Mount(dir string, o *fuse.MountOptions, log *slog.Logger) (*Device, error) {
	attach := direct
	if os.Geteuid() != 0 {
		attach = helped
	}
	options := append([]string{fmt.Sprintf("max_read=%d", o.MaxWrite)}, o.Options...)
	if o.AllowOther {
		options = append(options, "allow_other")
	}
	fd, err := attach(dir, o, options)
	if err != nil {
		return nil, err
	}
	return newDevice(fd, o.MaxWrite, log)
}

func direct(dir string, o *fuse.MountOptions, options []string) (int, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, bb.Wrap("mount", "/dev/fuse", err)
	}
	options = append(options, fmt.Sprintf("fd=%d,rootmode=%o,user_id=%d,group_id=%d", fd, unix.S_IFDIR, os.Geteuid(), os.Getegid()))
	if err := unix.Mount(o.FsName, dir, "fuse."+o.Name, unix.MS_NOSUID|unix.MS_NODEV, strings.Join(options, ",")); err != nil {
		unix.Close(fd)
		return 0, bb.Wrap("mount", dir, err)
	}
	return fd, nil
}

// helped has fusermount3 mount, which passes the descriptor back on a socket.
func helped(dir string, o *fuse.MountOptions, options []string) (int, error) {
	escape := strings.NewReplacer(`\`, `\\`, ",", `\,`)
	options = append(options, "fsname="+escape.Replace(o.FsName), "subtype="+escape.Replace(o.Name))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, bb.Wrap("mount", dir, err)
	}
	ours, its := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "fusermount3")
	defer ours.Close()
	defer its.Close()
	cmd := exec.Command("fusermount3", "-o", strings.Join(options, ","), "--", dir)
	cmd.Env = append(os.Environ(), "_FUSE_COMMFD=3")
	cmd.ExtraFiles = []*os.File{its}
	if text, err := cmd.CombinedOutput(); err != nil {
		return 0, bb.Wrap("mount", dir, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text))))
	}
	conn, err := net.FileConn(ours)
	if err != nil {
		return 0, bb.Wrap("mount", dir, err)
	}
	defer conn.Close()
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 4), control)
	if err != nil {
		return 0, bb.Wrap("mount", dir, err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return 0, bb.Wrap("mount", dir, errors.Join(err, errors.New("fusermount3 passes no descriptor")))
}
