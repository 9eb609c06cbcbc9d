package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"log/slog"
	"net"
	"sync/atomic"
)

// NonceSize is the length of the nonces of a handshake, in bytes.
const NonceSize = 32

// ConnectionSize is the length of Hello.connection, in bytes.
const ConnectionSize = 16

// maxProofs bounds a daemon's proofs, one for each of its keys.
const maxProofs = 16

// Keyring holds the shared keys of a cluster. The proving side uses the first key that the other
// side has too. The checking side accepts all. They may be replaced while they are in use, and
// sessions that have begun continue. The nil Keyring holds none. It prints as no key.
type Keyring struct{ keys atomic.Pointer[[][]byte] }

// NewKeyring returns a ring of keys, which are not written to from then on.
func NewKeyring(keys ...[]byte) *Keyring {
	k := new(Keyring)
	k.Use(keys)
	return k
}

// Use replaces the keys.
func (k *Keyring) Use(keys [][]byte) { k.keys.Store(&keys) }

// Keys returns the keys, which are not to be written to.
func (k *Keyring) Keys() [][]byte {
	if k == nil {
		return nil
	}
	return *k.keys.Load()
}

// String keeps keys out of printed text, as do GoString and LogValue.
func (k *Keyring) String() string { return "keys" }

// GoString is String.
func (k *Keyring) GoString() string { return "keys" }

// LogValue is String.
func (k *Keyring) LogValue() slog.Value { return slog.StringValue("keys") }

// Exchange is the content of the proofs of one handshake besides a key: both nonces, and the
// TLS connection that they were exchanged on, if it is one (RFC 9266), so that no host
// in between can pass a proof on to another connection.
type Exchange struct {
	client, daemon, channel []byte
}

// NewExchange describes the handshake on a connection. bb errors do not occur. An error of TLS
// means that the connection has ended.
func NewExchange(conn net.Conn, clientNonce, daemonNonce []byte) (Exchange, error) {
	x := Exchange{client: clientNonce, daemon: daemonNonce}
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return x, nil
	}
	state := secure.ConnectionState()
	var err error
	x.channel, err = state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, sha256.Size)
	return x, err
}

// DaemonProof proves to a client the daemon's possession of each of some keys.
func (x Exchange) DaemonProof(keys ...[]byte) []byte {
	var all []byte
	for _, key := range keys {
		all = append(all, x.proof(key, "daemon", nil)...)
	}
	return all
}

// Common returns the first of the client's keys whose possession the daemon has proven, or nil if
// there is none.
func (x Exchange) Common(daemonProof []byte, keys [][]byte) []byte {
	if len(daemonProof) > maxProofs*sha256.Size {
		return nil
	}
	for _, key := range keys {
		mine := x.proof(key, "daemon", nil)
		for theirs := daemonProof; len(theirs) >= sha256.Size; theirs = theirs[sha256.Size:] {
			if len(key) > 0 && hmac.Equal(mine, theirs[:sha256.Size]) {
				return key
			}
		}
	}
	return nil
}

// ClientProof proves to a daemon the client's possession of a key, and binds everything that
// decides its rights: the user for whom it acts, whether it is a daemon itself,
// its token, and the protocol versions.
func (x Exchange) ClientProof(key []byte, hello *Hello) []byte {
	return x.proof(key, "client", hello)
}

// CheckClient reports whether a client has proven possession of one of some keys.
func (x Exchange) CheckClient(theirs []byte, keys [][]byte, hello *Hello) bool {
	for _, key := range keys {
		if len(key) > 0 && hmac.Equal(theirs, x.ClientProof(key, hello)) {
			return true
		}
	}
	return false
}

// proof is HMAC-SHA-256 (RFC 2104). role keeps one side's proof from being sent back to it. Each
// field is preceded by its length, in 4 bytes.
func (x Exchange) proof(key []byte, role string, hello *Hello) []byte {
	fields := [][]byte{[]byte("forebay session 2 " + role), x.client, x.daemon, x.channel}
	if hello != nil {
		var who []byte
		for _, n := range []uint32{hello.Uid, hello.Gid, hello.MinVersion, hello.MaxVersion} {
			who = binary.LittleEndian.AppendUint32(who, n)
		}
		who = binary.LittleEndian.AppendUint64(who, hello.Instance)
		if hello.System {
			who = append(who, 1)
		}
		fields = append(fields, who, []byte(hello.Node), hello.Token)
	}
	mac := hmac.New(sha256.New, key)
	for _, f := range fields {
		var length [4]byte
		binary.LittleEndian.PutUint32(length[:], uint32(len(f)))
		mac.Write(length[:])
		mac.Write(f)
	}
	return mac.Sum(nil)
}
