// Package ofi is the rdma provider over libfabric. It has one-sided reads and writes by InfiniBand,
// RoCE, iWARP and other fabrics, or by libfabric's own providers over TCP if there is no such
// hardware. It must never depend on the meaning of the bytes. It needs cgo, libfabric 1.17 or later
// and the build tag ofi. Built without, it has the same names, and New fails with
// errors.ErrUnsupported.
//
// A connection has two ways between the same two processes:
//
//	        ┌── lifeline: TCP, TLS where set: signs of life, regions requested and revoked ────┐
//	Conn A ─┤                                                                                  ├─ Conn B
//	        └── endpoint: libfabric: one-sided operations ─────────────────────────────────────┘
//
// The lifeline carries private data, and the parts that libfabric leaves open. It authenticates the
// peer before anything else, exchanges the addresses of the endpoints, and hands out the fabric's
// own keys. When the peer's process is gone, the lifeline's end reports that at once. Nothing on
// the way of an operation waits for it, but the first one on a region:
//
//	initiator                                 target
//	 Post(key) ── lifeline: open, key ──────▶  compares the key's secret
//	           ◀─ opened: address, rkey ─────  records the holder
//	 fi_write, fi_read … ═══ endpoint ══════▶  (runs no code)
//	                                           Region.Close:
//	 ends its operations    ◀──── revoke ────  refuses to open it again
//	           ── revoked ──────────────────▶  deregisters, returns
//
// A peer that does not answer in time loses its connection, and with its endpoint the way to any
// memory. So a well-behaved initiator receives the reason of every refusal without the fabric's
// help, and the fabric's own checks (a key that fits, access, bounds) are left for the other
// initiators.
//
// Endpoints are message endpoints where the fabric has them, else reliable-datagram endpoints, one
// for each connection in either case, since closing it is the only way common to all providers to
// end operations in flight, at both ends.
//
// Threads: one per Fabric, for all its connections, that polls the completion queue and the event queue
// while there is something to do and sleeps on their wait objects otherwise (internal/progress). A
// caller that dials many peers does so with one Fabric (DialWith). Per connection a reader and a
// writer of the lifeline, and one that waits for the connection's end. Posting is done by the
// caller's own thread.
//
// # Isolation, and its limits
//
// Connections of a Fabric share its domain and its loop, and nothing else. The end of a peer ends its
// own connection, and one that stands still keeps no other from its share of the buffers
// (internal/local). The domain of a Fabric that registers no regions offers peers nothing, however many
// have endpoints in it. Buffers are registered without remote access. One that serves regions of
// several users is shared by them all, which leaves the following.
//
// Bytes on the endpoint are not encrypted, and the fabric's keys are all that protects a region
// against those with an endpoint in the same domain: 32 bits on verbs, 64 elsewhere. A peer that has
// opened a region and keeps the key can use it until the region is closed. So a region must belong
// to one user, and be replaced rather than handed to another.
package ofi
