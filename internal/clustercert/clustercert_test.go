package clustercert

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/internal/bb"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write puts an authority's certificate and a pair into a directory.
func write(t *testing.T, ca []byte, p Pair) Files {
	t.Helper()
	dir := t.TempDir()
	f := Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "own.pem"), Key: filepath.Join(dir, "own.key")}
	check(t, os.WriteFile(f.CA, ca, 0o644))
	check(t, os.WriteFile(f.Cert, p.Cert, 0o644))
	check(t, os.WriteFile(f.Key, p.Key, 0o600))
	return f
}

func TestIssue(t *testing.T) {
	now := time.Now()
	a, pair, err := NewAuthority(now)
	check(t, err)
	ca, err := parse(pair.Cert)
	check(t, err)
	if !ca.IsCA || !ca.MaxPathLenZero || ca.KeyUsage != x509.KeyUsageCertSign || ca.NotAfter.Sub(now).Round(time.Hour) != AuthorityLife {
		t.Errorf("the authority is %+v", ca)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	for _, c := range []struct {
		role   Role
		server bool
	}{{Daemon, true}, {Client, false}} {
		p, err := a.Issue(c.role, []string{"node1", "10.0.0.3"}, now, LeafLife)
		check(t, err)
		leaf, err := parse(p.Cert)
		check(t, err)
		if leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature || RoleOf(leaf) != c.role || leaf.NotAfter.Sub(now).Round(time.Hour) != LeafLife ||
			leaf.VerifyHostname("node1") != nil || leaf.VerifyHostname("10.0.0.3") != nil {
			t.Errorf("the certificate of %v is %+v", c.role, leaf)
		}
		verify := func(use x509.ExtKeyUsage, at time.Time) error {
			_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{use}, CurrentTime: at})
			return err
		}
		if err := verify(x509.ExtKeyUsageClientAuth, now); err != nil {
			t.Errorf("%v: %v", c.role, err)
		}
		if err := verify(x509.ExtKeyUsageServerAuth, now); (err == nil) != c.server {
			t.Errorf("%v as a server: %v", c.role, err)
		}
		if verify(x509.ExtKeyUsageClientAuth, now.Add(LeafLife+time.Minute)) == nil {
			t.Errorf("%v holds for ever", c.role)
		}
	}
	if _, err := a.Issue(Client, nil, now, 0); bb.KindOf(err) != bb.Invalid {
		t.Errorf("a certificate for no time: %v", err)
	}
	p, err := a.Issue(Client, nil, now, 2*AuthorityLife)
	check(t, err)
	if leaf, err := parse(p.Cert); err != nil || leaf.NotAfter.After(a.Expires()) {
		t.Errorf("it holds longer than its authority: %v, %v", leaf, err)
	}
	if _, err := ReadAuthority(p); err == nil {
		t.Error("a client's certificate became an authority")
	}
}

// TestConnections: which pairs can connect.
func TestConnections(t *testing.T) {
	now := time.Now()
	a, authority, err := NewAuthority(now)
	check(t, err)
	b, other, err := NewAuthority(now)
	check(t, err)
	load := func(signer *Authority, trusts []byte, role Role, at time.Time) *Credentials {
		p, err := signer.Issue(role, nil, at, LeafLife)
		check(t, err)
		c, err := Load(write(t, trusts, p))
		check(t, err)
		return c
	}
	daemon, client := load(a, authority.Cert, Daemon, now), load(a, authority.Cert, Client, now)
	bare, err := Load(Files{CA: daemon.files.CA})
	check(t, err)
	for name, c := range map[string]struct {
		near, far *Credentials
		role      Role
		fails     bool
	}{
		"daemons":                    {daemon, daemon, Daemon, false},
		"a client":                   {client, daemon, Client, false},
		"without a certificate":      {bare, daemon, None, false},
		"a client as a daemon":       {client, client, None, true},
		"a client of another":        {load(b, authority.Cert, Client, now), daemon, None, true},
		"a daemon of another":        {load(a, other.Cert, Client, now), daemon, None, true},
		"an expired client":          {load(a, authority.Cert, Client, now.Add(-2*LeafLife)), daemon, None, true},
		"a daemon that expired":      {client, load(a, authority.Cert, Daemon, now.Add(-2*LeafLife)), None, true},
		"a client not yet of age":    {load(a, authority.Cert, Client, now.Add(48*time.Hour)), daemon, None, true},
		"a daemon that trusts other": {client, load(a, other.Cert, Daemon, now), None, true},
	} {
		t.Run(name, func(t *testing.T) {
			role, err := connect(t, c.near, c.far)
			if (err != nil) != c.fails || !c.fails && role != c.role {
				t.Errorf("role %q, %v", role, err)
			}
		})
	}
}

// connect makes two sides exchange a byte each, and returns the role that far determined.
func connect(t *testing.T, near, far *Credentials) (Role, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	roles := make(chan Role, 1)
	go func() {
		role := None
		defer func() { roles <- role }()
		raw, err := l.Accept()
		if err != nil {
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, far.Server())
		if conn.HandshakeContext(t.Context()) != nil {
			return
		}
		role = PeerRole(conn)
		conn.Write([]byte{1})
		conn.Read(make([]byte, 1))
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	check(t, err)
	defer raw.Close()
	conn, err := near.Secure(t.Context(), raw)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	} else if bb.KindOf(err) != bb.Permission {
		t.Errorf("the error is %v", err)
	}
	raw.Close()
	return <-roles, err
}

func TestReload(t *testing.T) {
	now := time.Now()
	a, authority, err := NewAuthority(now)
	check(t, err)
	first, err := a.Issue(Daemon, nil, now, LeafLife)
	check(t, err)
	c, err := Load(write(t, authority.Cert, first))
	check(t, err)
	second, err := a.Issue(Daemon, []string{"new"}, now, LeafLife)
	check(t, err)
	check(t, os.WriteFile(c.files.Cert, second.Cert, 0o644))
	if err := c.Reload(); err == nil || len(c.Own().DNSNames) != 0 {
		t.Errorf("half of a new pair was read: %v", err)
	}
	check(t, os.WriteFile(c.files.Key, second.Key, 0o600))
	check(t, c.Reload())
	if len(c.Own().DNSNames) != 1 {
		t.Error("the old certificate stayed")
	}
	check(t, os.Chmod(c.files.Key, 0o640))
	if err := c.Reload(); bb.KindOf(err) != bb.Permission {
		t.Errorf("a key that others may read: %v", err)
	}
}
