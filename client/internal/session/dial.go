package session

import (
	"cmp"
	"context"
	"crypto/rand"
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
	"forebay/internal/clustercert"
	"forebay/internal/clusterkey"
	"forebay/internal/wire"
)

// Options are the daemon's address and the ways of using it. The zero value is the daemon of this node.
type Options struct {
	Address  string        // unix:///path or tcp://host:port, or several with commas, tried in order; "": $FOREBAY_SOCKET, else the well-known sockets
	Name     string        // of the program; "": its file name
	Logger   *slog.Logger  // for reconnections; nil: none
	RetryFor time.Duration // how long an operation tries to connect again; 0: a minute, negative: once

	// The proofs over TCP: see client.Options. "": from the environment.
	KeyFile, TokenFile string
	CA, Cert, Key      string

	User *User // the user for whom the client acts; nil: this process's user
}

// User is a user of the daemons' machines.
type User struct{ UID, GID uint32 }

// defaultRetry bounds the attempts to connect again, unless Options set another time.
const defaultRetry = time.Minute

// dialer opens sessions with the daemon that Options name.
type dialer struct {
	addresses []string // tried in order
	name      string
	user      User
	keys      [][]byte
	token     []byte                   // its public part. The secret is in keys
	tls       *clustercert.Credentials // nil: no TLS
	health    health                   // of the sessions' other needs
	log       *slog.Logger
}

// tlsTimeout bounds TLS's handshake with a peer that is no daemon.
const tlsTimeout = 10 * time.Second

// newDialer checks options.
func newDialer(o *Options) (*dialer, error) {
	d := &dialer{name: o.Name, log: o.Logger, user: User{uint32(os.Geteuid()), uint32(os.Getegid())}}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.name == "" {
		d.name = filepath.Base(os.Args[0])
	}
	d.addresses = addresses(o.Address)
	far := false
	for _, a := range d.addresses {
		network, _, err := splitAddress(a)
		if err != nil {
			return nil, err
		}
		far = far || network == "tcp"
		if o.User != nil && network != "tcp" {
			return nil, bb.E(bb.Invalid, "dial", a, "on a unix socket the kernel identifies the client").
				WithRemedy("to act for another user, write tcp://host:port and give the cluster key")
		}
	}
	if o.User != nil {
		d.user = *o.User
	}
	return d, d.readSecrets(o, far)
}

// readSecrets reads the client's proofs for TCP.
func (d *dialer) readSecrets(o *Options, far bool) (err error) {
	env := func(name string) string {
		if !far {
			return "" // it may be a daemon's, which another user need not be able to read
		}
		return os.Getenv(name)
	}
	if file := cmp.Or(o.KeyFile, env("FOREBAY_KEY_FILE")); file != "" {
		if d.keys, err = clusterkey.Read(file); err != nil {
			return err
		}
	}
	if file := cmp.Or(o.TokenFile, env("FOREBAY_TOKEN_FILE")); file != "" && far {
		text, err := clusterkey.ReadSecret(file)
		if err != nil {
			return err
		}
		d.keys = make([][]byte, 1)
		if d.token, d.keys[0], err = wire.ParseToken(text); err != nil {
			return bb.Wrap("dial", file, err)
		}
	}
	files := clustercert.Files{
		CA: cmp.Or(o.CA, env("FOREBAY_TLS_CA")), Cert: cmp.Or(o.Cert, env("FOREBAY_TLS_CERT")), Key: cmp.Or(o.Key, env("FOREBAY_TLS_KEY")),
	}
	switch {
	case files == clustercert.Files{}:
		return nil
	case files.CA == "":
		return bb.E(bb.Invalid, "dial", files.Cert, "without the authority's certificate the daemon cannot be authenticated").
			WithRemedy("give --tls-ca too")
	}
	d.tls, err = clustercert.Load(files)
	return err
}

// private reports whether a directory is this user's alone. Any user could make one of this name in
// the temporary folder, and pretend to be a daemon there.
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
	var list []string
	for a := range strings.SplitSeq(asked, ",") {
		if strings.HasPrefix(a, "/") {
			a = "unix://" + a
		}
		if a != "" {
			list = append(list, a)
		}
	}
	if len(list) > 0 {
		return list
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		list = append(list, "unix://"+filepath.Join(dir, "forebay", "bbd.sock"))
	}
	// A user's own daemon goes before the node's, which may refuse the user.
	if dir := filepath.Join(os.TempDir(), fmt.Sprintf("forebay-%d", os.Getuid())); private(dir) {
		list = append(list, "unix://"+filepath.Join(dir, "bbd.sock"))
	}
	return append(list, "unix:///run/forebay/bbd.sock")
}

