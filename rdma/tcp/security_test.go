package tcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"testing"
	"time"

	"forebay/rdma"
	"forebay/rdma/rdmatest"
)

// mutualTLS is one certificate for both sides, which accept nothing else.
func mutualTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"fabric"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	must(t, err)
	parsed, err := x509.ParseCertificate(der)
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "fabric",
	}
}

// password is a toy, to show that the hooks can exchange messages. Each side sends one byte and
// checks one.
func password(mine byte, opts Options) Options {
	opts.Authenticate = func(_ context.Context, s net.Conn) error {
		if _, err := s.Write([]byte{mine}); err != nil {
			return err
		}
		var theirs [1]byte
		if _, err := io.ReadFull(s, theirs[:]); err != nil {
			return err
		}
		if theirs[0] != mine {
			return rdma.ErrAccess
		}
		return nil
	}
	opts.Admit = func(ctx context.Context, s net.Conn) (*Admission, error) {
		return nil, opts.Authenticate(ctx, s)
	}
	return opts
}

func TestConformanceWithTLS(t *testing.T) {
	rdmatest.SuiteInProcess(t, suiteProvider(password(1, Options{TLS: mutualTLS(t)})))
}

func TestStrangersAreRefused(t *testing.T) {
	config := mutualTLS(t)
	far := benchFabricOf(t, password(1, Options{TLS: config}))
	l, err := far.Listen(t.Context(), "127.0.0.1:0")
	must(t, err)
	for name, opts := range map[string]Options{
		"wrong password":    password(2, Options{TLS: config}),
		"other certificate": password(1, Options{TLS: mutualTLS(t)}),
		"no TLS":            password(1, Options{HandshakeTimeout: 200 * time.Millisecond}),
	} {
		near := benchFabricOf(t, opts)
		if c, err := near.Dial(t.Context(), l.Addr()); err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a stranger was accepted: %v", err)
	}
}
