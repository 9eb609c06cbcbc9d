// Package userfile reads small files whose names users choose: of credentials, of certificates.
// A program that runs as root reads them with the user's rights, never waits for the other end
// of a FIFO, and never reads more than it needs. It must never depend on their content.
package userfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// MaxSize is the largest size of a file of credentials or certificates, in bytes. The certificates
// of all public authorities are a quarter of it.
const MaxSize = 1 << 20

// User is the reader of a file: a user and the groups, the primary one first.
type User struct {
	UID    uint32
	Groups []uint32
}

// Read returns the content of a regular file of at most MaxSize bytes. Anything else is
// refused before it is opened for reading, so nothing happens to a device or a FIFO.
func Read(name string) ([]byte, error) {
	text, err := read(name)
	return text, bb.Wrap("read", name, err)
}

func read(name string) ([]byte, error) {
	// The descriptor is of the name alone, so that this neither opens the device nor waits for a
	// FIFO's other end.
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, bb.E(bb.Invalid, "read", name, "it is not a regular file")
	case stat.Size > MaxSize:
		return nil, tooLarge(name)
	}
	// The kernel checks again whether the file may be read.
	opened, err := ignoringEINTR(func() (int, error) {
		return unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(opened), name)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err == nil && len(text) > MaxSize {
		err = tooLarge(name)
	}
	return text, err
}

func tooLarge(name string) error {
	return bb.E(bb.Invalid, "read", name, fmt.Sprintf("it has more than %d bytes", MaxSize))
}

func ignoringEINTR(open func() (int, error)) (fd int, err error) {
	for {
		if fd, err = open(); err != unix.EINTR {
			return fd, err
		}
	}
}

// ReadAs is Read with the rights of a user, which the kernel checks. A process that is not root's
// reads for its own user alone.
func ReadAs(name string, as User) ([]byte, error) {
	own := uint32(os.Geteuid())
	switch {
	case as.UID == own && own != 0:
		return Read(name)
	case own != 0:
		return nil, bb.E(bb.Unsupported, "read", name, "this process is not root's, and reads for its own user alone")
	case as.UID == 0:
		return Read(name)
	}
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		r := result{}
		before, err := unix.Getgroups()
		if err == nil {
			err = become(as)
		}
		if r.err = err; err == nil {
			r.text, r.err = read(name)
		}
		// A thread that cannot be put back ends with this goroutine, which has it locked.
		if restore(before) == nil {
			runtime.UnlockOSThread()
		}
		done <- r
	}()
	r := <-done
	return r.text, bb.Wrap("read", name, r.err)
}

// become changes whose rights this thread has in file systems. Leaving user 0 there removes the
// capabilities that would bypass the kernel's checks (capabilities(7), "Effect of user ID
// changes on capabilities").
func become(as User) error {
	groups := make([]int, len(as.Groups))
	for i, g := range as.Groups {
		groups[i] = int(g)
	}
	if len(groups) == 0 {
		return unix.EINVAL
	}
	if err := unix.Setgroups(groups); err != nil { // of this thread alone, unlike syscall.Setgroups
		return err
	}
	return setIDs(int(as.UID), groups[0])
}

func restore(groups []int) error {
	return errors.Join(setIDs(os.Geteuid(), os.Getegid()), unix.Setgroups(groups))
}

// setIDs sets both and checks that they are set. The calls themselves report no failure.
func setIDs(uid, gid int) error {
	for _, set := range []struct {
		id   int
		call func(int) (int, error)
	}{{gid, unix.SetfsgidRetGid}, {uid, unix.SetfsuidRetUid}} {
		if _, err := set.call(set.id); err != nil {
			return err
		}
		if now, err := set.call(-1); err != nil || now != set.id {
			return unix.EPERM
		}
	}
	return nil
}
