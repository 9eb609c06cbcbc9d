package mounts

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// answerTime is how long a mount may take to answer where a symbolic link leads.
const answerTime = 4 * time.Second

// Locate finds the mounted buffer in which a path lies, and the path in it. Symbolic links on the way are followed as
// the kernel does. The last name of the path is not followed, unless a slash is behind it, and none has to be there. It fails with
// ErrUnmounted, which is bb.Invalid, if the path lies below no mount of a buffer by root or this user, and with bb.Unavailable if the mount does not answer.
func Locate(ctx context.Context, name string) (Mount, bb.Address, error) {
	full := name
	if !path.IsAbs(name) {
		dir, err := syscall.Getwd() // never from $PWD, which has symbolic links, and leads through the mount
		if err != nil {
			return Mount{}, bb.Address{}, bb.Wrap("mounts", name, err)
		}
		full = dir + "/" + name
	}
	limited, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	at, err := resolve(full, func(name string) (string, error) { return readlink(limited, name) })
	if err != nil {
		return Mount{}, bb.Address{}, unresolved(ctx, name, err)
	}
	table, err := readTable()
	if err != nil {
		return Mount{}, bb.Address{}, err
	}
	m, below, ok := find(table, at)
	if !ok {
		return m, bb.Address{}, unmounted(name, at)
	}
	address, err := bb.ParseAddress(m.Source + "/" + below)
	return m, address, err
}

// Path returns a path below a mount at which a file of a buffer is seen, and fails with bb.NotFound if there is
// none. Socket is the address of the buffer's daemon, or "" if any will do. Of several mounts it is the newest, and one
// that was given this address comes before those that were given none.
func Path(at bb.Address, socket string) (string, error) {
	table, err := readTable()
	if err != nil {
		return "", err
	}
	socket = Socket(socket)
	for _, given := range []string{socket, ""} {
		if p, ok := pathIn(table, at, func(m *Mount) bool { return socket == "" || m.Socket == given }); ok {
			return p, nil
		}
	}
	return "", bb.E(bb.NotFound, "path", at.String(), "not found: no mount shows it").WithRemedy("bbctl mount bb://" + at.Buffer + " DIR")
}

func pathIn(table []entry, at bb.Address, of func(*Mount) bool) (string, bool) {
	for i := range slices.Backward(table) {
		e := &table[i]
		root := strings.Trim(e.Root, "/")
		if !e.trusted() || e.Source != bb.Scheme+"://"+at.Buffer || !of(&e.Mount) || !bb.Within(at.Path, root) {
			continue
		}
		p := path.Join(e.Dir, strings.TrimPrefix(at.Path, root))
		if m, below, ok := find(table, p); ok && m == e.Mount && below == at.Path {
			return p, true
		}
	}
	return "", false
}

// unresolved is the error of a path whose symbolic links cannot be read.
func unresolved(ctx context.Context, name string, err error) error {
	switch {
	case ctx.Err() != nil:
		return bb.Wrap("address", name, ctx.Err())
	case errors.Is(err, unix.ELOOP):
		return bb.Wrap("address", name, err)
	case errors.Is(err, unix.ENOTCONN), errors.Is(err, unix.ECONNABORTED):
		return bb.E(bb.Unavailable, "address", name, "the process of the mount has ended").WithRemedy("bbctl umount and mount again, or write bb://BUFFER/path")
	}
	return bb.E(bb.Unavailable, "address", name, "the mount does not answer").WithRemedy("check the daemon: bbctl status")
}

// ErrUnmounted is the reason of a path that lies below no mount of a buffer.
var ErrUnmounted = errors.New("does not begin with bb://, and no buffer is mounted there")

func unmounted(name, at string) error {
	e := &bb.Error{Kind: bb.Invalid, Op: "address", Path: name, Err: ErrUnmounted}
	if target, err := os.Readlink(at); err == nil {
		return e.WithRemedy("it is a symbolic link to " + bb.Printable(target) + ": to follow it, end it in a slash")
	}
	return e.WithRemedy("write bb://BUFFER/path, or a path below a mount; findmnt -t fuse." + Subtype + " lists the mounts")
}

// readlink reads a symbolic link within a time, since a mount whose daemon is away does not answer.
func readlink(ctx context.Context, name string) (string, error) {
	type answer struct {
		target string
		err    error
	}
	answers := make(chan answer, 1)
	go func() { // it may wait as long as the daemon is away
		target, err := os.Readlink(name)
		answers <- answer{target, err}
	}()
	select {
	case a := <-answers:
		return a.target, a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// maxLinks is how many symbolic links the kernel follows in a path.
const maxLinks = 40

// resolve returns an absolute path without symbolic links, dots and doubled slashes. The last name is not followed, unless a slash is
// behind it. A name that is not there, or that this user may not see, stays as it is.
func resolve(full string, readlink func(string) (string, error)) (string, error) {
	rest, at := strings.Split(full, "/"), ""
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = strings.TrimSuffix(path.Dir("/"+at), "/")
			continue
		}
		next := at + "/" + name
		if len(rest) == 0 {
			return next, nil
		}
		target, err := readlink(next)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EACCES):
			at = next // no link, or none for this user
			continue
		case err != nil:
			return "", err
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		if path.IsAbs(target) {
			at = ""
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at + "/", nil
}

// find returns the mounted buffer in which a path without symbolic links lies, and the path in the buffer. It goes from
// mount to mount as the kernel does, since a mount may hide others.
func find(table []entry, at string) (m Mount, below string, ok bool) {
	var here *entry
	for {
		next := mountIn(table, here, at)
		if next == nil {
			break
		}
		here = next
	}
	if here == nil || !here.trusted() {
		return Mount{}, "", false
	}
	inside := strings.TrimPrefix(strings.TrimPrefix(at, here.Dir), "/")
	return here.Mount, strings.Trim(here.Root+"/"+inside, "/"), true
}

// mountIn returns the first mount on the way from a mount to a path, or nil if there is none. The way begins, for nil,
// in the mounts whose parents this process cannot reach: its root.
func mountIn(table []entry, from *entry, at string) (first *entry) {
	for i := range table {
		e := &table[i]
		if e == from || !bb.Within(at, e.Dir) || from != nil && e.parent != from.id || from == nil && hasParent(table, e) {
			continue
		}
		if first == nil || len(e.Dir) <= len(first.Dir) {
			first = e
		}
	}
	return first
}

func hasParent(table []entry, e *entry) bool {
	for i := range table {
		if table[i].id == e.parent && e.parent != e.id {
			return true
		}
	}
	return false
}
