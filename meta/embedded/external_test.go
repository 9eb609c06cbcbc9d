package embedded

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"forebay/internal/bb"
	"forebay/meta"
)

// startExternal starts a server that equals nats-server with these options, listening on loopback.
func startExternal(t *testing.T, o *server.Options) string {
	t.Helper()
	o.Host, o.NoSigs, o.JetStream = "127.0.0.1", true, true
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
	}
	if o.StoreDir == "" {
		o.StoreDir = t.TempDir()
	}
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.SetLoggerV2(&logger{log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))}, false, false, false)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server did not start")
	}
	return s.Addr().String()
}

func TestTLSAndCredentials(t *testing.T) {
	dir := t.TempDir()
	ca := newCA(t, dir)
	operator, account, user := newKey(t, 'O'), newKey(t, 'A'), newKey(t, 'U')
	claims := func(kind string, more map[string]any) map[string]any {
		more["type"], more["version"] = kind, 2
		return more
	}
	resolver := &server.MemAccResolver{}
	limits := map[string]any{
		"subs": -1, "conn": -1, "leaf": -1, "imports": -1, "exports": -1, "data": -1, "payload": -1, "wildcards": true,
		"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
	}
	system := newKey(t, 'A')
	for _, a := range []*key{account, system} {
		body := claims("account", map[string]any{})
		if a == account {
			body["limits"] = limits
		}
		if err := resolver.Store(a.public, operator.token(t, a.public, body)); err != nil {
			t.Fatal(err)
		}
	}
	creds := filepath.Join(dir, "user.creds")
	write(t, creds, fmt.Appendf(nil, "-----BEGIN NATS USER JWT-----\n%s\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n%s\n------END USER NKEY SEED------\n",
		account.token(t, user.public, claims("user", map[string]any{"subs": -1, "data": -1, "payload": -1})), user.seed))
	addr := startExternal(t, &server.Options{
		TrustedKeys: []string{operator.public}, AccountResolver: resolver, SystemAccount: system.public,
		TLSConfig: ca.server(t), TLSVerify: true, TLSTimeout: 5,
	})
	good := meta.Options{
		URLs: []string{"tls://" + addr}, Credentials: creds, CA: filepath.Join(dir, "ca.pem"),
		Cert: filepath.Join(dir, "client.pem"), Key: filepath.Join(dir, "client.key"),
	}
	m := use(t, good, "buf")
	if st := m.Status(); !st.Connected {
		t.Errorf("%+v", st)
	}

	other := t.TempDir()
	newCA(t, other)
	for what, change := range map[string]func(*meta.Options){
		"no credentials": func(o *meta.Options) { o.Credentials = "" },
		"no certificate": func(o *meta.Options) { o.Cert, o.Key = "", "" },
		"another CA":     func(o *meta.Options) { o.CA = filepath.Join(other, "ca.pem") },
		"missing creds":  func(o *meta.Options) { o.Credentials = filepath.Join(dir, "none") },
		"another's client": func(o *meta.Options) {
			o.Cert, o.Key = filepath.Join(other, "client.pem"), filepath.Join(other, "client.key")
		},
	} {
		o := good
		change(&o)
		ctx, cancel := context.WithTimeout(testContext(t), time.Second)
		m, err := meta.Connect(ctx, o)
		cancel()
		if err == nil {
			m.Close()
			t.Errorf("%s: connected", what)
		} else if k := bb.KindOf(err); k != bb.Permission && k != bb.Invalid && (k != bb.Unavailable || !strings.Contains(err.Error(), "tls")) {
			// Under TLS 1.3 a client with a refused certificate gets a closed connection.
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCluster runs the same on three servers with three copies of everything.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("three servers take seconds under the race detector; one is tested")
	}
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var urls []string
	for i, port := range ports {
		urls = append(urls, "nats://"+startExternal(t, &server.Options{
			ServerName: fmt.Sprint("s", i), Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}, Routes: routes,
		}))
	}
	use(t, meta.Options{URLs: urls, Replicas: 3}, "buf")
	use(t, meta.Options{URLs: urls, Replicas: 3, SoleWriter: true}, "sole")
}

// key is an ed25519 key in the encoding of NATS: base32 of prefix, key and CRC-16.
type key struct {
	private      ed25519.PrivateKey
	public, seed string
}

func newKey(t *testing.T, role byte) *key {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	prefix, seed := (role-'A')<<3, byte('S'-'A')<<3
	return &key{priv, encode(append([]byte{prefix}, pub...)), encode(append([]byte{seed | prefix>>5, prefix & 31 << 3}, priv.Seed()...))}
}

func encode(b []byte) string {
	crc := uint16(0) // CRC-16/XMODEM
	for _, c := range b {
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(binary.LittleEndian.AppendUint16(b, crc))
}

// token is a JWT about a subject, signed with the key.
func (k *key) token(t *testing.T, subject string, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	id := sha512.Sum512_256([]byte(subject))
	body := map[string]any{"jti": base32.StdEncoding.EncodeToString(id[:]), "iat": time.Now().Unix(), "iss": k.public, "name": "test", "sub": subject, "nats": claims}
	signed := part(map[string]string{"typ": "JWT", "alg": "ed25519-nkey"}) + "." + part(body)
	return signed + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(k.private, []byte(signed)))
}

// authority is a certificate authority whose files lie in a directory: ca.pem,
// client.pem, client.key.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newCA(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{key: ecKey(t), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	write(t, filepath.Join(dir, "ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	der, private := a.issue(t)
	write(t, filepath.Join(dir, "client.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "client.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}))
	return a
}

func (a *authority) issue(t *testing.T) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	private := ecKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der, private
}

func (a *authority) server(t *testing.T) *tls.Config {
	t.Helper()
	der, private := a.issue(t)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: a.pool, MinVersion: tls.VersionTLS12,
	}
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
