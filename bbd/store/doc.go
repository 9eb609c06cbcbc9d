// Package store keeps the bytes of one node: regions of shared memory (and of disk), segments that
// writers lease and fill like a log, and an index of the extents in them. It survives the death of
// its process. Committed data is in the regions, and Open finds it again.
//
// It must never depend on networks, paths or the namespace. Files have ids, generations numbers,
// buffers names and owners uids.
//
// Locks are acquired in this order, and none is held across a system call that waits:
// shards (by index), the log of the store's own records, Store.mu, segments (by
// sequence).
package store
