package powertest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// Device is a Drive that is a block device of this machine, for a real file system of the kernel.
// It is a loop device on a file that the test serves by FUSE. Each write of the file system reaches
// the drive's cache at once, and its flushes of the cache arrive as fsync(2) of that file. It loses
// no power: Survivors has the content as of a loss.
type Device struct {
	*Drive        // Path is the device
	dir    string // where the file is mounted
	server *fuse.Server
}

// diskFile is the only file of a Device's FUSE file system.
const (
	diskFile = "disk"
	diskNode = rootID + 1
)

// NewDevice makes a device with the content of an image file, which it does not change, until the test ends. The file systems on it
// are unmounted by then. It skips a test that may not make devices; in CI, where nothing may be missing, it fails it.
func NewDevice(tb testing.TB, image string) *Device {
	tb.Helper()
	mayMount(tb)
	drive, err := load(image)
	if err != nil {
		tb.Fatal(err)
	}
	d := &Device{Drive: drive, dir: tb.TempDir()}
	d.server, err = fuse.NewServer(&deviceCalls{fuse.NewDefaultRawFileSystem(), drive}, d.dir, &fuse.MountOptions{
		DirectMountStrict: true, FsName: "powertest", Name: "powertest", DisableReadDirPlus: true, MaxWrite: 1 << 20,
	})
	if err != nil {
		tb.Fatalf("mounting on %s: %v", d.dir, err)
	}
	go d.server.Serve()
	tb.Cleanup(func() { d.close(tb) })
	if err := d.server.WaitMount(); err != nil {
		tb.Fatalf("mounting on %s: %v", d.dir, err)
	}
	out, err := exec.Command("losetup", "--find", "--show", filepath.Join(d.dir, diskFile)).CombinedOutput()
	if err != nil {
		tb.Fatalf("losetup: %v\n%s", err, out)
	}
	d.Path = strings.TrimSpace(string(out))
	return d
}

// Fill makes writes to blocks that were never written fail, after so many more blocks, as those of a loop device whose file
// is on a full file system.
func (d *Device) Fill(blocks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bounded, d.room = true, blocks
}

func (d *Device) close(tb testing.TB) {
	if d.Path != "" {
		if out, err := exec.Command("losetup", "--detach", d.Path).CombinedOutput(); err != nil {
			tb.Errorf("losetup: %v\n%s", err, out)
		}
	}
	if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
		tb.Errorf("unmounting %s: %v", d.dir, err)
		return
	}
	d.server.Wait()
}

// mayMount skips a test that may not mount.
func mayMount(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() == 0 {
		return
	}
	const missing = "mounting a file system needs root"
	if os.Getenv("CI") != "" {
		tb.Fatal(missing)
	}
	tb.Skip(missing)
}

// deviceCalls answers the kernel for the file of a Device.
type deviceCalls struct {
	fuse.RawFileSystem
	drive *Drive
}

func (c *deviceCalls) attr(node uint64, out *fuse.Attr) fuse.Status {
	switch node {
	case rootID:
		*out = fuse.Attr{Ino: node, Mode: syscall.S_IFDIR | 0o700, Nlink: 2}
	case diskNode:
		*out = fuse.Attr{Ino: node, Mode: syscall.S_IFREG | 0o600, Nlink: 1, Size: uint64(c.drive.size), Blksize: blockSize}
	default:
		return fuse.ENOENT
	}
	return fuse.OK
}

func (c *deviceCalls) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if in.NodeId != rootID || name != diskFile {
		return fuse.ENOENT
	}
	out.NodeId, out.Generation = diskNode, 1
	return c.attr(diskNode, &out.Attr)
}

func (c *deviceCalls) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	return c.attr(in.NodeId, &out.Attr)
}

func (c *deviceCalls) Open(<-chan struct{}, *fuse.OpenIn, *fuse.OpenOut) fuse.Status { return fuse.OK }

func (c *deviceCalls) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n := max(0, min(int64(in.Size), c.drive.size-int64(in.Offset)))
	c.drive.read(buf[:n], int64(in.Offset))
	return fuse.ReadResultData(buf[:n]), fuse.OK
}

func (c *deviceCalls) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if !c.drive.writeIfRoom(append([]byte(nil), data...), int64(in.Offset)) {
		return 0, fuse.Status(syscall.ENOSPC)
	}
	return uint32(len(data)), fuse.OK
}

// Fsync is the loop device's form of a flush of the write cache.
func (c *deviceCalls) Fsync(<-chan struct{}, *fuse.FsyncIn) fuse.Status {
	c.drive.flush()
	return fuse.OK
}

func (c *deviceCalls) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }
