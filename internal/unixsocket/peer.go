package unixsocket

import (
	"net"

	"golang.org/x/sys/unix"
)

// Peer returns the process and the user at the other end of a connection, which the kernel noted
// when it was made (SO_PEERCRED, unix(7)).
func Peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var (
		ucred  *unix.Ucred
		failed error
	)
	err = raw.Control(func(fd uintptr) {
		ucred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return nil, err
	}
	return ucred, failed
}
