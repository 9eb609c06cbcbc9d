package rdma

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
)

// RemoteKeySize is the length in bytes of an encoded RemoteKey.
const RemoteKeySize = 32

// RemoteKey is the right to reach one Region. The holder of the key, and of a connection to the
// region's owner, may use the region as its Access allows. It is a value, comparable, and crosses
// the wire as RemoteKeySize bytes:
//
//	0        8                                32
//	┌────────┬────────────────────────────────┐
//	│ id     │ secret                         │
//	│ uint64 │ provider's own: random, or     │
//	│ (BE)   │ address and hardware key       │
//	└────────┴────────────────────────────────┘
//
// The id is public and names the region in logs. Formatting a key never shows its secret.
type RemoteKey struct {
	id     uint64
	secret [RemoteKeySize - 8]byte
}

// NewRemoteKey returns a key with the given id and a secret of 192 random bits.
func NewRemoteKey(id uint64) RemoteKey {
	k := RemoteKey{id: id}
	_, _ = rand.Read(k.secret[:]) // never fails, since the runtime ends the process instead
	return k
}

// DecodeRemoteKey reads a key from exactly RemoteKeySize bytes.
func DecodeRemoteKey(b []byte) (RemoteKey, error) {
	if len(b) != RemoteKeySize {
		return RemoteKey{}, fmt.Errorf("remote key of %d bytes: %w", len(b), ErrInvalid)
	}
	k := RemoteKey{id: binary.BigEndian.Uint64(b)}
	copy(k.secret[:], b[8:])
	return k, nil
}

// AppendBinary appends the RemoteKeySize bytes that cross the wire, secret included.
func (k RemoteKey) AppendBinary(b []byte) ([]byte, error) {
	b = binary.BigEndian.AppendUint64(b, k.id)
	return append(b, k.secret[:]...), nil
}

// ID is the public part. It is unique among the regions that one Fabric ever registered.
func (k RemoteKey) ID() uint64 { return k.id }

// Equal compares two keys in constant time.
func (k RemoteKey) Equal(other RemoteKey) bool {
	return subtle.ConstantTimeCompare(k.secret[:], other.secret[:]) == 1 && k.id == other.id
}

// String shows the id alone.
func (k RemoteKey) String() string { return fmt.Sprintf("region#%d", k.id) }

// Format shows the id alone, with any verb.
func (k RemoteKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, k.String()) }

// LogValue shows the id alone.
func (k RemoteKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
