package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// NonceSize is the length of the nonces of a handshake, in bytes.
const NonceSize = 32

// DaemonProof proves to a client that the daemon knows the shared key.
func DaemonProof(key, clientNonce, daemonNonce []byte) []byte {
	return proof(key, "daemon", clientNonce, daemonNonce, nil)
}

// ClientProof proves to a daemon that the client knows the shared key, and binds
// whom the client says that it acts for.
func ClientProof(key, clientNonce, daemonNonce []byte, uid, gid uint32) []byte {
	var who [8]byte
	binary.LittleEndian.PutUint32(who[0:], uid)
	binary.LittleEndian.PutUint32(who[4:], gid)
	return proof(key, "client", clientNonce, daemonNonce, who[:])
}

// proof is HMAC-SHA-256 (RFC 2104) over fields of fixed length; role keeps one
// side's proof from being sent back to it.
func proof(key []byte, role string, clientNonce, daemonNonce, who []byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, field := range [][]byte{[]byte(role), clientNonce, daemonNonce, who} {
		mac.Write(field)
	}
	return mac.Sum(nil)
}
