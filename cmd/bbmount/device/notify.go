package device

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/internal/mounts"
)

var _ fs.ServerCallbacks = (*Device)(nil)

// message begins a notification of a kind.
func message(kind int32, fields ...uint64) []byte {
	p := make([]byte, outHeader)
	binary.NativeEndian.PutUint32(p[4:], uint32(-kind))
	for _, f := range fields {
		p = binary.NativeEndian.AppendUint64(p, f)
	}
	return p
}

// name ends a notification with the length of a name, no flags, and the name.
func name(p []byte, name string) []byte {
	p = binary.NativeEndian.AppendUint32(p, uint32(len(name)))
	p = binary.NativeEndian.AppendUint32(p, 0)
	return append(append(p, name...), 0)
}

func (d *Device) notify(p []byte) fuse.Status {
	binary.NativeEndian.PutUint32(p, uint32(len(p)))
	var errno syscall.Errno
	if errors.As(d.write(p), &errno) {
		return fuse.Status(errno)
	}
	return fuse.OK
}

// InodeNotify has the kernel drop the attributes of a node, and its pages from off on if that is not negative. For
// attributes alone it waits for nothing, for pages it may wait for reads of programs. A request may call it.
func (d *Device) InodeNotify(node uint64, off, length int64) fuse.Status {
	if off >= 0 {
		d.dropping.Add(1)
		defer d.dropping.Add(-1)
	}
	return d.notify(message(fuse.NOTIFY_INVAL_INODE, node, uint64(off), uint64(length)))
}

// EntryNotify has the kernel drop a name. It waits for programs that change the directory. A request must not call it.
func (d *Device) EntryNotify(parent uint64, child string) fuse.Status {
	d.notifying.RLock()
	defer d.notifying.RUnlock()
	return d.notify(name(message(fuse.NOTIFY_INVAL_ENTRY, parent), child))
}

// DeleteNotify is EntryNotify of a name that was removed.
func (d *Device) DeleteNotify(parent, node uint64, child string) fuse.Status {
	d.notifying.RLock()
	defer d.notifying.RUnlock()
	return d.notify(name(message(fuse.NOTIFY_DELETE, parent, node), child))
}

// InodeRetrieveCache is not supported.
func (d *Device) InodeRetrieveCache(uint64, int64, []byte) (int, fuse.Status) { return 0, fuse.ENOSYS }

// InodeNotifyStoreCache is not supported.
func (d *Device) InodeNotifyStoreCache(uint64, int64, []byte) fuse.Status { return fuse.ENOSYS }

// Call is a program's call of mounts.RestartCall, which waits for its answer, also from the process that goes on.
type Call struct {
	Unique uint64
	UID    uint32
}

// OnRestart has f called, which must not wait, with each mounts.RestartCall. It is called before Serve.
func (d *Device) OnRestart(f func(Call)) { d.restart = f }

func callOf(in []byte, h header) (Call, bool) {
	const cmd = inHeader + 12
	is := h.op == opIoctl && len(in) >= cmd+4 && binary.NativeEndian.Uint32(in[cmd:]) == mounts.RestartCall
	return Call{h.unique, h.uid}, is
}

// Answer answers a call.
func (d *Device) Answer(c Call, errno syscall.Errno) {
	p := make([]byte, outHeader, outHeader+ioctlOut)
	if errno == 0 {
		p = p[:cap(p)]
	}
	binary.NativeEndian.PutUint32(p, uint32(len(p)))
	binary.NativeEndian.PutUint32(p[4:], uint32(-int32(errno)))
	binary.NativeEndian.PutUint64(p[8:], c.Unique)
	if err := d.write(p); err != nil && !errors.Is(err, unix.ENOENT) {
		d.log.Warn("answering a call for a restart", "err", err)
	}
}
