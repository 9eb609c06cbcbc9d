// Package clustertls makes the certificates of namespace servers, and of the daemons that use them,
// from the cluster key. It must never log the key or send it.
package clustertls

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"sync"
	"time"

	"forebay/internal/bb"
)

// MinKey is the fewest bytes that a cluster key may have.
const MinKey = 16

// name is the subject of every certificate. A process with the key is a member, at any address.
const name = "forebay-namespace"

// New returns a configuration for both ends of a connection between members. The key (HKDF-SHA256,
// RFC 5869) yields the private key of an authority that each member makes for itself. It signs a
// certificate of this process's own, and demands one of the other end. So a connection is encrypted
// and both ends have proven that they have the key, which is never sent. A recorded connection
// cannot be read with a key that leaks later. Certificates hold for clocks that differ by a day.
func New(key []byte) (*tls.Config, error) {
	return Following(func() [][]byte { return [][]byte{key} })
}

// Following is New for keys that are replaced while the configuration is in use. The first is
// shown, all are accepted, in connections that are made from then on. Keys is called for each of
// these, concurrently.
func Following(keys func() [][]byte) (*tls.Config, error) {
	m := &member{keys: keys}
	if _, err := m.now(); err != nil {
		return nil, err
	}
	return &tls.Config{
		ServerName: name, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.own() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return m.own()
		},
		// Both sides are checked by the same rule, against the keys of that moment. Nothing is left
		// unchecked.
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error { return m.check(s.PeerCertificates) },
	}, nil
}

// member has the certificates that this process shows and accepts. It is made again when the keys
// change.
type member struct {
	keys func() [][]byte

	mu   sync.Mutex
	made *shown
}

type shown struct {
	keys [][]byte
	own  tls.Certificate
	pool *x509.CertPool
}

func (m *member) now() (*shown, error) {
	keys := m.keys()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made != nil && slices.EqualFunc(m.made.keys, keys, bytes.Equal) {
		return m.made, nil
	}
	made, err := show(keys)
	if err != nil {
		return nil, err
	}
	m.made = made
	return made, nil
}

func (m *member) own() (*tls.Certificate, error) {
	now, err := m.now()
	if err != nil {
		return nil, err
	}
	return &now.own, nil
}

func (m *member) check(chain []*x509.Certificate) error {
	now, err := m.now()
	if err != nil {
		return err
	}
	if len(chain) == 0 {
		return bb.E(bb.Permission, "cluster key", "", "no certificate was shown")
	}
	_, err = chain[0].Verify(x509.VerifyOptions{Roots: now.pool, DNSName: name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
}

func show(keys [][]byte) (*shown, error) {
	if len(keys) == 0 {
		return nil, bb.E(bb.Invalid, op, "", "there is none").WithRemedy("make one with bbctl cluster init")
	}
	made := &shown{keys: slices.Clone(keys), pool: x509.NewCertPool()}
	for i, key := range keys {
		ca, private, err := authority(key)
		if err != nil {
			return nil, err
		}
		made.pool.AddCert(ca)
		if i > 0 {
			continue
		}
		_, own, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, bb.Wrap(op, "", err)
		}
		leaf, err := issue(&x509.Certificate{
			SerialNumber: new(big.Int).SetBytes([]byte(rand.Text())[:16]), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().AddDate(20, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		}, ca, own.Public(), private)
		if err != nil {
			return nil, bb.Wrap(op, "", err)
		}
		made.own = tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: own, Leaf: leaf}
	}
	return made, nil
}

const op = "cluster key"

// authority follows from the key alone, so that all members have the same.
func authority(key []byte) (*x509.Certificate, ed25519.PrivateKey, error) {
	if len(key) < MinKey {
		return nil, nil, bb.E(bb.Invalid, op, "", "is too short").WithRemedy("make one with bbctl cluster init")
	}
	seed, err := hkdf.Key(sha256.New, key, nil, "forebay namespace authority 1", ed25519.SeedSize)
	if err != nil {
		return nil, nil, bb.Wrap(op, "", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	id := sha256.Sum256(private.Public().(ed25519.PublicKey))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Unix(0, 0).UTC(), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
		SubjectKeyId: id[:20], // distinguishes the authorities of several keys
	}
	ca, err := issue(template, template, private.Public(), private)
	return ca, private, bb.Wrap(op, "", err)
}

func issue(template, parent *x509.Certificate, public, private any) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
