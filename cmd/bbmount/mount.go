package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"os"
	"strconv"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbmount/attrcache"
	"forebay/cmd/bbmount/bufferfs"
	"forebay/cmd/bbmount/kernel"
	"forebay/cmd/bbmount/passthrough"
	"forebay/cmd/bbmount/peers"
	"forebay/internal/bb"
	"forebay/internal/mounts"
)

// options are the buffer to mount, the mount point, and the settings.
type options struct {
	buffer string
	dir    string
	client client.Options
	retry  time.Duration // how long a request waits for a daemon that does not answer; 0: for ever
	others bool          // other users than the mounting one may enter
	passes passes        // whether large files are read by passthrough
	shared bool          // programs on other nodes see each write when it returns
	direct bool          // the bytes of programs that only write go past the kernel's pages
	log    *slog.Logger
	ready  func() // called when the mount serves
}

// Bounds of the kernel's requests.
const (
	maxRequest    = 1 << 20        // bytes, of a read or write
	maxBackground = 64             // requests without a waiter yet
	aheadOf       = 2 * maxRequest // bytes that the kernel requests ahead of a reader, so that two requests are answered at a time
)

// serve mounts a buffer, and serves it until it is unmounted. When ctx ends, it unmounts. If
// programs have files open, it does so lazily and serves these until they are closed. With a state it goes on for an earlier
// process.
func serve(ctx context.Context, o options, from *state) error {
	if from != nil {
		o.dir = from.Dir
	} else if err := checkDir(o.dir); err != nil {
		return err
	}
	c, err := o.dial(ctx, from)
	if err != nil {
		return err
	}
	defer c.Close()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	s := &server{o: o, ends: new(passthrough.Ends)}
	s.files = bufferfs.New(life, c, o.buffer, s.ends, peers.New(c, o.retry), o.sharing(), o.log)
	if err := s.start(life, from); err != nil || from != nil && from.rehearsal {
		return err
	}
	o.tellReads(s.ends, s.dev)
	if err := readAhead(o.dir); err != nil {
		o.log.Debug("the kernel reads ahead as far as it does by itself", "err", err)
	}
	changes := func(ctx context.Context, ready func()) iter.Seq2[admin.Event, error] {
		return admin.Watch(ctx, c, o.buffer, func() {
			ready()
			if from != nil {
				s.files.Restored()
			}
			from = nil
		}, attrcache.Kinds()...)
	}
	go s.files.Changes(life, changes)
	o.ready()
	restarts, stop := context.WithCancel(ctx)
	defer stop()
	go s.restarts(restarts)
	defer context.AfterFunc(ctx, func() { unmount(o.dir, o.log) })()
	s.dev.Wait()
	s.files.Close()
	return nil
}

