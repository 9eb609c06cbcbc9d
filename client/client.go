package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// defaultRetry is how long an operation tries to connect again unless Options say otherwise.
const defaultRetry = time.Minute

// Options say which daemon to talk to and how. The zero value is the daemon of this node.
type Options struct {
	Address  string        // unix:///path or tcp://host:port, or several with commas, tried in order; "": $FOREBAY_SOCKET, else the well-known sockets
	Name     string        // of the program, for the daemon's status and logs; "": its file name
	Logger   *slog.Logger  // for reconnections; nil: none
	KeyFile  string        // file with the cluster key, readable by its owner alone, for TCP; "": $FOREBAY_KEY_FILE
	RetryFor time.Duration // how long an operation tries to connect again; 0: a minute, negative: once

	// TokenFile holds a token (see Token), readable by its owner alone, which is used over
	// TCP instead of any other proof. "": $FOREBAY_TOKEN_FILE.
	TokenFile string

	// CA, Cert and Key are PEM files for TLS, which is spoken over TCP if CA is given: the
	// certificates of the authority that signs the daemons', and, where the client has no
	// other proof, its own with its key. "": $FOREBAY_TLS_CA, $FOREBAY_TLS_CERT, $FOREBAY_TLS_KEY.
	CA, Cert, Key string

	// User is who the client acts for, over TCP: whoever has the cluster key or a client's
	// certificate may act for anybody. nil: this process's user. On a unix socket the
	// kernel says who a client is, so there it is refused.
	User *User

	// VerifyAll checks every mapped extent that a read touches against its checksum, also
	// for random reads of small parts, which costs one pass over the extent (at most 1 MiB,
	// the first time).
	VerifyAll bool
}

// User is a user of the daemons' machines.
type User struct{ UID, GID uint32 }

// Client talks to one daemon. It may be used concurrently.
type Client struct {
	o      Options
	log    *slog.Logger
	dialer *dialer
	atlas  atlas
	staged staging

	current atomic.Pointer[session]
	dialing chan struct{} // holds one token: who has it may replace current

	mu struct {
		sync.Mutex
		closed  bool
		address string
		spaces  map[spaceKey]*space
		files   map[*File]struct{}
	}
}

// Dial connects to a daemon. Without one it fails with ErrUnavailable, naming the
// sockets that it tried; it does not wait for a daemon to come.
func Dial(ctx context.Context, o Options) (*Client, error) {
	d, err := newDialer(&o)
	if err != nil {
		return nil, err
	}
	if o.RetryFor == 0 {
		o.RetryFor = defaultRetry
	}
	c := &Client{o: o, log: d.log, dialer: d, dialing: make(chan struct{}, 1)}
	c.mu.spaces = make(map[spaceKey]*space)
	c.mu.files = make(map[*File]struct{})
	s, address, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.address = address
	c.current.Store(s)
	c.dialing <- struct{}{}
	return c, nil
}

// Close ends the session. Blocked operations fail; files that were not closed lose what
// they had not committed. Mappings stay readable until they are released. Close may be
// called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil
	}
	c.mu.closed = true
	files, spaces := c.mu.files, c.mu.spaces
	c.mu.files, c.mu.spaces = nil, nil
	c.mu.Unlock()
	c.current.Load().fail(errClosed)
	for f := range files {
		f.release()
	}
	for _, sp := range spaces {
		sp.close()
	}
	c.atlas.close()
	return nil
}

var errClosed = &bb.Error{Kind: bb.Invalid, Op: "client", Err: errors.New("it is closed")}

// Server says which daemon the client talks to, or last did.
func (c *Client) Server() ServerInfo {
	w := c.current.Load().welcome
	c.mu.Lock()
	defer c.mu.Unlock()
	return ServerInfo{
		Address: c.mu.address, Node: NodeID(w.Node), Version: w.Server, Protocol: w.Version, Instance: w.Instance, Epoch: w.Epoch,
		UID: w.Uid, GID: w.Gid, Mapped: w.MapRegions,
	}
}

// Buffer returns a handle of a buffer, which need not exist. It does no I/O.
func (c *Client) Buffer(name string) *Buffer { return &Buffer{c: c, name: name} }

