package clustercert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"time"

	"forebay/internal/bb"
)

const (
	// AuthorityLife is how long an authority signs.
	AuthorityLife = 10 * 365 * 24 * time.Hour
	// LeafLife is the default life of the certificates of daemons and clients.
	LeafLife = 365 * 24 * time.Hour

	// skew is how far the clocks of nodes may be apart when a certificate is new.
	skew = time.Hour
)

// Pair is a certificate and its private key, in PEM.
type Pair struct{ Cert, Key []byte }

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes an authority. It signs the certificates of daemons and clients
// alone (path length 0), with ECDSA on P-256 (FIPS 186-5), which all TLS libraries support.
func NewAuthority(now time.Time) (*Authority, Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "forebay authority"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-skew), NotAfter: now.Add(AuthorityLife),
	}
	a := &Authority{cert: template, key: key}
	pair, err := a.sign(template, key)
	if err != nil {
		return nil, Pair{}, err
	}
	a, err = ReadAuthority(pair)
	return a, pair, err
}

// ReadAuthority reads an authority of NewAuthority.
func ReadAuthority(p Pair) (*Authority, error) {
	cert, err := parse(p.Cert)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(p.Key)
	if block == nil {
		return nil, bb.E(bb.Invalid, "certificates", "", "the authority's key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, bb.Wrap("certificates", "", err)
	}
	signer, ok := key.(crypto.Signer)
	public, ok2 := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !ok2 || !cert.IsCA || !public.Equal(signer.Public()) {
		return nil, bb.E(bb.Invalid, "certificates", "", "the authority's certificate and key do not belong together")
	}
	return &Authority{cert: cert, key: signer}, nil
}

// Expires is when the authority's own certificate ends.
func (a *Authority) Expires() time.Time { return a.cert.NotAfter }

// Issue makes a certificate with a key of its own, that is valid for life or as long as
// the authority. Hosts are names or addresses. Daemons may be either end of a
// connection, clients only the dialling one.
func (a *Authority) Issue(role Role, hosts []string, now time.Time, life time.Duration) (Pair, error) {
	until := now.Add(life)
	if until.After(a.cert.NotAfter) {
		until = a.cert.NotAfter
	}
	if life <= 0 || !until.After(now) {
		return Pair{}, bb.E(bb.Invalid, "certificates", life.String(), "would have expired already").
			WithRemedy("give a longer --lifetime; if the authority has expired: bbctl cluster init --force")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: role.String()}, URIs: []*url.URL{{Scheme: "forebay", Opaque: role.String()[len("forebay:"):]}},
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: now.Add(-skew), NotAfter: until,
	}
	if role == Daemon {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	return a.sign(template, key)
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (Pair, error) {
	template.SerialNumber = new(big.Int).SetBytes([]byte(rand.Text())[:16]) // 80 random bits (RFC 5280 4.1.2.2)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, bb.Wrap("certificates", "", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, bb.Wrap("certificates", "", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}, nil
}

// Hosts returns the names and addresses in a certificate.
func Hosts(cert []byte) ([]string, error) {
	c, err := parse(cert)
	if err != nil {
		return nil, err
	}
	hosts := c.DNSNames
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts, nil
}

func parse(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, bb.E(bb.Invalid, "certificates", "", "it is not a certificate in PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	return c, bb.Wrap("certificates", "", err)
}