// dial connects to the daemon. A process that goes on for another waits for one, since programs wait already.
func (o *options) dial(ctx context.Context, from *state) (*client.Client, error) {
	o.client.RetryFor = o.retry
	if o.retry == 0 {
		o.client.RetryFor = math.MaxInt64 / 2
	}
	for {
		c, err := client.Dial(ctx, o.client)
		if from != nil && !from.rehearsal {
			if err == nil || ctx.Err() != nil {
				return c, err
			}
			o.log.Warn("waiting for the daemon", "err", err)
			time.Sleep(dialAgain)
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := admin.BufferInfo(ctx, c, o.buffer); err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
}

// dialAgain is the pause between attempts to reach the daemon.
const dialAgain = 100 * time.Millisecond

// passes is the way of reads of large files.
type passes string

const (
	passOff  passes = "off"
	passRead passes = "read"
)

// Set implements pflag.Value.
func (p *passes) Set(text string) error {
	if *p = passes(text); *p != passOff && *p != passRead {
		return usage(text + ": off or read")
	}
	return nil
}

func (p *passes) String() string { return string(*p) }

// Type implements pflag.Value.
func (p *passes) Type() string { return "string" }

// tellReads logs which way reads of large files go, if they are to be passed on.
func (o *options) tellReads(ends *passthrough.Ends, dev passthrough.Device) {
	if o.passes != passRead {
		ends.Off()
	} else if err := passthrough.Check(dev); err != nil {
		ends.Off()
		o.log.Warn("all files are read through this process: the kernel refuses passthrough, for which it needs Linux 6.9 and root", "err", err)
	} else {
		o.log.Info("large files are read from the daemon's memory, by passthrough")
	}
}

func (o *options) sharing() kernel.Sharing {
	switch {
	case o.shared:
		return kernel.Coherent
	case o.direct:
		return kernel.DirectWrites
	}
	return kernel.CloseToOpen
}

func (o *options) fuse() *fusefs.Options {
	keep := attrcache.Short // where an answer has no time of its own
	attr := o.sharing().Keep(keep)
	return &fusefs.Options{
		EntryTimeout: &keep, AttrTimeout: &attr, NullPermissions: true,
		ExternalNodeID: true, // the number of a node is that of its inode, which a process that goes on can give to it again
		MountOptions: fuse.MountOptions{
			AllowOther: o.others, Options: []string{"default_permissions"},
			FsName: mounts.Source(o.buffer, cmp.Or(o.client.Address, os.Getenv("FOREBAY_SOCKET"))), Name: mounts.Subtype,
			MaxWrite: maxRequest, MaxReadAhead: maxRequest, MaxBackground: maxBackground,
			// No file has setuid, setgid or capabilities. Without this the kernel requests the attribute with the
			// capabilities before each write.
			ExtraCapabilities: fuse.CAP_HANDLE_KILLPRIV_V2,
			// Reads are answered from memory. A pipe for each answer would be filled in vain, and is too small for the largest one.
			DisableSplice: true,
			// The kernel keeps the pages of a file whose time of modification changes, as it does with each write here. It
			// drops them when the file is opened with other content (kernel.View), or its size changes.
			DisabledCapabilities: fuse.CAP_AUTO_INVAL_DATA,
		},
	}
}

// readAhead raises how far the kernel reads ahead of a reader. That is 128 KiB, so that no request is larger, and the
// protocol can only lower it. Only root may raise it.
func readAhead(dir string) error {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return bb.Wrap("mount", dir, err)
	}
	name := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", st.Dev_major, st.Dev_minor)
	return bb.Wrap("mount", name, os.WriteFile(name, []byte(strconv.Itoa(aheadOf>>10)), 0))
}

// checkDir reports the reason why a buffer cannot be mounted on a directory.
func checkDir(dir string) error {
	there, mounted, err := mounts.At(dir)
	if err != nil {
		return err
	}
	if mounted {
		return bb.E(bb.Busy, "mount", dir, there.Source+" is mounted there, or was, by a process that has ended").WithRemedy("bbctl umount " + dir)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return bb.Wrap("mount", dir, err)
	}
	if !info.IsDir() {
		return bb.E(bb.NotDirectory, "mount", dir, "not a directory")
	}
	return nil
}

// mountError names the missing requirement.
func mountError(dir string, err error) error {
	e := &bb.Error{Kind: bb.KindOf(err), Op: "mount", Path: dir, Err: err}
	switch _, missing := os.Stat("/dev/fuse"); {
	case missing != nil:
		e.Remedy = "load the kernel's module: modprobe fuse; in a container, pass --device /dev/fuse"
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES):
		e.Remedy = "mounting needs CAP_SYS_ADMIN: run it as root; in a container, add that capability"
	case os.Geteuid() != 0:
		e.Remedy = "without root it needs fusermount3 (package fuse3), and for --allow-other user_allow_other in /etc/fuse.conf"
	}
	return e
}

// unmount takes the mount away. While programs have files open there, they keep them.
func unmount(dir string, log *slog.Logger) {
	err := mounts.Unmount(dir)
	if errors.Is(err, bb.Busy) {
		log.Info("files are open on the mount: it is detached, and ends when they are closed", "dir", dir)
		err = mounts.Detach(dir)
	}
	if err != nil {
		log.Error("unmounting", "err", err)
	}
}

func newLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// usage makes an error of a fault of the command line.
func usage(why string) error {
	return &bb.Error{Kind: bb.Invalid, Op: "command line", Err: errors.New(why), Remedy: "see bbmount --help"}
}
