package bb

import "time"

// Lifetime is one run of a batch system's job, for which buffers live: its identity,
// its nodes, and the fate of its buffers when it has left them all.
//
//	           all nodes have left,                 saved, destroyed
//	open ────── or it was ended ──────▶ draining ───────────────────▶ gone
//	                                      │   ▲                        ▲
//	                    cannot be saved   ▼   │ is being tried again    │
//	                                     orphan ───────────────────────┘
//
// Of one that a scheduler manages, nodes report that it has left them, too, but it is not over before
// the batch system has reported that.
//
// Its record stays for a week after it is gone.
type Lifetime struct {
	// Key is its name, unlike that of any other run of any job. It has the form of a buffer's name.
	Key     string `json:"key"`
	Cluster string `json:"cluster"`
	Job     string `json:"job"` // the batch system's name of the job
	User    string `json:"user,omitempty"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`

	Buffer        string          `json:"buffer,omitempty"` // that ends with it; "": none
	Uses          []string        `json:"uses,omitempty"`   // buffers that do not
	Destroys      []LifetimeEnd   `json:"destroys,omitempty"`
	In            []LifetimeStage `json:"stage_in,omitempty"`
	Out           []LifetimeStage `json:"stage_out,omitempty"`
	ExpectedNodes int             `json:"expect,omitempty"` // nodes that it is to have; 0: not given

	SchedulerManaged bool      `json:"governed,omitempty"`
	Ran              bool      `json:"ran,omitempty"`     // SchedulerManaged: it may have written something
	Over             time.Time `json:"over,omitzero"`     // when the batch system reported its end
	Pool             string    `json:"pool,omitempty"`    // of the batch system, from which
	Granted          int64     `json:"granted,omitempty"` // so many bytes count as taken

	// Due is the time by which its buffer should be on the store, since it ends then, or soon
	// after. Warn is the batch system's way to warn it if that will not be. No daemon reads it.
	Due    time.Time `json:"due,omitzero"` // zero: it has no end
	Warn   string    `json:"warn,omitempty"`
	Warned time.Time `json:"warned,omitzero"`

	State     LifetimeState `json:"state"`
	Created   time.Time     `json:"created"`
	Ended     time.Time     `json:"ended,omitzero"`   // when its last node had left
	Gone      time.Time     `json:"gone,omitzero"`    // when nothing was left to do
	Succeeded bool          `json:"succeeded"`        // no failure of it is recorded
	Hurry     bool          `json:"hurry,omitempty"`  // bytes that are not saved by now are abandoned
	Reason    string        `json:"reason,omitempty"` // why the last attempt to save everything failed
	Attempt   int           `json:"attempt,omitempty"`
	Next      time.Time     `json:"next,omitzero"` // attempt
	Nodes     []Attachment  `json:"nodes"`

	Losses LossReport `json:"bill"` // once it is gone
	// Superseded are the steps that flush rules kept from the store, by buffer, once it is gone. They are no loss.
	Superseded []SupersededSteps `json:"-"`
	Rest       string            `json:"-"` // its fields of newer releases, encoded, which are kept
}

// LifetimeState is a lifetime's place in it.
type LifetimeState string

// The states of a lifetime.
const (
	LifetimeOpen     LifetimeState = "open"
	LifetimeDraining LifetimeState = "draining"
	LifetimeOrphan   LifetimeState = "orphan"
	LifetimeGone     LifetimeState = "gone"
)

// LifetimeStage is a copy between a store and a buffer, before a job or after it.
type LifetimeStage struct {
	Buffer string `json:"buffer"`
	Path   string `json:"path"`
	URL    string `json:"url"`

	ContinueOnError bool    `json:"continue_on_error,omitempty"` // in: the job runs even if it failed
	OnSuccess       bool    `json:"on_success,omitempty"`        // out: only if the job ended well
	Done            bool    `json:"done,omitempty"`              // out
	Attempt         int     `json:"attempt,omitempty"`           // in: how often its store did not answer
	Note            string  `json:"note,omitempty"`              // the files that were not copied, and why
	Bytes           int64   `json:"bytes,omitempty"`             // out: copied
	Seconds         float64 `json:"seconds,omitempty"`           // out: its duration
}

// LifetimeEnd is a buffer that outlives jobs, until this one has ended.
type LifetimeEnd struct {
	Buffer  string `json:"buffer"`
	Discard bool   `json:"discard,omitempty"` // even files that are not on its store
}

