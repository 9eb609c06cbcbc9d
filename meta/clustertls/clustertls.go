// Package clustertls makes of the cluster key what the namespace servers, and the
// daemons that use them, show each other. It must never log the key or send it.
package clustertls

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"forebay/internal/bb"
)

// MinKey is the fewest bytes that a cluster key may have.
const MinKey = 16

// name is whom every certificate is for: who has the key is a member, whatever its
// address.
const name = "forebay-namespace"

// New returns a configuration for both ends of a connection between members. The key
// (HKDF-SHA256, RFC 5869) yields the private key of an authority that each member
// makes for itself; it signs a certificate of this process's own, and demands one of
// whoever is at the other end. So a connection is encrypted and both ends have proven
// that they have the key, which is never sent; what is recorded cannot be read by who
// learns the key later. Certificates hold for clocks that differ by a day.
func New(key []byte) (*tls.Config, error) {
	const op = "cluster key"
	if len(key) < MinKey {
		return nil, bb.E(bb.Invalid, op, "", "is too short").WithRemedy("make one with bbctl cluster init")
	}
	seed, err := hkdf.Key(sha256.New, key, nil, "forebay namespace authority 1", ed25519.SeedSize)
	if err != nil {
		return nil, bb.Wrap(op, "", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	// All of the authority follows from the key, so that all members have the same.
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Unix(0, 0).UTC(), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	ca, err := issue(authority, authority, private.Public(), private)
	if err != nil {
		return nil, bb.Wrap(op, "", err)
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
	members := x509.NewCertPool()
	members.AddCert(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw}, PrivateKey: own, Leaf: leaf}},
		RootCAs:      members, ClientCAs: members, ClientAuth: tls.RequireAndVerifyClientCert,
		ServerName: name, MinVersion: tls.VersionTLS13,
	}, nil
}

func issue(template, parent *x509.Certificate, public, private any) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}
