package device

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// slow is a file system whose Access waits.
type slow struct {
	fuse.RawFileSystem
	begun, end chan struct{}
}

func (s *slow) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status {
	s.begun <- struct{}{}
	<-s.end
	return fuse.OK
}

// served is a device whose other end is the test.
func served(t *testing.T, calls fuse.RawFileSystem) (*Device, int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	kernel := pair[1]
	hello := make([]byte, 104)
	binary.NativeEndian.PutUint32(hello, uint32(len(hello)))
	binary.NativeEndian.PutUint32(hello[4:], opInit)
	binary.NativeEndian.PutUint32(hello[inHeader:], 7)
	binary.NativeEndian.PutUint32(hello[inHeader+4:], 45)
	d, err := Inherit(pair[0], hello, 1<<20, slog.New(slog.DiscardHandler))
	if err == nil {
		err = d.Begin(calls, &fuse.MountOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	d.Serve()
	t.Cleanup(func() {
		unix.Close(kernel) // the device reads nothing then
		d.Wait()
	})
	return d, kernel
}

// access requests Access of the root.
func access(t *testing.T, kernel int, unique uint64) {
	t.Helper()
	p := make([]byte, inHeader+8)
	binary.NativeEndian.PutUint32(p, uint32(len(p)))
	binary.NativeEndian.PutUint32(p[4:], 34)
	binary.NativeEndian.PutUint64(p[8:], unique)
	binary.NativeEndian.PutUint64(p[16:], fuse.FUSE_ROOT_ID)
	if _, err := unix.Write(kernel, p); err != nil {
		t.Fatal(err)
	}
}

func answered(t *testing.T, kernel int, unique uint64) {
	t.Helper()
	p := make([]byte, 100)
	n, err := unix.Read(kernel, p)
	if err != nil || n != outHeader || binary.NativeEndian.Uint64(p[8:]) != unique {
		t.Fatalf("the answer is %v, %v", p[:max(n, 0)], err)
	}
}

// TestPause stops reading with a request in flight, which ends before Pause, or has it fail. No request is lost.
func TestPause(t *testing.T) {
	s := &slow{fuse.NewDefaultRawFileSystem(), make(chan struct{}), make(chan struct{})}
	d, kernel := served(t, s)
	access(t, kernel, 2)
	<-s.begun
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Pause(short); bb.KindOf(err) != bb.Busy {
		t.Fatalf("a pause while a request does not end: %v", err)
	}
	access(t, kernel, 4)
	<-s.begun // it was resumed
	paused := make(chan error)
	go func() { paused <- d.Pause(t.Context()) }()
	s.end <- struct{}{}
	s.end <- struct{}{}
	if err := <-paused; err != nil {
		t.Fatal(err)
	}
	answers := map[uint64]bool{}
	for range 2 {
		p := make([]byte, 100)
		if _, err := unix.Read(kernel, p); err != nil {
			t.Fatal(err)
		}
		answers[binary.NativeEndian.Uint64(p[8:])] = true
	}
	if !answers[2] || !answers[4] {
		t.Errorf("answers: %v", answers)
	}
	access(t, kernel, 6)
	select {
	case <-s.begun:
		t.Error("a request was read during a pause")
	case <-time.After(20 * time.Millisecond):
	}
	d.Resume()
	<-s.begun
	s.end <- struct{}{}
	answered(t, kernel, 6)
}
