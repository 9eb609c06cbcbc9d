// Package clustercert makes the certificates of a cluster, and the configurations of TLS
// with them. It must never log a private key.
//
// A certificate has its holder's role, in a URI among its names: forebay:daemon or forebay:client.
// The role and the cluster's own authority are checked. Host names are not, since daemons find each
// other at addresses from gossip.
package clustercert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"forebay/internal/bb"
	"forebay/internal/clusterkey"
)

// Role is the role of a certificate's holder. A greater one includes the lesser.
type Role int

// The roles.
const (
	None   Role = iota // no certificate, or one without a role
	Client             // it may choose the user for whom it acts
	Daemon             // it may act, besides, as a daemon of the cluster
)

var uris = map[Role]string{Client: "forebay:client", Daemon: "forebay:daemon"}

// String returns the URI of the role in a certificate.
func (r Role) String() string { return uris[r] }

// RoleOf returns the role of a verified certificate.
func RoleOf(cert *x509.Certificate) Role {
	role := None
	for _, u := range cert.URIs {
		for r, text := range uris {
			if u.String() == text {
				role = max(role, r)
			}
		}
	}
	return role
}

// PeerRole returns the role that the other end of a server's connection has shown.
func PeerRole(conn *tls.Conn) Role {
	state := conn.ConnectionState()
	if !state.HandshakeComplete || len(state.VerifiedChains) == 0 {
		return None
	}
	return RoleOf(state.VerifiedChains[0][0])
}

// Files names PEM files.
type Files struct {
	CA   string // certificates that sign the others'
	Cert string // own certificate, "": none, for a client that has another proof
	Key  string // its private key, readable by its owner only
}

// Credentials are the proofs that one process shows others, and demands of them. They may be used
// concurrently, and be read again while they are in use. Nil means no TLS.
type Credentials struct {
	files Files
	now   atomic.Pointer[material]
}

type material struct {
	own  []tls.Certificate // none or one
	pool *x509.CertPool
}

// Load reads the files.
func Load(files Files) (*Credentials, error) {
	c := &Credentials{files: files}
	return c, c.Reload()
}

// Reload reads the files again. Connections that are made from now on use the new ones. After an
// error, everything stays as it was.
func (c *Credentials) Reload() error {
	const op = "certificates"
	f := &c.files
	text, err := os.ReadFile(f.CA)
	if err != nil {
		return bb.Wrap(op, f.CA, err)
	}
	m := &material{pool: x509.NewCertPool()}
	if !m.pool.AppendCertsFromPEM(text) {
		return bb.E(bb.Invalid, op, f.CA, "it holds no certificate").WithRemedy("make one: bbctl cluster init DIR")
	}
	if f.Cert != "" || f.Key != "" {
		own, err := f.readOwn()
		if err != nil {
			return err
		}
		m.own = []tls.Certificate{own}
	}
	c.now.Store(m)
	return nil
}

func (f *Files) readOwn() (tls.Certificate, error) {
	const op = "certificates"
	if f.Cert == "" || f.Key == "" {
		return tls.Certificate{}, bb.E(bb.Invalid, op, f.Cert+f.Key, "a certificate and its key go together")
	}
	cert, err := os.ReadFile(f.Cert)
	if err != nil {
		return tls.Certificate{}, bb.Wrap(op, f.Cert, err)
	}
	key, err := clusterkey.ReadSecret(f.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return own, &bb.Error{Kind: bb.Invalid, Op: op, Path: f.Cert, Err: err, Remedy: "bbctl cluster renew DIR makes new ones"}
	}
	return own, nil
}

// Own returns the certificate that is shown, or nil if there is none.
func (c *Credentials) Own() *x509.Certificate {
	if m := c.now.Load(); len(m.own) > 0 {
		return m.own[0].Leaf
	}
	return nil
}

// Server returns the configuration of a daemon's listener. A dialler need not present a
// certificate, as there are other proofs. One that is presented must be of the authority. Sessions
// are not resumed. Every connection is checked.
func (c *Credentials) Server() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m := c.now.Load()
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: m.own, ClientCAs: m.pool,
			ClientAuth: tls.VerifyClientCertIfGiven, SessionTicketsDisabled: true,
		}, nil
	}}
}

// Client returns the configuration for connections to a daemon. The listener must present a daemon's
// certificate.
func (c *Credentials) Client() *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// VerifyConnection does all that this switches off but to compare host names.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			return c.now.Load().checkDaemon(s.PeerCertificates)
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if m := c.now.Load(); len(m.own) > 0 {
				return &m.own[0], nil
			}
			return new(tls.Certificate), nil
		},
	}
}

// checkDaemon does x509's checks of a server, and checks the role.
func (m *material) checkDaemon(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("it shows no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: m.pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return err
	}
	if RoleOf(chain[0]) != Daemon {
		return fmt.Errorf("its certificate is not a daemon's: it lacks the name %v", Daemon)
	}
	return nil
}

// Secure makes a connection that was dialled to a daemon one with TLS. Without credentials it stays
// as it is. The errors are of kind permission, or those of the connection. The caller keeps the
// connection, and closes it after an error.
func (c *Credentials) Secure(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if c == nil {
		return conn, nil
	}
	secure := tls.Client(conn, c.Client())
	err := secure.HandshakeContext(ctx)
	if err == nil {
		return secure, nil
	}
	var plain tls.RecordHeaderError
	address := conn.RemoteAddr().String()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &plain):
		return nil, bb.E(bb.Permission, "dial", address, "the daemon does not use TLS").
			WithRemedy("set tls.ca, tls.cert and tls.key for the daemon, or leave out the certificates here")
	case isOfConnection(err):
		return nil, err
	}
	return nil, Refused(address, err)
}

// isOfConnection reports whether a handshake ended for a reason that may pass.
func isOfConnection(err error) bool {
	var alert tls.AlertError
	var e net.Error
	return !errors.As(err, &alert) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.As(err, &e) || slices.ContainsFunc([]error{syscall.ECONNRESET, syscall.EPIPE}, func(e error) bool { return errors.Is(err, e) }))
}

// Refused is the error of a connection that failed for its certificates.
func Refused(address string, err error) error {
	return &bb.Error{
		Kind: bb.Permission, Op: "dial", Path: address, Err: fmt.Errorf("TLS: %w", err),
		Remedy: "give both sides certificates of one authority that have not expired: bbctl cluster init, bbctl cluster renew",
	}
}
