package latency

import (
	"errors"
	"io"
	"net"
	"os"

	"forebay/internal/hostlimit"
)

// Echo answers each message on a blocking socket until it is closed.
func Echo(f *os.File) error { return hostlimit.Echo(int(f.Fd())) }

// EchoNet does the same through package net, as a Go daemon would.
func EchoNet(f *os.File) error {
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := make([]byte, hostlimit.MessageBytes)
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
