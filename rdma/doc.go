// Package rdma is the fabric under Forebay: registered memory, and one-sided reads and writes of a
// peer's memory. It hides the transport of the bytes (TCP, libfabric) and must never depend on
// their meaning. It has no files, leases, checksums or messages.
//
// The model is the one of verbs and libfabric, reduced to the features of every provider:
//
//	 initiator                                               target
//	┌────────────────────────────┐                  ┌───────────────────────────┐
//	│ Op{Write, Local, Remote} ──┼──── Conn.Post ───┼──▶ Region (key, access)   │
//	│ Op{Read,  Local, Remote} ◀─┼──────────────────┼─── no code of the target  │
//	│                            │                  │    runs per operation     │
//	│ Queue ◀── Completion{ID}   │                  │                           │
//	└────────────────────────────┘                  └───────────────────────────┘
//
// Memory belongs to the caller. A provider touches Op.Local from Post until the operation's
// completion is delivered, and a registered Region until Region.Close returns.
//
// Nothing orders operations among each other, so a caller that needs an order waits for a
// completion. A write completes at the initiator after its bytes are in the target's region.
package rdma
