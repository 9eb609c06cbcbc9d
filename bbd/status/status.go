// Package status describes a daemon, and all daemons of a cluster, for GET /status and bbctl status. Its types
// define the JSON. It must never depend on the origin of a figure, nor change anything.
package status

import (
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/meta/conn"
)

// Status is the content of GET /status and bbctl status. Sizes are bytes, ages seconds.
type Status struct {
	Node     bb.NodeID        `json:"node"`
	Instance string           `json:"instance"`
	Life     string           `json:"life"`              // of the instance; each start is another one
	Earlier  []string         `json:"earlier,omitempty"` // instances that the state folder had before
	Version  string           `json:"version"`
	State    string           `json:"state"`
	Since    time.Time        `json:"since"`
	Admin    string           `json:"admin,omitempty"`
	Memory   Tier             `json:"memory"`
	Disk     Tier             `json:"disk"`
	Buffers  []Buffer         `json:"buffers"`
	Sessions []Session        `json:"sessions"`
	Waiting  alloc.WaitStatus `json:"waiting"`
	NATS     Namespace        `json:"nats"`
	Damaged  []string         `json:"damaged,omitempty"` // records that recovery could not read
	Foreign  []Foreign        `json:"foreign,omitempty"` // regions of another node, or of another namespace
	Counters Counters         `json:"counters"`

	// StoreWorkers are the processes that reach stores as their users, or nil if this daemon has none.
	StoreWorkers *Workers `json:"store_workers,omitempty"`
	// WithoutBuffer are files in memory of buffers that the namespace does not have.
	WithoutBuffer []WithoutBuffer `json:"without_buffer,omitempty"`
	// SetAside are the buffers whose namespace could not be read when the daemon started.
	SetAside []SetAside `json:"set_aside,omitempty"`
}

// Tier is the use of a tier.
type Tier struct {
	Capacity   int64 `json:"capacity"`
	Populated  int64 `json:"populated"`
	Used       int64 `json:"used"`
	Live       int64 `json:"live"`
	Dirty      int64 `json:"dirty"`
	Clean      int64 `json:"clean"`
	Pinned     int64 `json:"pinned"`
	Leased     int64 `json:"leased"`
	Free       int64 `json:"free"`
	Waste      int64 `json:"waste"`
	Occupied   int64 `json:"occupied,omitempty"` // by writers that lost their leases and may still write there
	Populating bool  `json:"populating,omitempty"`

	Dir string `json:"dir,omitempty"` // of the regions that clients map
}

// Session is one connected client.
type Session struct {
	ID       uint64    `json:"id"`
	Client   string    `json:"client"`
	UID      uint32    `json:"uid"`
	PID      int32     `json:"pid,omitempty"`
	Since    time.Time `json:"since"`
	Mapped   bool      `json:"mapped"`
	Path     string    `json:"path"` // how its bytes travel: shm, ofi/PROVIDER, tcp, messages
	Handles  int       `json:"handles"`
	Leases   int       `json:"leases"`
	InFlight int64     `json:"in_flight"`
}

// Namespace is the state of the namespace's server.
type Namespace struct {
	Connected bool     `json:"connected"` // to a server, which may be one without a majority
	URL       string   `json:"url"`
	LastError string   `json:"last_error,omitempty"`
	Trouble   *Trouble `json:"trouble,omitempty"` // nil: the namespace answers
	Logs      []Log    `json:"logs,omitempty"`    // that daemons share
}

// Log is the namespace of a buffer that is a log which daemons share, as one of them has it.
type Log struct {
	Buffer string      `json:"buffer"`
	Owner  bb.NodeID   `json:"owner,omitempty"`   // the daemon that answers all calls; left out: it is unknown
	HeldBy []bb.NodeID `json:"held_by,omitempty"` // at the owner: other daemons that hold the end of the log in memory
	Unheld bool        `json:"unheld,omitempty"`  // at the owner: none does, and a server may lose it with its power
	Lost   *time.Time  `json:"lost,omitempty"`    // when this daemon found, since its start, that acknowledged changes were lost
	Since  *time.Time  `json:"since,omitempty"`   // at the owner: since when it has owned the log
	Leases LogLeases   `json:"leases"`
}

// LogLeases are the leases on directories that a daemon has granted to others as the owner of a log. The counts are since
// its start.
type LogLeases struct {
	Held    int     `json:"held"`           // now, each of one daemon on one directory
	Granted uint64  `json:"granted"`        // look-ups and listings that were answered with a lease
	Revoked uint64  `json:"revoked"`        // dropped by their daemon on request, before a change
	Silent  uint64  `json:"silent"`         // revocations that a daemon did not answer, so that a change waited for the end of its leases
	Waited  float64 `json:"silent_seconds"` // that these lasted, in sum
}

// Trouble is the reason why the namespace does not answer.
type Trouble struct {
	Since  time.Time `json:"since"`
	For    float64   `json:"for"` // seconds since then
	Reason string    `json:"reason"`
	Remedy string    `json:"remedy"`
}

// Counters count since the daemon started.
type Counters struct {
	Commits        int64 `json:"commits"`
	BytesCommitted int64 `json:"bytes_committed"`
	ChecksumErrors int64 `json:"checksum_errors"`
	LostBytes      int64 `json:"lost_bytes"`
	Evicted        int64 `json:"evicted_bytes"`
	Spilled        int64 `json:"spilled_bytes"`
}

// OfTier describes a tier.
func OfTier(t store.TierStats) Tier {
	return Tier{
		Capacity: t.Capacity, Populated: t.Populated, Used: t.Used, Live: t.Live, Dirty: t.Dirty,
		Clean: t.Clean, Pinned: t.Pinned, Leased: t.Leased, Free: t.Free, Waste: t.Waste, Occupied: t.Occupied,
	}
}

// OfNamespace describes the state of the namespace at a time.
func OfNamespace(s conn.Status, now time.Time) Namespace {
	n := Namespace{Connected: s.Connected, URL: s.Server, LastError: s.LastError}
	if t := s.Trouble(); t != nil {
		n.Trouble = &Trouble{Since: t.Since, For: now.Sub(t.Since).Seconds(), Reason: t.Reason, Remedy: t.Remedy}
	}
	return n
}
