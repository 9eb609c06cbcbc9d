package meta

import (
	"strconv"
	"strings"

	"forebay/internal/bb"
)

// Keys of a namespace bucket. NATS lets a key hold only [-/_=.a-zA-Z0-9], and "."
// separates its tokens; ids are hexadecimal without leading zeros.
//
//	e.PARENT.NAME   an entry
//	e.0.root        the root's own entry
//	d.DIR           the reverse record of a directory
//	o.ID            a pending operation on the backing store; ordered by sequence
//	x.paths         rewritten by each rename of a directory: paths are stable while it is
//	t.ID.…          a transaction (txn.go)
//	x.decided       rewritten when a transaction is decided
//	x.check         carries a batch's check of a key that the batch does not write
const (
	entryPrefix = "e."
	dirPrefix   = "d."
	opPrefix    = "o."
	pathsKey    = "x.paths"
	checkKey    = "x.check"
	rootKey     = "e.0.root"
)

func entryKey(dir bb.DirID, name string) string {
	if dir == 0 {
		return rootKey
	}
	b := make([]byte, 0, len(entryPrefix)+17+len(name)+8)
	b = append(b, entryPrefix...)
	b = strconv.AppendUint(b, uint64(dir), 16)
	b = append(b, '.')
	return string(appendToken(b, name))
}

func entriesOf(dir bb.DirID) string { return entryPrefix + strconv.FormatUint(uint64(dir), 16) + ".*" }

func dirKey(dir bb.DirID) string { return dirPrefix + strconv.FormatUint(uint64(dir), 16) }

func parseEntryKey(key string) (bb.DirID, string, bool) {
	if key == rootKey {
		return 0, "", true
	}
	rest, ok := strings.CutPrefix(key, entryPrefix)
	if !ok {
		return 0, "", false
	}
	id, token, ok := strings.Cut(rest, ".")
	if !ok {
		return 0, "", false
	}
	dir, ok := parseID(id)
	if !ok {
		return 0, "", false
	}
	name, ok := decodeToken(token)
	return bb.DirID(dir), name, ok && bb.CheckName(name) == nil
}

// parseID reads what strconv.FormatUint(id, 16) writes, and nothing else.
func parseID(s string) (uint64, bool) {
	id, err := strconv.ParseUint(s, 16, 64)
	return id, err == nil && id != 0 && strconv.FormatUint(id, 16) == s
}

// appendToken encodes a name as one token of a NATS subject: letters, digits, "-"
// and "_" stand for themselves, "/" (which no name holds) for ".", and "=XX" for
// any other byte. The longest name becomes 765 bytes.
func appendToken(b []byte, name string) []byte {
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

// decodeToken reads what appendToken wrote, and nothing else.
func decodeToken(token string) (string, bool) {
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
