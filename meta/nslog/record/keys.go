package record

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"forebay/internal/bb"
)

const (
	entryPrefix   = 'e'
	opPrefix      = 'o'
	outcomePrefix = 's'
	otherPrefix   = 'x'

	entryHead = 9
)

// Session is the id of a client's session.
type Session [16]byte

// String returns it in hexadecimal.
func (s Session) String() string { return hex.EncodeToString(s[:]) }

// AppendEntryKey appends the key of an entry.
func AppendEntryKey(b []byte, dir bb.DirID, name string) []byte {
	b = binary.BigEndian.AppendUint64(append(b, entryPrefix), uint64(dir))
	return append(b, name...)
}

// RootKey is the key of the root's own entry.
var RootKey = AppendEntryKey(nil, 0, "")

// EntryKey reads the key of an entry. Name lies in the key.
func EntryKey(key []byte) (dir bb.DirID, name []byte, ok bool) {
	if len(key) < entryHead || key[0] != entryPrefix {
		return 0, nil, false
	}
	return bb.DirID(binary.BigEndian.Uint64(key[1:])), key[entryHead:], true
}

// OpKey returns the key of an operation that has a place in the order.
func OpKey(place uint64) []byte { return binary.BigEndian.AppendUint64([]byte{opPrefix}, place) }

// PlaceOf reads the key of an operation.
func PlaceOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }

// OutcomeKey returns the key of the outcome of a session's change.
func OutcomeKey(s Session, number uint64) []byte {
	b := append(make([]byte, 0, 1+len(s)+8), outcomePrefix)
	return binary.BigEndian.AppendUint64(append(b, s[:]...), number)
}

// OtherKey returns the key of a record of another package.
func OtherKey(key string) []byte { return append([]byte{otherPrefix}, key...) }

// Kind is the kind of a key.
type Kind byte

// The kinds of keys.
const (
	Entry     Kind = entryPrefix
	Operation Kind = opPrefix
	Outcomes  Kind = outcomePrefix
	Other     Kind = otherPrefix
)

// KindOf returns the kind of a key, or 0 if it is unknown to this release.
func KindOf(key []byte) Kind {
	ok := false
	switch len := len(key); {
	case len == 0:
	case key[0] == entryPrefix:
		ok = len >= entryHead
	case key[0] == opPrefix:
		ok = len == 9
	case key[0] == outcomePrefix:
		ok = len == 25
	case key[0] == otherPrefix:
		ok = true
	}
	if !ok {
		return 0
	}
	return Kind(key[0])
}

// OutcomeOf reads the key of an outcome.
func OutcomeOf(key []byte) (s Session, number uint64) {
	copy(s[:], key[1:])
	return s, binary.BigEndian.Uint64(key[17:])
}

// Matches reports whether a key of another package's record matches a filter: "*" stands for one token between
// dots, and ">" for all that follow.
func Matches(key, filter string) bool {
	for {
		token, tokens, moreTokens := strings.Cut(key, ".")
		pattern, patterns, morePatterns := strings.Cut(filter, ".")
		switch {
		case pattern == ">":
			return true
		case pattern != "*" && pattern != token || moreTokens != morePatterns:
			return false
		case !moreTokens:
			return true
		}
		key, filter = tokens, patterns
	}
}

// FixedPart returns the common beginning of all keys that match a filter.
func FixedPart(filter string) string {
	if i := strings.IndexAny(filter, "*>"); i >= 0 {
		return filter[:i]
	}
	return filter
}