// Attachment is the presence of a job on a node.
type Attachment struct {
	Node     NodeID    `json:"node"`
	Instance string    `json:"instance,omitempty"` // of the daemon that it came to
	Attached bool      `json:"attached"`
	Since    time.Time `json:"since"`
	Failed   bool      `json:"failed,omitempty"` // the job ended badly, by this node's report
	Usage    Usage     `json:"figures"`
	// MissesDeadline is the time when the dirty bytes here would be on the store, where that is after Lifetime.Due.
	MissesDeadline time.Time `json:"late,omitzero"`
	Rest           string    `json:"-"` // its fields of newer releases, encoded, which are kept
}

// Usage is a buffer's work for a job on one node, or on all.
type Usage struct {
	Absorbed  int64   `json:"absorbed"`           // bytes committed
	Blocked   float64 `json:"blocked"`            // seconds that writers waited for room, added up
	PeakDirty int64   `json:"peak_dirty"`         // bytes in memory that were not on the store, at most
	Failures  int64   `json:"failures"`           // attempts to flush a file that failed
	Flushed   int64   `json:"flushed,omitempty"`  // bytes that the store received, of whole files
	Flushing  float64 `json:"flushing,omitempty"` // seconds in which it received them

	Dropped      int64 `json:"-"` // superseded files that were dropped from memory, which was short
	DroppedBytes int64 `json:"-"` // of them
}

// Add adds another node's figures. The peaks need not have been at the same time. All nodes are
// assumed to have flushed at the same time.
func (f *Usage) Add(o Usage) {
	f.Absorbed += o.Absorbed
	f.Blocked += o.Blocked
	f.PeakDirty += o.PeakDirty
	f.Failures += o.Failures
	f.Flushed += o.Flushed
	f.Flushing = max(f.Flushing, o.Flushing)
	f.Dropped += o.Dropped
	f.DroppedBytes += o.DroppedBytes
}

// Total returns the figures of all nodes.
func (l *Lifetime) Total() (f Usage) {
	for i := range l.Nodes {
		f.Add(l.Nodes[i].Usage)
	}
	return f
}

// The least amounts that measure the rate of a store.
const (
	ratedBytes   = 1 << 20
	ratedSeconds = 0.1
)

// StoreRate is the number of bytes a second that the store received from the job, from all nodes
// together. They came in flushes, or in stage-outs if there is no store behind its buffer. 0: the
// amount is too little for a rate.
func (l *Lifetime) StoreRate() float64 {
	f := l.Total()
	bytes, seconds := f.Flushed, f.Flushing
	if bytes < ratedBytes {
		bytes, seconds = 0, 0
		for i := range l.Out {
			bytes, seconds = bytes+l.Out[i].Bytes, seconds+l.Out[i].Seconds
		}
	}
	if bytes < ratedBytes || seconds < ratedSeconds {
		return 0
	}
	return float64(bytes) / seconds
}

// Saved is the least number of seconds that the job would have taken longer if it had written all
// bytes that the buffer absorbed straight to its store, at the store's rate. The time for which its
// writers were blocked is subtracted. Below zero, the buffer cost time. False: the rate was not
// measured.
func (l *Lifetime) Saved() (seconds float64, measured bool) {
	rate := l.StoreRate()
	if rate == 0 {
		return 0, false
	}
	f := l.Total()
	return float64(f.Absorbed)/rate - f.Blocked, true
}

// MissesDeadline returns the time when the dirty bytes of a running job would be on the store. If that is not
// later than it should be, it returns zero.
func (l *Lifetime) MissesDeadline() (by time.Time) {
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Attached && n.MissesDeadline.After(by) {
			by = n.MissesDeadline
		}
	}
	return by
}

// LossReport lists the unsaved files of buffers that are gone.
type LossReport struct {
	Files []LossLine `json:"files,omitempty"` // the first of them
	Total int64      `json:"total"`
	Bytes int64      `json:"bytes"`

	// Buffers splits Total and Bytes by the names of the buffers, for a second attempt at one
	// of them. Reports of older releases lack it.
	Buffers map[string]LossSum `json:"buffers,omitempty"`
}

// LossSum is how much of one buffer was not saved.
type LossSum struct {
	Total int64 `json:"total"`
	Bytes int64 `json:"bytes"`
}

// LossLine is one file that was not saved.
type LossLine struct {
	Path   string `json:"path"` // bb://BUFFER/path
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}
