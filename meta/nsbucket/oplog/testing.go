package oplog

import (
	"forebay/meta/namespace"
)

// For tests that take a server for one that was set back. No program uses it.

// Ahead makes a follower continue as if it had read n sequences more.
func Ahead(r namespace.OpReader, n uint64) { r.(*follower).from += n }
