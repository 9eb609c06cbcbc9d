package wire

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"forebay/internal/bb"
)

// A token admits a client that has no cluster key to one buffer, as one user, until it
// expires:
//
//	public: version 1 (1) ‖ uid (4) ‖ gid (4) ‖ expires (8, ns since 1970) ‖ buffer was created (8, ns) ‖ random (16) ‖ name of the buffer
//	secret: HMAC-SHA-256(HKDF-SHA-256(cluster key, "forebay token 1"), public) (32)
//
// Numbers are little endian. Every daemon that has the key can compute the secret from the
// public part, so none keeps tokens. A client sends the public part alone, and
// proves with the secret as others do with the cluster key.

// TokenClaims is the content of a token.
type TokenClaims struct {
	Buffer   string
	Created  time.Time // of the buffer; another one of its name is not meant
	UID, GID uint32
	Expires  time.Time
}

const (
	tokenVersion = 1
	tokenFixed   = 1 + 4 + 4 + 8 + 8 + 16
	tokenText    = "forebay-token-1." // beginning of its text, so that searches for secrets find it
)

// NewToken makes a token, which is its public part and then its secret.
func NewToken(key []byte, c *TokenClaims) ([]byte, error) {
	public := []byte{tokenVersion}
	public = binary.LittleEndian.AppendUint32(public, c.UID)
	public = binary.LittleEndian.AppendUint32(public, c.GID)
	public = binary.LittleEndian.AppendUint64(public, uint64(c.Expires.UnixNano()))
	public = binary.LittleEndian.AppendUint64(public, uint64(c.Created.UnixNano()))
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails (crypto/rand)
	public = append(append(public, nonce[:]...), c.Buffer...)
	secret, err := TokenSecret(key, public)
	return append(public, secret...), err
}

// TokenSecret returns the secret of a token's public part, made with a key.
func TokenSecret(key, public []byte) ([]byte, error) {
	derived, err := hkdf.Key(sha256.New, key, nil, "forebay token 1", sha256.Size)
	if err != nil {
		return nil, bb.Wrap("token", "", err)
	}
	mac := hmac.New(sha256.New, derived)
	mac.Write(public)
	return mac.Sum(nil), nil
}

// ReadTokenClaims reads the public part of a token, which need not be genuine.
func ReadTokenClaims(public []byte) (*TokenClaims, error) {
	if len(public) < tokenFixed || public[0] != tokenVersion {
		return nil, errNoToken
	}
	n := binary.LittleEndian
	c := &TokenClaims{
		Buffer: string(public[tokenFixed:]), UID: n.Uint32(public[1:]), GID: n.Uint32(public[5:]),
		Expires: time.Unix(0, int64(n.Uint64(public[9:]))), Created: time.Unix(0, int64(n.Uint64(public[17:]))),
	}
	return c, bb.CheckBufferName(c.Buffer)
}

var errNoToken = bb.E(bb.Invalid, "token", "", "it is not a token of a version that this release supports").WithRemedy("make one: bbctl token BUFFER")

// TokenText writes a token as text.
func TokenText(token []byte) string { return tokenText + base64.RawURLEncoding.EncodeToString(token) }

// ParseToken reads a token's text. White space around it does not count.
func ParseToken(text []byte) (public, secret []byte, err error) {
	encoded, ok := bytes.CutPrefix(bytes.TrimSpace(text), []byte(tokenText))
	token, err := base64.RawURLEncoding.AppendDecode(nil, encoded)
	if !ok || err != nil || len(token) < tokenFixed+sha256.Size {
		return nil, nil, errNoToken
	}
	split := len(token) - sha256.Size
	return token[:split:split], token[split:], nil
}
