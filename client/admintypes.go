package client

import "forebay/internal/bb"

// The words of the system that users of this package name.
type (
	// BufferSpec describes a buffer: what to create, and what is there.
	BufferSpec = bb.Buffer
	// BufferState is a buffer's place in its lifetime.
	BufferState = bb.BufferState
	// Existing says what becomes of files on the store that a buffer did not write.
	Existing = bb.Existing
	// Durability says what closing a file waits for.
	Durability = bb.Durability
	// TierRule places the files of a buffer that a pattern is about in a Tier.
	TierRule = bb.TierRule
	// Tier is where bytes lie: in memory or on the node's disk.
	Tier = bb.Tier
	// Event says that something happened to a file or a buffer.
	Event = bb.Event
	// EventKind names what happened.
	EventKind = bb.EventKind
	// NodeID names a node.
	NodeID = bb.NodeID
)

// The tiers.
const (
	TierMemory = bb.TierMemory
	TierDisk   = bb.TierDisk
)

// The rules for files on the store that a buffer did not write.
const (
	ExistingRefuse    = bb.ExistingRefuse
	ExistingKeep      = bb.ExistingKeep
	ExistingOverwrite = bb.ExistingOverwrite
)

// The durabilities and states of a buffer.
const (
	DurabilityResident = bb.DurabilityResident
	DurabilityFlushed  = bb.DurabilityFlushed
	BufferActive       = bb.BufferActive
	BufferOrphan       = bb.BufferOrphan
	BufferDestroying   = bb.BufferDestroying
)

// The kinds of events.
const (
	EventCommitted   = bb.EventCommitted
	EventFlushed     = bb.EventFlushed
	EventFlushFailed = bb.EventFlushFailed
	EventEvicted     = bb.EventEvicted
	EventRenamed     = bb.EventRenamed
	EventRemoved     = bb.EventRemoved
	EventLost        = bb.EventLost
	EventFound       = bb.EventFound
	EventUnexplained = bb.EventUnexplained
	EventDrained     = bb.EventDrained
	EventLate        = bb.EventLate
	EventCreated     = bb.EventCreated
	EventDestroyed   = bb.EventDestroyed
	EventTxnBegun    = bb.EventTxnBegun
	EventTxnDecided  = bb.EventTxnDecided
	EventTxnAborted  = bb.EventTxnAborted
	EventStoreFails  = bb.EventStoreFails
	EventStoreWorks  = bb.EventStoreWorks
)

// Progress tells how far long work has come.
type Progress struct {
	FilesTotal   int64
	FilesDone    int64
	FilesSkipped int64 // already there and equal
	BytesTotal   int64
	BytesDone    int64
	// BytesNotCopied are those of BytesDone of files that were skipped or have failed; an older
	// daemon says 0.
	BytesNotCopied int64
	LastError      string   // the newest passing failure of the store; the work goes on
	Names          []string // of a dry run: what would be copied, those new since the last call
	Job            string   // that goes on when the context ends; "": the work ends with it
}

// Report is the outcome of long work. It is valid beside an error too: it says how
// much was done and names what could not be.
type Report struct {
	Progress
	Failed      []Failure // what could not be done, at most as many as the daemon names
	FailedTotal int64
	Held        []string // of a drain: names held back by a keep pattern, at most 1,000
	HeldTotal   int64
	Open        []string // of a drain: names still open for writing, at most 1,000
	OpenTotal   int64
	TimedOut    bool // of a drain: its timeout passed before all was saved
}

// Conflicts returns the failures of a drain for which the store has a file that the buffer did not
// write, and Existing keeps it. The bytes stay in the buffer until Client.Overwrite replaces that
// file, StageIn takes its content, or either of the two gets another name.
func (r *Report) Conflicts() (list []Failure) {
	for _, f := range r.Failed {
		if f.Kind == bb.Exists {
			list = append(list, f)
		}
	}
	return list
}

// Failure names one file that could not be done.
type Failure struct {
	Path   string
	Kind   Kind
	Reason string
	Bytes  int64
}

// StageRequest says what to copy between a store and a buffer.
type StageRequest struct {
	Buffer   string
	Path     string // in the buffer; "" is the root
	URL      string // file:///path or s3://bucket/prefix
	DryRun   bool   // only name what would be copied
	Parallel int    // files at the same time; 0: the daemon chooses
}
