package conn

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

func TestRefusesCertificate(t *testing.T) {
	alert := func(text string) error { return &net.OpError{Op: "remote error", Err: errors.New(text)} }
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{fmt.Errorf("%w: connection closed by remote after TLS handshake: %w", nats.ErrTLS, io.EOF), true},
		{fmt.Errorf("%w: %w", nats.ErrTLS, io.EOF), false}, // during it, as the server may have ended
		{errors.New("remote error: tls: bad certificate"), false},
		{alert("tls: handshake failure"), false},
		{alert("tls: bad certificate"), true},
		{alert("tls: certificate required"), true},
		{fmt.Errorf("connect: %w", alert("tls: access denied")), true},
	} {
		if got := refusesCertificate(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

// TestRefusedCertificate: a server without the authority of the daemon's certificate is not tried for
// ever.
func TestRefusedCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := issue(t, dir, "server")
	issue(t, dir, "client")
	known := x509.NewCertPool()
	known.AddCert(server.Leaf) // and not the client's
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { listener.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, "INFO {\"server_id\":\"s\",\"version\":\"2.12.0\",\"tls_required\":true,\"max_payload\":1048576}\r\n")
			secure := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known})
			if err := secure.Handshake(); err == nil {
				t.Error("the certificate was taken")
			}
			conn.Close()
		}
	})
	for _, file := range []string{"client", ""} {
		o := Options{
			URLs: []string{"tls://" + listener.Addr().String()}, CA: filepath.Join(dir, "server.pem"), Logger: slog.New(slog.DiscardHandler), Health: &Health{},
		}
		if file != "" {
			o.Cert, o.Key = filepath.Join(dir, file+".pem"), filepath.Join(dir, file+".key")
		}
		_, err = Dial(t.Context(), o)
		var e *bb.Error
		if !errors.Is(err, bb.Permission) || !errors.As(err, &e) || !strings.Contains(e.Remedy, "nats.tls.cert") {
			t.Errorf("certificate %q: %v", file, err)
		}
	}
}

// issue writes NAME.pem and NAME.key, a certificate that is its own authority.
func issue(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: cert}, name + ".key": {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}