// session returns a live session, connecting again if need be.
func (c *Client) session(ctx context.Context) (*session, error) {
	if s := c.current.Load(); !s.isBroken() {
		return s, nil
	}
	select {
	case <-c.dialing:
		defer func() { c.dialing <- struct{}{} }()
	case <-ctx.Done():
		return nil, cancelled(ctx)
	}
	old := c.current.Load()
	if !old.isBroken() {
		return old, nil
	}
	if c.isClosed() {
		return nil, errClosed
	}
	s, address, err := c.dialer.redial(ctx, time.Now().Add(c.o.RetryFor))
	if err != nil {
		return nil, err
	}
	if err := c.adopt(s, address); err != nil {
		s.fail(err)
		return nil, err
	}
	c.log.Info("connected again", "address", address, "node", s.welcome.Node,
		"restarted", s.welcome.Epoch != old.welcome.Epoch, "memory lost", s.welcome.Instance != old.welcome.Instance)
	c.atlas.sweep()
	return s, nil
}

func (c *Client) adopt(s *session, address string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return errClosed
	}
	c.mu.address = address
	c.current.Store(s)
	return nil
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.closed
}

// retry runs op on a live session, and again on a new one as long as sessions break
// under it, for at most RetryFor. What op does must be safe to do twice.
func (c *Client) retry(ctx context.Context, op func(*session) error) error {
	var deadline time.Time
	for {
		s, err := c.session(ctx)
		if err != nil {
			return err
		}
		err = op(s)
		if !isBroken(err) || c.isClosed() {
			return err
		}
		now := time.Now()
		if deadline.IsZero() {
			deadline = now.Add(c.o.RetryFor)
		}
		if !now.Before(deadline) {
			return err
		}
	}
}

// ask sends a request and waits for the reply. If the connection breaks meanwhile, it sends
// the request again, unless that may have been sent before and must not be carried out
// twice: then the error says that the outcome is unknown.
func (c *Client) ask(ctx context.Context, typ wire.Type, m, reply proto.Message) error {
	if !wire.MayRepeat(typ, m) {
		return c.change(ctx, typ, m, reply)
	}
	return c.retry(ctx, func(s *session) error {
		_, err := s.ask(ctx, typ, m, nil, reply, nil)
		return err
	})
}

// change is ask for a request that is carried out at most once.
func (c *Client) change(ctx context.Context, typ wire.Type, m, reply proto.Message) error {
	return c.retry(ctx, func(s *session) error {
		if !s.alive() { // the daemon went while nobody asked for anything
			return &brokenError{Reason: net.ErrClosed}
		}
		_, err := s.ask(ctx, typ, m, nil, reply, nil)
		return unknown(err)
	})
}

// unknown returns the error of a change, made one that says so if the change may have been
// carried out.
func unknown(err error) error {
	if !errors.Is(err, bb.ErrUnknownOutcome) {
		return err
	}
	e := &bb.Error{Kind: bb.KindOf(err), Err: fmt.Errorf("outcome unknown: it may have been carried out: %w", err), Remedy: "look whether it was done", Unknown: true}
	if b := (*brokenError)(nil); errors.As(err, &b) {
		// No broken session: the request is not sent again.
		e.Err = fmt.Errorf("outcome unknown: it may have been carried out: %s before the answer came", b.Error())
	}
	return e
}

// spaceKey is what a space is for: bytes of a buffer's files that belong in a tier.
type spaceKey struct {
	buffer string
	tier   bb.Tier
}

// space returns where writers of a buffer get memory from.
func (c *Client) space(key spaceKey) (*space, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, errClosed
	}
	sp := c.mu.spaces[key]
	if sp == nil {
		sp = &space{atlas: &c.atlas, staged: &c.staged, buffer: key.buffer, tier: key.tier}
		c.mu.spaces[key] = sp
	}
	return sp, nil
}

// forgetSpaces returns the leases of a buffer that is about to be destroyed: they are none for
// another buffer of its name.
func (c *Client) forgetSpaces(buffer string) {
	var of []*space
	c.mu.Lock()
	for key, sp := range c.mu.spaces {
		if key.buffer == buffer {
			of = append(of, sp)
			delete(c.mu.spaces, key)
		}
	}
	c.mu.Unlock()
	for _, sp := range of {
		sp.end()
	}
}

// opened and forget keep account of the files that Close releases.
func (c *Client) opened(f *File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return errClosed
	}
	c.mu.files[f] = struct{}{}
	return nil
}

func (c *Client) forget(f *File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.files, f)
}

// checkPath refuses what cannot be a path in a buffer, and returns it clean.
func checkPath(op, buffer, path string) (string, error) {
	if err := bb.CheckBufferName(buffer); err != nil {
		return "", bb.Wrap(op, buffer, err)
	}
	clean, err := bb.CleanPath(path)
	if err != nil {
		return "", bb.Wrap(op, path, err)
	}
	return clean, nil
}

// closedFile is the error of operations on a closed file.
func closedFile(op, path string) error {
	return &bb.Error{Kind: bb.Invalid, Op: op, Path: path, Err: fs.ErrClosed}
}