func splitAddress(a string) (network, address string, err error) {
	network, address, ok := strings.Cut(a, "://")
	if !ok || network != "unix" && network != "tcp" || address == "" {
		return "", "", bb.E(bb.Invalid, "dial", fmt.Sprintf("%q", a), "is no address of a daemon").
			WithRemedy("write unix:///path or tcp://host:port")
	}
	return network, address, nil
}

// succession names the sessions that a connection has one after the other. The daemon carries no request of
// one out once the next one has begun. Its holder alone dials.
type succession struct {
	connection [wire.ConnectionSize]byte
	last       uint64
}

func newSuccession() *succession {
	n := new(succession)
	rand.Read(n.connection[:]) // never fails (crypto/rand)
	return n
}

// introduce names the next session. A session of no succession has no successor.
func (n *succession) introduce(m *wire.Hello) {
	if n == nil {
		return
	}
	n.last++
	m.Connection, m.Succession = n.connection[:], n.last
}

// dial opens a session, the next one of n, with the first daemon that answers, and returns its address.
func (d *dialer) dial(ctx context.Context, n *succession) (*Session, string, error) {
	errs := make([]error, 0, len(d.addresses))
	for _, a := range d.addresses {
		s, err := d.dialOne(ctx, a, n)
		if err == nil {
			return s, a, nil
		}
		if errs = append(errs, err); !elsewhere(err, len(d.addresses)) {
			return nil, "", err
		}
	}
	return nil, "", noDaemon(d.addresses, errs)
}

// elsewhere reports whether a daemon is looked for at the next of several addresses. Not if there
// is one, and it refused, or if the address is wrong. But a socket that this user may not use is
// another user's. The user's own daemon may be about to start.
func elsewhere(err error, addresses int) bool {
	var e *bb.Error
	return !errors.As(err, &e) || e.Kind == bb.Unavailable || errors.Is(err, syscall.EACCES) && addresses > 1
}

// noDaemon is the error of a client that found no daemon at any address.
func noDaemon(addresses []string, errs []error) error {
	reasons := make([]string, len(errs))
	remedy := "start one: bbd --dev"
	if installed() {
		remedy = "start the node's: systemctl start forebay-bbd; or one for you alone: bbd --dev"
	}
	for i, err := range errs {
		if reasons[i] = strings.TrimPrefix(err.Error(), "dial: "); errors.Is(err, syscall.EACCES) {
			remedy = "start your own: bbd --dev; or ask the administrator for the right to use the node's"
		}
	}
	return &bb.Error{
		Kind: bb.Unavailable, Op: "dial", Path: strings.Join(addresses, ", "),
		Err: fmt.Errorf("no daemon answers: %s", strings.Join(reasons, "; ")), Remedy: remedy,
	}
}

// installed reports whether the node has a unit of the daemon.
func installed() bool {
	for _, dir := range []string{"/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"} {
		if _, err := os.Stat(filepath.Join(dir, "forebay-bbd.service")); err == nil {
			return true
		}
	}
	return false
}

func (d *dialer) dialOne(ctx context.Context, a string, n *succession) (*Session, error) {
	network, address, err := splitAddress(a)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, Cancelled(ctx)
		}
		if errors.Is(err, os.ErrPermission) {
			return nil, bb.Wrap("dial", a, err)
		}
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	s, err := d.handshake(ctx, conn, n)
	if !stop() {
		conn.Close()
		return nil, Cancelled(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// handshake introduces the client, and proves possession of the key at the daemon's request.
func (d *dialer) handshake(ctx context.Context, conn net.Conn, n *succession) (*Session, error) {
	var token []byte
	if conn.LocalAddr().Network() == "tcp" {
		var err error
		token = d.token
		conn.SetDeadline(time.Now().Add(tlsTimeout))
		if conn, err = d.tls.Secure(ctx, conn); err != nil {
			return nil, err
		}
	}
	src := &resumable{Conn: conn}
	in := wire.NewReader(src)
	hello := &wire.Hello{Client: d.name, Pid: uint32(os.Getpid()), Uid: d.user.UID, Gid: d.user.GID, Token: token}
	n.introduce(hello)
	welcome, err := wire.Handshake(conn, in, hello, d.keys...)
	if err != nil {
		return nil, err
	}
	s := newSession(conn, src, in, welcome)
	s.Remote = newRemote(s, d.tls, &d.health, d.log)
	return s, nil
}

// The pauses between attempts to connect again.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// redial dials the next session of n until a daemon answers, ctx ends, or the deadline is over.
func (d *dialer) redial(ctx context.Context, deadline time.Time, n *succession) (*Session, string, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		s, address, err := d.dial(ctx, n)
		if err == nil || bb.KindOf(err) != bb.Unavailable || !time.Now().Before(deadline) {
			return s, address, err
		}
		timer := time.NewTimer(min(pause, time.Until(deadline)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, "", Cancelled(ctx)
		}
	}
}
