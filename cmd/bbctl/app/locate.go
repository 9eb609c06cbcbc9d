package app

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"forebay/client"
	"forebay/internal/mounts"
)

const AddressHelp = `Files in buffers are addressed bb://BUFFER/path, or by a path below the directory on which
the buffer is mounted.`

// Locate returns the address that an argument names: itself, or that of a path below a mount.
func (a *App) Locate(ctx context.Context, arg string) (client.Address, error) {
	if arg == "" || strings.Contains(arg, "://") {
		return client.ParseAddress(arg)
	}
	m, at, err := mounts.Locate(ctx, arg)
	if err != nil {
		return at, err
	}
	return at, a.useMount(&m, arg)
}

// InBuffer is Locate for an argument that may also be a local file. It reports which of them it is.
func (a *App) InBuffer(ctx context.Context, arg string) (at client.Address, inside bool, err error) {
	at, err = a.Locate(ctx, arg)
	if errors.Is(err, mounts.ErrUnmounted) {
		return at, false, nil
	}
	return at, err == nil, err
}

// BufferAt returns the buffer, and the path in it, of an argument that is NAME, bb://NAME/path or a path below a mount, which
// has a slash, or begins with a dot.
func (a *App) BufferAt(ctx context.Context, arg string) (client.Address, error) {
	if !strings.Contains(arg, "/") && !strings.HasPrefix(arg, ".") {
		return client.Address{Buffer: arg}, nil
	}
	return a.Locate(ctx, arg)
}

// BufferName is BufferAt for a command about a whole buffer.
func (a *App) BufferName(ctx context.Context, arg string) (string, error) {
	at, err := a.BufferAt(ctx, arg)
	if err == nil && at.Path != "" {
		err = Usage(arg + " is a path in a buffer: name the buffer, " + at.Buffer)
	}
	return at.Buffer, err
}

// useMount connects to the daemon of a mount, unless the command line names one. The chosen context is that of
// addresses alone: the mount is one of this node.
func (a *App) useMount(m *mounts.Mount, arg string) error {
	if !a.chosen && (a.Address != "" || a.Context != "") {
		return nil
	}
	now, its := DaemonOf(a.Address), DaemonOf(m.Socket)
	if now != its && (a.chosen || a.client != nil) {
		return &client.Error{
			Kind: client.ErrInvalid, Op: "address", Path: filepath.Clean(arg),
			Err: errors.New("it is mounted from another daemon, at " + cmp.Or(its, "the usual place") + ", than the command's other paths"), Remedy: "copy in two steps, or name one daemon by --socket",
		}
	}
	a.Address, a.chosen = m.Socket, true
	return nil
}

// DaemonOf is the address at which a daemon is reached for a given one. "" means the usual places of a node.
func DaemonOf(address string) string {
	return mounts.Socket(cmp.Or(address, os.Getenv("FOREBAY_SOCKET")))
}
