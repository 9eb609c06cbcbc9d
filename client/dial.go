package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// dialer opens sessions with the daemon that Options name.
type dialer struct {
	addresses []string // tried in order
	name      string
	key       []byte
	health    health // of what sessions need besides
	log       *slog.Logger
}

// newDialer checks options.
func newDialer(o *Options) (*dialer, error) {
	d := &dialer{name: o.Name, log: o.Logger}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.name == "" {
		d.name = filepath.Base(os.Args[0])
	}
	if o.KeyFile != "" {
		key, err := os.ReadFile(o.KeyFile)
		if err != nil {
			return nil, bb.Wrap("dial", o.KeyFile, err)
		}
		if d.key = bytes.TrimSpace(key); len(d.key) == 0 {
			return nil, bb.E(bb.Invalid, "dial", o.KeyFile, "the key file is empty")
		}
	}
	d.addresses = addresses(o.Address)
	for _, a := range d.addresses {
		if _, _, err := splitAddress(a); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// private reports whether a directory is this user's alone: anybody may make one of
// this name in the temporary folder, and pretend to be a daemon there.
func private(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Getuid()
}

// addresses lists where a daemon may be.
func addresses(asked string) []string {
	if asked == "" {
		asked = os.Getenv("FOREBAY_SOCKET")
	}
	if strings.HasPrefix(asked, "/") {
		asked = "unix://" + asked
	}
	if asked != "" {
		return []string{asked}
	}
	var list []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, "unix://"+filepath.Join(dir, "forebay", "bbd.sock"))
	}
	list = append(list, "unix:///run/forebay/bbd.sock")
	if dir := filepath.Join(os.TempDir(), fmt.Sprintf("forebay-%d", os.Getuid())); private(dir) {
		list = append(list, "unix://"+filepath.Join(dir, "bbd.sock"))
	}
	return list
}

func splitAddress(a string) (network, address string, err error) {
	network, address, ok := strings.Cut(a, "://")
	if !ok || network != "unix" && network != "tcp" || address == "" {
		return "", "", bb.E(bb.Invalid, "dial", fmt.Sprintf("%q", a), "is no address of a daemon").
			WithRemedy("write unix:///path or tcp://host:port")
	}
	return network, address, nil
}

// dial opens a session with the first daemon that answers, and says where that was.
func (d *dialer) dial(ctx context.Context) (*session, string, error) {
	var reasons []error
	for _, a := range d.addresses {
		s, err := d.dialOne(ctx, a)
		if err == nil {
			return s, a, nil
		}
		var e *bb.Error
		if errors.As(err, &e) && e.Kind != bb.Unavailable {
			return nil, "", err // there is a daemon, and it refused, or the address is wrong
		}
		reasons = append(reasons, err)
	}
	return nil, "", &bb.Error{
		Kind: bb.Unavailable, Op: "dial", Path: strings.Join(d.addresses, ", "),
		Err: fmt.Errorf("no daemon answers there: %w", errors.Join(reasons...)), Remedy: "start one: bbd --dev",
	}
}

func (d *dialer) dialOne(ctx context.Context, a string) (*session, error) {
	network, address, err := splitAddress(a)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, cancelled(ctx)
		}
		if errors.Is(err, os.ErrPermission) {
			return nil, bb.Wrap("dial", a, err)
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	s, err := d.handshake(conn)
	if !stop() {
		conn.Close()
		return nil, cancelled(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// handshake introduces the client, and proves that it knows the key if asked to.
func (d *dialer) handshake(conn net.Conn) (*session, error) {
	src := &resumable{Conn: conn}
	in := wire.NewReader(src)
	welcome, err := wire.Handshake(conn, in, &wire.Hello{
		Client: d.name, Pid: uint32(os.Getpid()), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid()),
	}, d.key)
	if err != nil {
		return nil, err
	}
	s := newSession(conn, src, in, welcome)
	s.far = newFar(s, &d.health, d.log)
	return s, nil
}

// The pauses between attempts to connect again.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// redial dials until a daemon answers, ctx ends, or the deadline is over.
func (d *dialer) redial(ctx context.Context, deadline time.Time) (*session, string, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		s, address, err := d.dial(ctx)
		if err == nil || bb.KindOf(err) != bb.Unavailable || !time.Now().Before(deadline) {
			return s, address, err
		}
		timer := time.NewTimer(min(pause, time.Until(deadline)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, "", cancelled(ctx)
		}
	}
}
