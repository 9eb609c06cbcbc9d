package provider

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// Server begins a stream that a peer has dialled. It sets the context's deadline, and makes the
// kernel abandon a peer that acknowledges nothing for so long. If conf is not nil, it uses TLS. It
// returns the stream to be used from then on. raw stays the caller's to close.
func Server(ctx context.Context, raw net.Conn, silence time.Duration, conf *tls.Config) (net.Conn, error) {
	return begin(ctx, raw, silence, conf, tls.Server)
}

// Client is Server for a stream that this side has dialled.
func Client(ctx context.Context, raw net.Conn, silence time.Duration, conf *tls.Config) (net.Conn, error) {
	return begin(ctx, raw, silence, conf, tls.Client)
}

func begin(ctx context.Context, raw net.Conn, silence time.Duration, conf *tls.Config,
	layer func(net.Conn, *tls.Config) *tls.Conn,
) (net.Conn, error) {
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
	secure := layer(raw, conf)
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

// Admit calls a provider's Options.Admit for a peer that has dialled. Where that is nil, every peer is
// admitted for good.
func Admit(ctx context.Context, stream net.Conn, admit func(context.Context, net.Conn) (*Admission, error)) (*Admission, error) {
	if admit == nil {
		return nil, nil
	}
	by, err := admit(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	return by, nil
}

// Authenticate runs a provider's Options.Authenticate on a stream that this side has dialled. Nil does
// nothing.
func Authenticate(ctx context.Context, stream net.Conn, authenticate func(context.Context, net.Conn) error) error {
	if authenticate == nil {
		return nil
	}
	if err := authenticate(ctx, stream); err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	return nil
}

// CloseOnEnd closes the socket if the context ends before the returned function is called, so
// that a handshake blocked in I/O ends with it.
func CloseOnEnd(ctx context.Context, c io.Closer) (stop func()) {
	cancel := context.AfterFunc(ctx, func() { _ = c.Close() })
	return func() { cancel() }
}
