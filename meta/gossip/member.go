package gossip

import (
	"strconv"
	"time"

	"forebay/internal/bb"
)

// Member is a daemon's own record, and our observation of it.
type Member struct {
	Node     bb.NodeID
	Instance bb.InstanceID
	State    State     // its own report while it is reachable, else our conclusion from its silence
	Since    time.Time // the begin of this state in our view, by our clock

	Session string // host:port for sessions, "" for none
	Fabric  string // host:port for one-sided reads and writes
	Admin   string // host:port of the admin server
	Routes  string // host:port for routes of an embedded NATS server

	MinVersion, MaxVersion uint32 // of the control protocol
	Server                 string // the daemon's own version, for people

	Memory, Disk Tier
}

// Tier is the usage of a tier, in bytes. Other members get whole MiB: capacity and free bytes
// rounded down, dirty bytes up.
type Tier struct{ Capacity, Free, Dirty int64 }

// State is a member's state.
type State uint8

// The states of a member. The first four are its own report, the others our conclusion.
//
//	starting ──▶ ready ──▶ draining ──▶ leaving ──goodbye──▶ left
//	    └───────────┴──────────┴──no answer──▶ suspect ──silence──▶ dead
//
// A suspect or dead member that answers again has its reported state. A member with an unreadable
// report is unknown.
const (
	Unknown State = iota
	Starting
	Ready
	Draining
	Leaving
	Suspect
	Dead
	Left
)

// String returns the state's name.
func (s State) String() string {
	names := [...]string{"unknown", "starting", "ready", "draining", "leaving", "suspect", "dead", "left"}
	if int(s) >= len(names) {
		return "state(" + strconv.Itoa(int(s)) + ")"
	}
	return names[s]
}

// Gone reports whether the member is no longer there, by our observation.
func (s State) Gone() bool { return s == Dead || s == Left }

// own reports whether a daemon may report this state of itself.
func (s State) own() bool { return s >= Starting && s <= Leaving }
