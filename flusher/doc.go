// Package flusher makes dirty files durable. It takes them by policy, writes them to the backing
// store, records that they are clean, and tries again for as long as that fails. It carries renames
// and removals to the store, in order.
//
// It reaches the daemon's files through Catalog and upload.Job alone, and must never depend on namespaces,
// segments or sessions.
//
// One file's way, one function changes it (queue.move):
//
//	 Enqueue           picked by plan          Done
//	─────────▶ ready ─────────────────▶ flying ──────▶ forgotten
//	           ▲ ▲ ▲                    │ │ │
//	           │ │ └────── waiting ◀────┘ │ │   failed: never dropped, tried again
//	           │ └──────── held    ◀──────┘ │   its name is temporary
//	           └────────── parked  ◀────────┘   a Hold or a StoreOp covers its name
//
// One goroutine dispatches. Each flush has one of its own, and each buffer with store operations
// one more. At most Workers flushes make progress at a time, PerUser of one user's buffers.
// PerStore alone bounds the flushes to a store that does not answer. Close waits for all, but not
// long for a store that does not answer.
package flusher
