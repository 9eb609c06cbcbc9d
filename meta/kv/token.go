package kv

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"

	"forebay/internal/bb"
)

// ParseID reads results of strconv.FormatUint(id, 16), and nothing else.
func ParseID(s string) (uint64, bool) {
	id, err := strconv.ParseUint(s, 16, 64)
	return id, err == nil && id != 0 && strconv.FormatUint(id, 16) == s
}

// AppendToken encodes a name as one token of a NATS subject: letters, digits, "-"
// and "_" stand for themselves, "/" (which no name holds) for ".", and "=XX" for
// any other byte. The longest name becomes 765 bytes.
func AppendToken(b []byte, name string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(name) {
		switch c := name[i]; {
		case plain(c):
			b = append(b, c)
		case c == '.':
			b = append(b, '/')
		default:
			b = append(b, '=', hex[c>>4], hex[c&15])
		}
	}
	return b
}

// DecodeToken reads results of appendToken, and nothing else.
func DecodeToken(token string) (string, bool) {
	b := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		switch c := token[i]; {
		case plain(c):
			b = append(b, c)
		case c == '/':
			b = append(b, '.')
		case c == '=' && i+2 < len(token):
			hi, lo := unhex(token[i+1]), unhex(token[i+2])
			if hi < 0 || lo < 0 {
				return "", false
			}
			d := byte(hi<<4 | lo)
			if plain(d) || d == '.' {
				return "", false
			}
			b = append(b, d)
			i += 2
		default:
			return "", false
		}
	}
	return string(b), len(b) > 0
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// anyNode stands for any node in a key. No node's name is encoded like that.
const anyNode = "=any"

// NodeToken encodes a node's name as one token. "" stands for any node.
func NodeToken(node bb.NodeID) string {
	if node == "" {
		return anyNode
	}
	return string(AppendToken(nil, string(node)))
}

// CheckID refuses text that is not an id of an operation, a task or a batch job.
func CheckID(op, id string) error {
	bad := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	if id == "" || len(id) > 128 || strings.ContainsFunc(id, bad) {
		return bb.E(bb.Invalid, op, id, "is not an id: 1 to 128 of a-z, 0-9 and -")
	}
	return nil
}

// Random64 returns a random number that cannot be guessed.
func Random64() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
