package namespace

import (
	"strconv"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/kv"
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
	return string(kv.AppendToken(b, name))
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
	dir, ok := kv.ParseID(id)
	if !ok {
		return 0, "", false
	}
	name, ok := kv.DecodeToken(token)
	return bb.DirID(dir), name, ok && bb.CheckName(name) == nil
}
