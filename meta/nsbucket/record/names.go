package record

import (
	"strconv"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// Keys of a namespace bucket. NATS lets a key hold only [-/_=.a-zA-Z0-9], and "." separates its
// tokens. Ids are hexadecimal without leading zeros.
//
//	e.PARENT.NAME   an entry
//	e.0.root        the root's own entry
//	d.DIR           the reverse record of a directory
//	o.ID            a pending operation on the backing store; ordered by sequence
//	x.paths         rewritten by each rename of a directory: paths are stable while it is
//	t.ID.…          a transaction (meta/txn)
//	x.decided       rewritten when a transaction is decided
//	x.check         carries a batch's check of a key that the batch does not write
const (
	EntryPrefix = "e."
	DirPrefix   = "d."
	OpPrefix    = "o."
	PathsKey    = "x.paths"
	RootKey     = "e.0.root"
)

// EntryKey is the key of an entry.
func EntryKey(dir bb.DirID, name string) string {
	if dir == 0 {
		return RootKey
	}
	b := make([]byte, 0, len(EntryPrefix)+17+len(name)+8)
	b = append(b, EntryPrefix...)
	b = strconv.AppendUint(b, uint64(dir), 16)
	b = append(b, '.')
	return string(kv.AppendToken(b, name))
}

// EntriesOf is a filter of the keys of a directory's entries.
func EntriesOf(dir bb.DirID) string { return EntryPrefix + strconv.FormatUint(uint64(dir), 16) + ".*" }

// DirKey is the key of a directory's record.
func DirKey(dir bb.DirID) string { return DirPrefix + strconv.FormatUint(uint64(dir), 16) }

// ParseEntryKey reads results of EntryKey, and nothing else.
func ParseEntryKey(key string) (bb.DirID, string, bool) {
	if key == RootKey {
		return 0, "", true
	}
	rest, ok := strings.CutPrefix(key, EntryPrefix)
	if !ok {
		return 0, "", false
	}
	id, token, ok := strings.Cut(rest, ".")
	if !ok {
		return 0, "", false
	}
	dir, ok := kv.ParseID(id)
	if !ok {
		return 0, "", false
	}
	name, ok := kv.DecodeToken(token)
	return bb.DirID(dir), name, ok && bb.CheckName(name) == nil
}
