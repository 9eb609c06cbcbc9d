// Package mounts finds the mounts of buffers on this machine, and removes them. It reads the kernel's list
// alone, and must never touch a mount, whose daemon may not answer.
package mounts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Subtype is the kernel's name of the type of a mount, after "fuse.".
const Subtype = "forebay"

// Mount is one mounted buffer.
type Mount struct {
	Dir    string
	Source string // bb://BUFFER
	Socket string // the daemon's address that the mount was given; "": none, so it is the node's
	Root   string // the directory of the buffer that is mounted: "/", or that of a bind mount
}

// socketMark separates the two parts of a mount's source in the kernel's list.
const socketMark = "?socket="

// Source returns the source of a mount in the kernel's list. Socket is the daemon's address that the mount was given,
// or "".
func Source(buffer, socket string) string {
	source := bb.Scheme + "://" + buffer
	if socket != "" {
		source += socketMark + Socket(socket)
	}
	return source
}

// Socket returns a daemon's address with its scheme. That of a path is unix.
func Socket(address string) string {
	if address != "" && !strings.Contains(address, "://") {
		return "unix://" + address
	}
	return address
}

// List returns the mounted buffers, the newest last.
func List() ([]Mount, error) {
	table, err := readTable()
	return ours(table), err
}

// entry is a line of the kernel's list. Kind is the type of the file system, user the number of the user whose process serves it.
type entry struct {
	Mount
	id, parent, kind, user string
}

// readTable returns all mounts that this process can reach.
func readTable() ([]entry, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, bb.Wrap("mounts", "/proc/self/mountinfo", err)
	}
	return parse(string(text)), nil
}

func ours(table []entry) (all []Mount) {
	for _, e := range table {
		if e.ours() {
			all = append(all, e.Mount)
		}
	}
	return all
}

func (e *entry) ours() bool { return e.kind == "fuse."+Subtype }

// trusted reports whether a mounted buffer is what its line says: any user may mount what calls itself one, and names
// another daemon.
func (e *entry) trusted() bool {
	return e.ours() && (e.user == "0" || e.user == strconv.Itoa(os.Geteuid()))
}

// Resolve returns the path of a directory as the kernel lists it, without opening it. A dead mount
// cannot be opened.
func Resolve(name string) (string, error) {
	dir, err := filepath.Abs(name)
	if err != nil {
		return "", bb.Wrap("mounts", name, err)
	}
	if above, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(above, filepath.Base(dir))
	}
	return dir, nil
}

// At returns the mount on a directory, given by its resolved path.
func At(dir string) (Mount, bool, error) {
	all, err := List()
	for _, m := range slices.Backward(all) {
		if m.Dir == dir {
			return m, true, nil
		}
	}
	return Mount{}, false, err
}

// parse reads the text of proc_pid_mountinfo(5).
func parse(mountinfo string) (all []entry) {
	for line := range strings.Lines(mountinfo) {
		own, super, ok := strings.Cut(line, " - ")
		o, s := strings.Fields(own), strings.Fields(super)
		if ok && len(o) > 4 && len(s) > 1 {
			source, socket, _ := strings.Cut(unescape(s[1]), socketMark)
			e := entry{Mount: Mount{Dir: unescape(o[4]), Source: source, Socket: socket, Root: unescape(o[3])}, id: o[0], parent: o[1], kind: s[0]}
			for option := range strings.SplitSeq(s[len(s)-1], ",") {
				if user, is := strings.CutPrefix(option, "user_id="); is {
					e.user = user
				}
			}
			all = append(all, e)
		}
	}
	return all
}

// unescape replaces \040 and the like.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Dead reports whether the process that serves a mount has ended. A mount that does not
// answer within the limit has one.
func Dead(dir string, limit time.Duration) bool {
	answer := make(chan error, 1)
	go func() { // it may wait as long as the daemon is away
		var st unix.Stat_t
		answer <- unix.Stat(dir, &st)
	}()
	select {
	case err := <-answer:
		return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
	case <-time.After(limit):
		return false
	}
}

// deadLimit bounds the time in which Unmount determines whether a busy mount is dead.
const deadLimit = 2 * time.Second

// Unmount removes a mount. It fails with Busy while programs have files open there, unless the
// mount is dead, since those files cannot be closed in order.
func Unmount(dir string) error { return takeAway(dir, false) }

// Detach takes a mount away while programs have files open there. It ends when these are closed.
func Detach(dir string) error { return takeAway(dir, true) }

func takeAway(dir string, lazy bool) error {
	err := unmount(dir, lazy)
	if errors.Is(err, unix.EBUSY) && Dead(dir, deadLimit) {
		err = unmount(dir, true)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return bb.E(bb.Busy, "umount", dir, "busy: programs have files open there, or are in it").WithRemedy("end them (fuser -m " + dir + " lists them), or bbctl umount --lazy " + dir)
	case errors.Is(err, unix.EPERM):
		return bb.E(bb.Permission, "umount", dir, "no permission: another user has mounted it").WithRemedy("run it as root, or as that user")
	}
	return bb.Wrap("umount", dir, err)
}

func unmount(dir string, lazy bool) error {
	if os.Geteuid() != 0 {
		return helper(dir, lazy)
	}
	flags := unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	return unix.Unmount(dir, flags)
}

// helper unmounts as an ordinary user may.
func helper(dir string, lazy bool) error {
	args := []string{"-u", "--", dir}
	if lazy {
		args = append([]string{"-z"}, args...)
	}
	text, err := exec.Command("fusermount3", args...).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return bb.E(bb.Unsupported, "umount", dir, "fusermount3 is missing").WithRemedy("install fuse3, or run it as root")
	case strings.Contains(string(text), "busy"):
		return unix.EBUSY
	}
	return errors.New(strings.TrimSpace(string(text)))
}
