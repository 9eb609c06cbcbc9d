// Package shm is the rdma provider for two processes on one node: the initiator maps the
// target's region, and a one-sided operation is a copy. It must never know what the bytes mean.
//
// A unix socket per connection carries everything else: messages, requests to map a region
// (answered with its descriptor), revocations.
//
//	initiator                              target
//	 Post(key) ── map key ──────────────▶  checks the key
//	 mmap      ◀─ mapped + descriptor ──   remembers who has it
//	 copy, copy, copy …                    (runs no code)
//	                                       Region.Close:
//	 waits for copies, munmap ◀─ revoke ── refuses new requests
//	           ── revoked ──────────────▶  returns
//
// A region is mapped once per process, at its first use, however many connections and operations
// use it, until it is revoked or the last connection to its owner ends.
//
// Post copies before it returns, in the caller's thread; concurrent callers copy in parallel.
//
// # What this isolates, and what not
//
// Who may connect is decided by the kernel's word on the peer (SO_PEERCRED); by default the same
// user and root. A region is given only to who knows its key, and a region that peers may not
// write is given as a read-only descriptor. Revocation is an agreement between two processes that
// run this package: after Region.Close returned nil, the peer has unmapped the region. A process
// that was changed to keep its mapping, or is stopped and ignored (Close then returns an error),
// can go on touching the file's pages. Such a process runs as a user that was granted the region,
// so it can damage only what that user was allowed to; memory must never be handed from one user
// to another by revoking a region, only by making a new file. For the same reason a process of
// the same user can open a read-only descriptor again for writing.
package shm
