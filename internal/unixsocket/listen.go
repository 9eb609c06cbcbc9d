// Package unixsocket listens at unix sockets whose files have their modes from the beginning. It must
// never depend on the server.
package unixsocket

import (
	"errors"
	"net"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Listen replaces the socket of a daemon that died, never of one that runs (bb.Busy). Users with
// the right to write by mode may connect.
func Listen(path string, mode os.FileMode) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, bb.E(bb.Busy, "listen", path, "another daemon serves this socket").
			WithRemedy("stop it, or give this one a socket of its own")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, bb.Wrap("listen", path, err)
	}
	l, err := bind(path, mode)
	if err != nil {
		return nil, bb.Wrap("listen", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, bb.Wrap("listen", path, err)
	}
	return l, nil
}

// bind binds a socket whose file has its mode from the beginning. With the mode that the umask of
// the process leaves, a client that connects again during a restart would be refused between bind(2)
// and chmod(2), and end with that answer. The umask is of a thread of its own, which ends here.
func bind(path string, mode os.FileMode) (l net.Listener, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good; the thread ends with the goroutine
		if unix.Unshare(unix.CLONE_FS) == nil {
			unix.Umask(int(0o777 &^ mode.Perm()))
		}
		l, err = net.Listen("unix", path)
	}()
	<-done
	return l, err
}
