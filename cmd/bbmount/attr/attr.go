// Package attr translates attributes between the kernel's requests and entries of a buffer. It must never depend on
// their file.
package attr

import (
	"io/fs"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
)

// Of returns the attributes of a request that entries have. A size is no part of them, and an access time is not kept.
func Of(in *fuse.SetAttrIn) client.Attr {
	var a client.Attr
	if mode, ok := in.GetMode(); ok {
		m := fs.FileMode(mode).Perm()
		a.Mode = &m
	}
	if uid, ok := in.GetUID(); ok {
		a.UID = &uid
	}
	if gid, ok := in.GetGID(); ok {
		a.GID = &gid
	}
	if in.Valid&fuse.FATTR_MTIME != 0 {
		t, _ := in.GetMTime()
		a.ModTime = &t
	}
	return a
}

// Given returns the attributes, besides a mode, that make what one user has made another's.
func Given(from, to fuse.Owner, mode *fs.FileMode) client.Attr {
	a := client.Attr{Mode: mode}
	if to.Uid != from.Uid {
		a.UID = &to.Uid
	}
	if to.Gid != from.Gid {
		a.GID = &to.Gid
	}
	return a
}

// Apply changes the attributes of an entry.
func Apply(e *client.Entry, a client.Attr) {
	if a.Mode != nil {
		e.Mode = *a.Mode
	}
	if a.UID != nil {
		e.UID = *a.UID
	}
	if a.GID != nil {
		e.GID = *a.GID
	}
	if a.ModTime != nil {
		e.ModTime = *a.ModTime
	}
}

// Type returns the type of an entry as the bits of a mode.
func Type(e *client.Entry) uint32 {
	switch e.Type {
	case client.TypeDirectory:
		return syscall.S_IFDIR
	case client.TypeSymlink:
		return syscall.S_IFLNK
	case client.TypeFIFO:
		return syscall.S_IFIFO
	case client.TypeSocket:
		return syscall.S_IFSOCK
	}
	return syscall.S_IFREG
}

// Fill makes the kernel's attributes of an entry, of another size in bytes and time of modification. It leaves the size of blocks out.
func Fill(e *client.Entry, size int64, mtime time.Time, out *fuse.Attr) {
	out.Size, out.Blocks = uint64(size), uint64(size+511)/512
	out.Owner = fuse.Owner{Uid: e.UID, Gid: e.GID}
	out.Nlink = 1
	out.Mode = uint32(e.Mode.Perm()) | Type(e)
	out.SetTimes(&mtime, &mtime, &mtime)
}
