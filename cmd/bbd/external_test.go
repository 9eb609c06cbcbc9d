package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/bbdtest"
)

const externalServer = `
server_name: one
listen: "%[1]s"
jetstream { store_dir: "%[2]s/js" }
tls { cert_file: "%[2]s/server.pem", key_file: "%[2]s/server.key", ca_file: "%[2]s/server.pem", verify_and_map: true }
authorization { users = [ {user: "CN=bbd"} ] }
`

// TestExternalServer: a daemon keeps its namespace on a nats-server of another process, which takes only
// TLS and the daemon's certificate. Files outlive the daemon's end. While the server is killed, calls
// that need the namespace fail as unavailable. When the server is back, all continues by itself.
func TestExternalServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	binary := filepath.Join(dir, "nats-server")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v: %s", err, out)
	}
	addr := bbdtest.FreePort(t, "127.0.0.1")
	selfSigned(t, dir, "server", "bbd") // of the server and of its only user
	config := filepath.Join(dir, "server.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, externalServer, addr, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	server := startExternalServer(t, binary, config, addr)
	cert := filepath.Join(dir, "server.pem")
	d := bbdtest.Start(t, "--nats-url", "tls://"+addr, "--nats-tls-ca", cert, "--nats-tls-cert", cert, "--nats-tls-key", filepath.Join(dir, "server.key"))
	c := dialDaemon(t, d)
	defer c.Close()
	b := c.Buffer("b")
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	want := func(name string) {
		t.Helper()
		if got, err := b.ReadFile(t.Context(), name); err != nil || string(got) != "content of "+name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	write := func(ctx context.Context, name string) error {
		return b.WriteFile(ctx, name, []byte("content of "+name), 0o644)
	}
	if err := write(t.Context(), "before"); err != nil {
		t.Fatal(err)
	}
	d.Stop()
	d.Start()
	want("before")

	if err := server.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = server.Wait() // that it was killed is no news
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	err := write(ctx, "without")
	cancel()
	if kind := bb.KindOf(err); kind != bb.Unavailable && kind != bb.Cancelled {
		t.Errorf("without the server: %v", err)
	}
	startExternalServer(t, binary, config, addr)
	if err := write(t.Context(), "after"); err != nil {
		t.Error(err)
	}
	want("before")
	want("after")
}

// startExternalServer returns when the server takes connections.
func startExternalServer(t *testing.T, binary, config, addr string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary, "-c", config)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("nats-server:\n%s", log.String())
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return cmd
		}
		if time.Now().After(deadline) {
			t.Fatalf("nats-server does not start: %v", err)
		}
	}
}

// selfSigned writes NAME.pem and NAME.key: a certificate that is its own authority, for servers on
// loopback and for clients.
func selfSigned(t *testing.T, dir, name, common string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: common}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
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
}
