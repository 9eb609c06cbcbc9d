// Package tcp is the rdma provider that works everywhere. It has one-sided reads and writes over
// plain TCP, in pure Go. It must never depend on the meaning of the bytes.
//
// A connection is one control stream and a number of data streams:
//
//	        ┌── control: pings ──────────────────────────────────┐
//	Conn A ─┼── data 1: requests and replies, both directions ───┼─ Conn B
//	        └── data N ──────────────────────────────────────────┘
//
// Operations are cut into chunks. Chunks of different operations take turns, and every idle data
// stream takes the next one, so a large transfer neither starves a small one nor is limited to
// one stream. Pings have a stream of their own and never wait behind bulk.
//
// Payload moves without a copy in user space. The sender hands header and payload to writev from
// the caller's memory. The receiver checks the header and reads from the socket into the region.
// Only bytes that arrive in one read with a header, less than readAhead, are copied once.
//
// Threads of one side of a connection, all ended and waited for by Close:
//
//	control reader: the peer lives       control writer: so does this side
//	data reader    ─▶ region memory,     data writer    ◀─ replies, next chunk
//	                  replies, completions
//
// Readers never wait for writers. A reply queue has room for all requests that the peer is allowed
// to have unanswered, and a peer that exceeds this is disconnected.
package tcp
