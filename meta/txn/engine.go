package txn

import (
	"context"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/namespace"
)

// Namespace is an engine as transactions need it: a tree whose entries change together with
// Records, and whose directories can be listed as one. *nsbucket.Namespace and *nslog.Engine are
// such. It is safe for concurrent use.
type Namespace interface {
	namespace.Tree

	// Find is Lookup that reports whether there is an entry, and not with an error.
	Find(ctx context.Context, dir bb.DirID, name string) (e bb.Entry, found bool, err error)
	// Sample returns some entries of a directory, or none if it is empty or gone.
	Sample(ctx context.Context, dir bb.DirID) ([]bb.Entry, error)
	// ListLayers is List of several directories as one, of which the first has priority. A name of
	// a later one is left out if hidden reports so, or if an earlier one has it, unless both are
	// directories. Then the attributes are the later one's. A directory that is gone is empty. If
	// the last one is gone, it is NotFound. Entries that are renamed from an earlier directory to a
	// later one meanwhile are listed.
	ListLayers(ctx context.Context, dirs []bb.DirID, hidden func(layer int, name string) bool, after string, limit int) (entries []bb.Entry, more bool, err error)
	// DirGone reports whether a directory has been removed. It uses no cache.
	DirGone(ctx context.Context, dir bb.DirID) (bool, error)
	// Refresh makes the next look-up of a name ignore the cache.
	Refresh(dir bb.DirID, name string)
	// PutWith is Put that changes records in the same change as well, and sets the entry's
	// revision. A conflict, of the entry or a record, is kv.ErrRevision. Then nothing was changed.
	PutWith(ctx context.Context, e *bb.Entry, records ...kv.Change) error
	// SoleWriter reports whether this process alone changes the namespace.
	SoleWriter() bool
}

// Records are the records of transactions that the engine of a Namespace keeps beside the entries, each under
// a key. *kv.Bucket and *nslog.Records are such. A change that meets other revisions than it
// expects is kv.ErrRevision, and changes nothing. An error without kv.ErrUncertain in its chain
// means that nothing was changed. It is safe for concurrent use.
type Records interface {
	// Get returns the record of a key, as of a moment after it was called. A record that does not
	// exist has no data, and the revision that a change of it has to expect.
	Get(ctx context.Context, key string) (kv.Record, error)
	// Create stores data under a key that does not exist. Otherwise it returns kv.ErrRevision and the
	// existing record. Expected is a guess at its revision.
	Create(ctx context.Context, key string, data []byte, expected uint64) (uint64, kv.Record, error)
	// Put stores data under a key of a revision, and returns the new one, which is above it.
	Put(ctx context.Context, key string, data []byte, expected uint64) (uint64, error)
	// Remove removes a key of a revision.
	Remove(ctx context.Context, key string, expected uint64) (uint64, error)
	// Commit carries out all changes, of which no two are of one key, or none.
	Commit(ctx context.Context, changes []kv.Change) ([]uint64, error)
	// Scan calls fn with the records whose keys match a filter: "*" stands for a token between
	// dots, a ">" at the end for any number of them. A record that changes meanwhile may come
	// again, with its newer revision, or come without data. A record that exists throughout comes
	// at least once. The data may be kept. An error of fn ends the scan. kv.ErrStop ends it well.
	Scan(ctx context.Context, filter string, fn func(*kv.Record) error) error
	// Unreadable counts or logs a record that cannot be decoded.
	Unreadable(key string, err error)
}
