// Package asuser is a store in the file system that is reached as a user: a store worker, which is a process
// of its own with that user's ids and groups and no other right, runs adaptor posix and carries out its
// daemon's requests. So the kernel decides about the file at a path that a user has given, and a call that
// hangs in a file system hangs in a process that can be killed.
//
//	daemon                                            store worker of (user, root)
//	┌───────────────────────────┐   socketpair        ┌──────────────────────────┐
//	│ Store: Put, Get, List, …  │── requests ────────▶│ posix.Store              │──▶ root
//	│                           │◀─ replies ──────────│                          │
//	│ copies, takes checksums   │═══ slots: memory ═══│ reads and writes files   │
//	└───────────────────────────┘    of both          └──────────────────────────┘
//
// A worker serves one root for one user. Its bytes pass through slots of memory that both have
// mapped. No process can make that memory smaller (memfd_create(2), F_SEAL_SHRINK). The daemon
// copies from a user's regions into a slot and takes the checksum on the way, so a worker holds no
// region and no user can end the daemon by making one shorter.
//
// This package is the daemon's side. The worker's is package serve, their messages package protocol, and a
// worker's confinement package confine. It must never depend on a buffer. A worker's messages are bounded and
// checked. A user may get hold of its own.
package asuser
