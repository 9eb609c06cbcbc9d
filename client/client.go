package client

import (
	"context"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"forebay/client/internal/lease"
	"forebay/client/internal/region"
	"forebay/client/internal/remote"
	"forebay/client/internal/session"
	"forebay/client/internal/writer"
	"forebay/internal/bb"
)

// Options are the daemon's address and the ways of using it. The zero value is the daemon of this node.
type Options struct {
	Address  string        // unix:///path or tcp://host:port, or several with commas, tried in order; "": $FOREBAY_SOCKET, else the well-known sockets
	Name     string        // of the program, for the daemon's status and logs; "": its file name
	Logger   *slog.Logger  // for reconnections; nil: none
	KeyFile  string        // file with the cluster key, readable by its owner alone, for TCP; "": $FOREBAY_KEY_FILE
	RetryFor time.Duration // how long an operation tries to connect again; 0: a minute, negative: once

	// TokenFile holds a token (see Token), readable by its owner alone, which is used over
	// TCP instead of any other proof. "": $FOREBAY_TOKEN_FILE.
	TokenFile string

	// CA, Cert and Key are PEM files for TLS, which sessions over TCP use if CA is given. They are
	// the certificates of the authority that signs the daemons' and, if the client has no other
	// proof, its own with its key. "": $FOREBAY_TLS_CA, $FOREBAY_TLS_CERT, $FOREBAY_TLS_KEY.
	CA, Cert, Key string

	// User is the user for whom the client acts, over TCP: a holder of the cluster key or of a client's
	// certificate may act for any user. nil: this process's user. On a unix socket the
	// kernel reports the client's user, so there it is refused.
	User *User

	// VerifyAll checks every mapped extent that a read touches against its checksum, also
	// for random reads of small parts, which costs one pass over the extent (at most 1 MiB,
	// the first time).
	VerifyAll bool
}

// User is a user of the daemons' machines.
type User struct{ UID, GID uint32 }

// Client is a connection to one daemon. It may be used concurrently.
//
// Every call that may wait takes a context. When that ends, the call returns an error of kind
// ErrCancelled. Its kind is ErrUnavailable if its deadline came while the daemon waited for another
// daemon or the namespace's server. Then the error names that.
//
// When a connection breaks, operations continue in a new one. A change that may have reached the
// daemon is not sent again, and its error matches ErrUnknownOutcome.
//
// On the daemon's node, bytes are copied once, into its memory. Over TCP they wait in this
// process's, while they are transferred and until they are committed. These are up to 32 MiB for
// each file, after which it commits of itself, and leases of up to 8 MiB that files share. A reader
// keeps up to 4 MiB of partly read extents, and fetches as much ahead.
type Client struct {
	o       Options
	conn    *session.Connection
	regions region.Map
	staged  *remote.Staging
	pools   *lease.Pools

	mu struct {
		sync.Mutex
		closed bool
		files  map[*File]struct{}
	}
}

// Dial connects to a daemon. Without one it fails with ErrUnavailable, naming the sockets that it
// tried. It does not wait for a daemon to come.
func Dial(ctx context.Context, o Options) (*Client, error) {
	c := &Client{o: o, staged: remote.NewStaging(writer.MaxStaged + 2*lease.MaxRemote)}
	c.pools = lease.NewPools(&c.regions, c.staged)
	c.mu.files = make(map[*File]struct{})
	conn, err := session.Connect(ctx, &session.Options{
		Address: o.Address, Name: o.Name, Logger: o.Logger, KeyFile: o.KeyFile, RetryFor: o.RetryFor,
		TokenFile: o.TokenFile, CA: o.CA, Cert: o.Cert, Key: o.Key, User: (*session.User)(o.User),
	}, c.regions.Sweep)
	if err != nil {
		return nil, err
	}
	c.conn = conn
	return c, nil
}

// Close ends the session. Blocked operations fail. Files that were not closed lose their
// uncommitted bytes. Mappings stay readable until they are released. Close may be called twice.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return nil
	}
	c.mu.closed = true
	files := c.mu.files
	c.mu.files = nil
	c.mu.Unlock()
	c.conn.Close()
	for f := range files {
		f.release()
	}
	c.pools.Close()
	c.regions.Close()
	return nil
}

// Server describes the daemon that the client is connected to, or last was.
func (c *Client) Server() ServerInfo {
	w := c.conn.Now().Welcome
	return ServerInfo{
		Address: c.conn.Address(), Node: bb.NodeID(w.Node), Version: w.Server, Protocol: w.Version, Instance: w.Instance, Epoch: w.Epoch,
		UID: w.Uid, GID: w.Gid, Mapped: w.MapRegions,
	}
}

// Buffer returns a handle of a buffer, which need not exist. It does no I/O.
func (c *Client) Buffer(name string) *Buffer { return &Buffer{c: c, name: name} }

// Connection returns the connection for package admin.
func (c *Client) Connection() *session.Connection { return c.conn }

// opened and forget keep account of the files that Close releases.
func (c *Client) opened(f *File) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return session.ErrClosed
	}
	c.mu.files[f] = struct{}{}
	return nil
}

func (c *Client) forget(f *File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.files, f)
}

// closedFile is the error of operations on a closed file.
func closedFile(op, path string) error {
	return &bb.Error{Kind: bb.Invalid, Op: op, Path: path, Err: fs.ErrClosed}
}
