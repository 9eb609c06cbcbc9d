// Package elections shortens the wait of nats-server for the election of a leader. It must never depend on what the
// server's streams hold.
//
// Each stream with copies has a leader, which sends a heartbeat each second. A server that holds a copy and has heard
// nothing for a random time between two bounds becomes a candidate (Raft, Ongaro and Ousterhout 2014, section 5.2). Until
// a leader is elected, nothing of the stream is changed or read. nats-server's bounds are 4 and 9 s, for clusters across
// regions. The servers of Forebay are on one network, so that a leader of which two heartbeats are missing is gone, or is no
// use as a leader. An election that was not needed costs a fraction of a second and no message.
//
//	heartbeat   heartbeat   heartbeat                            the leader has died here
//	    │───1 s────│───1 s────│ ✕
//	                          │◀──── shortest ────▶│◀─ random ─▶│ longest
//	                                               a server becomes a candidate
//
// nats-server has no setting for them. This package links to its variables by name, and TestLinked fails where another
// version of it is built. A server of another process in the same cluster has its own bounds. Then
// the first candidate is the one with the shortest.
package elections

import (
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server" // defines the variables
)

// Bounds of the time without a heartbeat after which a server becomes a candidate.
const (
	shortest = 2500 * time.Millisecond
	Longest  = 5 * time.Second
)

//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

// former are the server's own bounds. The others take their place while packages are initialised, since a running server
// reads them without a lock.
var former = replace()

func replace() [2]time.Duration {
	its := [2]time.Duration{minElectionTimeout, maxElectionTimeout}
	minElectionTimeout, maxElectionTimeout = shortest, Longest
	return its
}
