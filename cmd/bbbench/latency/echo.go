package latency

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// messageBytes is about the size of a small request of the control protocol.
const messageBytes = 128

// Echo answers each message on a blocking socket until it is closed.
func Echo(f *os.File) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd := int(f.Fd())
	message := make([]byte, messageBytes)
	for {
		if err := receive(fd, message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := unix.Write(fd, message); err != nil {
			return err
		}
	}
}

// receive fills p from a blocking socket.
func receive(fd int, p []byte) error {
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

// EchoNet does the same through package net, as a Go daemon would.
func EchoNet(f *os.File) error {
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := make([]byte, messageBytes)
	for {
		if _, err := io.ReadFull(conn, message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
}
