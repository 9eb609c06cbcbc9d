package hostlimit

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// MessageBytes is about the size of a small request to a daemon.
const MessageBytes = 128

// RoundTrips times n round trips of a small message on a unix socket between two threads, with
// blocking system calls. That is the least time of a request to another process on this machine.
func RoundTrips(n int) ([]time.Duration, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	answered := make(chan error, 1)
	go func() {
		answered <- Echo(pair[1])
	}()
	times, err := ask(pair[0], n)
	err = errors.Join(err, unix.Shutdown(pair[0], unix.SHUT_RDWR), <-answered, unix.Close(pair[0]), unix.Close(pair[1]))
	return times, err
}

func ask(fd, n int) ([]time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	message, times := make([]byte, MessageBytes), make([]time.Duration, n)
	for i := range times {
		began := time.Now()
		if _, err := unix.Write(fd, message); err != nil {
			return nil, fmt.Errorf("round trip: %w", err)
		}
		if err := Receive(fd, message); err != nil {
			return nil, fmt.Errorf("round trip: %w", err)
		}
		times[i] = time.Since(began)
	}
	return times, nil
}

// Echo sends each message of MessageBytes back until the blocking socket is shut down.
func Echo(fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	message := make([]byte, MessageBytes)
	for {
		if err := Receive(fd, message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := unix.Write(fd, message); err != nil && !errors.Is(err, unix.EPIPE) {
			return err
		}
	}
}

// Receive fills p from a blocking socket. It returns io.EOF where that was shut down.
func Receive(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Read(fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			p = p[n:]
		}
	}
	return nil
}
