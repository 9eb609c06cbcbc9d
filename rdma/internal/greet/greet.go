// Package greet is what every stream of a provider over TCP begins with, at both ends: time
// limits, TLS, authentication. It must never know what comes after.
package greet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"forebay/rdma/internal/admission"
)

// Prepare sets the context's deadline, has the kernel give up on a peer that acknowledges nothing
// for so long, and speaks TLS where conf is not nil. It returns the stream to be used from then on;
// raw stays the caller's to close.
func Prepare(ctx context.Context, raw net.Conn, silence time.Duration, conf *tls.Config, dialed bool) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	if err := userTimeout(raw, silence); err != nil {
		return nil, fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	if conf == nil {
		return raw, nil
	}
	secure := tls.Server(raw, conf)
	if dialed {
		secure = tls.Client(raw, conf)
	}
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return secure, nil
}

func userTimeout(raw net.Conn, d time.Duration) error {
	tcp, ok := raw.(*net.TCPConn)
	if !ok {
		return nil
	}
	rc, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = rc.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	return errors.Join(err, set)
}

// Check is a provider's Options.Authenticate. The nil Check lets everybody in, for good.
type Check func(ctx context.Context, stream net.Conn, dialed bool) (*admission.Admission, error)

// Authenticate runs a check.
func (check Check) Authenticate(ctx context.Context, stream net.Conn, dialed bool) (*admission.Admission, error) {
	if check == nil {
		return nil, nil
	}
	by, err := check(ctx, stream, dialed)
	if err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	return by, nil
}

// CloseOnEnd closes the socket if the context ends before the returned function is called, so
// that a handshake blocked in I/O ends with it.
func CloseOnEnd(ctx context.Context, c io.Closer) (stop func()) {
	cancel := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() { cancel() }
}
