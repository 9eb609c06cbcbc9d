package bbd_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/clustercert"
	"forebay/internal/wire"
)

// authority is one for a test.
type authority struct {
	t      *testing.T
	signer *clustercert.Authority
	cert   []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	signer, pair, err := clustercert.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, signer, pair.Cert}
}

// files issues a certificate.
func (a *authority) files(role clustercert.Role) clustercert.Files {
	a.t.Helper()
	pair, err := a.signer.Issue(role, nil, time.Now(), time.Hour)
	dir := a.t.TempDir()
	f := clustercert.Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "own.pem"), Key: filepath.Join(dir, "own.key")}
	for name, text := range map[string][]byte{f.CA: a.cert, f.Cert: pair.Cert, f.Key: pair.Key} {
		if err == nil {
			err = os.WriteFile(name, text, 0o600)
		}
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

func (a *authority) credentials(role clustercert.Role) *clustercert.Credentials {
	a.t.Helper()
	c, err := clustercert.Load(a.files(role))
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// greet opens a session with hello, and returns how that ended.
func greet(t *testing.T, address string, secure *clustercert.Credentials, hello *wire.Hello, keys ...[]byte) error {
	t.Helper()
	raw := dialTCP(t, address)
	conn, err := secure.Secure(t.Context(), raw)
	if err != nil {
		return err
	}
	_, err = wire.Handshake(conn, wire.NewReader(conn), hello, keys...)
	return err
}

// TestTLS: where certificates are configured they are needed, and decide about the users that a
// client may name.
func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	daemon, user := a.credentials(clustercert.Daemon), a.credentials(clustercert.Client)
	bare, err := clustercert.Load(clustercert.Files{CA: a.files(clustercert.Client).CA})
	if err != nil {
		t.Fatal(err)
	}
	plain, certified, both := freeAddress(t), freeAddress(t), freeAddress(t)
	startNode(t, func(c *bbd.Config) { c.TCP, c.Fabric, c.Keys = plain, "127.0.0.1:0", wire.NewKeyring(fabricKey) })
	startNode(t, func(c *bbd.Config) { c.TCP, c.Fabric, c.TLS = certified, "127.0.0.1:0", daemon })
	startNode(t, func(c *bbd.Config) {
		c.TCP, c.Fabric, c.TLS, c.Keys = both, "127.0.0.1:0", daemon, wire.NewKeyring(fabricKey)
	})
	other := []byte("ffffffffffffffffffffffffffffffff")
	for name, c := range map[string]struct {
		address string
		secure  *clustercert.Credentials
		node    string
		key     []byte
		says    string // "": it is let in
	}{
		"key":                                    {plain, nil, "", fabricKey, ""},
		"key of a daemon":                        {plain, nil, "n2", fabricKey, ""},
		"another key":                            {plain, nil, "", other, "did not prove the shared key"},
		"TLS where there is none":                {plain, user, "", fabricKey, "does not use TLS"},
		"no TLS":                                 {certified, nil, "", nil, "accepts TLS alone"},
		"no TLS, with key":                       {both, nil, "", fabricKey, "accepts TLS alone"},
		"client's certificate":                   {certified, user, "", nil, ""},
		"daemon's certificate":                   {certified, daemon, "", nil, ""},
		"daemon's certificate of a daemon":       {certified, daemon, "n2", nil, ""},
		"client's certificate of a daemon":       {certified, user, "n2", nil, "has not proven to be a daemon"},
		"no certificate":                         {certified, bare, "", nil, "shows no certificate"},
		"no certificate, with a key":             {certified, bare, "", fabricKey, "shows no certificate"},
		"either: certificate":                    {both, user, "", nil, ""},
		"either: key":                            {both, bare, "", fabricKey, ""},
		"either: key of a daemon":                {both, bare, "n2", fabricKey, ""},
		"either: certificate of a daemon's":      {both, user, "n2", nil, "sent no nonce"},
		"either: certificate and key, of daemon": {both, user, "n2", fabricKey, ""},
		"either: none":                           {both, bare, "", nil, "sent no nonce"},
		"either: another key":                    {both, bare, "", other, "did not prove the shared key"},
	} {
		t.Run(name, func(t *testing.T) {
			err := greet(t, c.address, c.secure, &wire.Hello{Client: "test", Uid: 1, Gid: 1, Node: c.node, System: c.node != ""}, c.key)
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says != "" && (bb.KindOf(err) != bb.Permission || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, not %q", err, c.says)
			}
		})
	}
}

// TestTLSClient: a client's bytes go through the fabric with TLS, and files of another
// user stay closed to it.
func TestTLSClient(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	address := freeAddress(t)
	n := startNode(t, func(c *bbd.Config) {
		c.TCP, c.Fabric, c.TLS = address, "127.0.0.1:0", a.credentials(clustercert.Daemon)
	})
	n.buffer(n.dial(), admin.BufferSpec{Name: "open", Mode: 0o777})
	f := a.files(clustercert.Client)
	c, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + address, CA: f.CA, Cert: f.Cert, Key: f.Key})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	content := random(9<<20 + 5)
	write(t, c.Buffer("open"), "f", content)
	wantFile(t, c.Buffer("open"), "f", content)
	wantFile(t, n.dial().Buffer("open"), "f", content)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = client.Dial(ctx, client.Options{Address: "tcp://" + address})
	if client.KindOf(err) != client.ErrPermission || !strings.Contains(err.Error(), "--tls-ca") {
		t.Errorf("without TLS: %v", err)
	}
}

// TestTLSCluster: daemons show each other certificates, on sessions and on the fabric.
func TestTLSCluster(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.Insecure, c.TLS = false, a.credentials(clustercert.Daemon) })
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "shared"})
	there := nodes[1].dial().Buffer("shared")
	content := random(5 << 20)
	write(t, b, "f", content)
	wantFile(t, there, "f", content)
	write(t, there, "g", content)
	wantFile(t, b, "g", content)
}

// TestCertifiedRootUsesNoFiles: a client's certificate allows its holder to name users, which gives
// no user root's rights on a file system.
func TestCertifiedRootUsesNoFiles(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	address := freeAddress(t)
	n := startNode(t, func(c *bbd.Config) { c.TCP, c.TLS = address, a.credentials(clustercert.Daemon) })
	f := a.files(clustercert.Client)
	c, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + address, CA: f.CA, Cert: f.Cert, Key: f.Key, User: &client.User{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("root's"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "there", Backing: "file://" + dir}); client.KindOf(err) != client.ErrPermission {
		t.Errorf("a buffer on root's directory: %v", err)
	}
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "scratch"}); err != nil {
		t.Fatal(err)
	}
	stage := admin.StageRequest{URL: "file://" + secret, Buffer: "scratch", Path: "f"}
	if _, err := admin.StageIn(t.Context(), c, stage, nil); client.KindOf(err) != client.ErrPermission {
		t.Errorf("a stage-in of root's file: %v", err)
	}
	if _, err := admin.StageIn(t.Context(), n.dial(), stage, nil); err != nil {
		t.Errorf("the same by root, on the node: %v", err)
	}
}
