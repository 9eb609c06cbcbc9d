package client

import (
	"io/fs"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// The words of the system that users of this package name.
type (
	// Error says what failed, why, and what to do about it.
	Error = bb.Error
	// Kind is one of the closed set of error kinds, for errors.Is.
	Kind = bb.Kind
	// TierRule places the files of a buffer that a pattern is about in a Tier.
	TierRule = bb.TierRule
	// Tier is where bytes lie: in memory or on the node's disk.
	Tier = bb.Tier
	// BufferSpec describes a buffer: what to create, and what is there.
	BufferSpec = bb.Buffer
	// BufferState is a buffer's place in its lifetime.
	BufferState = bb.BufferState
	// Existing says what becomes of files on the store that a buffer did not write.
	Existing = bb.Existing
	// Durability says what Close waits for.
	Durability = bb.Durability
	// Event says that something happened to a file or a buffer.
	Event = bb.Event
	// EventKind names what happened.
	EventKind = bb.EventKind
	// EntryType says what an entry names.
	EntryType = bb.EntryType
	// State is a file's state towards the backing store.
	State = bb.State
	// Flushed says what the backing store holds of a file.
	Flushed = bb.Flushed
	// FileID identifies a file for ever, across renames.
	FileID = bb.FileID
	// Generation numbers the contents that a file has had.
	Generation = bb.Generation
	// NodeID names a node.
	NodeID = bb.NodeID
	// Address is the parsed form of bb://BUFFER/path.
	Address = bb.Address
)

// The kinds of errors, as targets of errors.Is.
const (
	ErrInternal     = bb.Internal
	ErrNotFound     = bb.NotFound
	ErrExists       = bb.Exists
	ErrNotDirectory = bb.NotDirectory
	ErrIsDirectory  = bb.IsDirectory
	ErrNotEmpty     = bb.NotEmpty
	ErrPermission   = bb.Permission
	ErrNoSpace      = bb.NoSpace
	ErrUnavailable  = bb.Unavailable
	ErrLost         = bb.Lost
	ErrChecksum     = bb.Checksum
	ErrBusy         = bb.Busy
	ErrInvalid      = bb.Invalid
	ErrUnsupported  = bb.Unsupported
	ErrCancelled    = bb.Cancelled
)

// ErrUnknownOutcome tells, as a target of errors.Is, what became of a change that failed:
// it may have been carried out, or may be yet, since the connection broke, or the context
// ended, before the answer came. The client does not send such a change again; look whether
// it was done. A change whose error does not match was not carried out, and never will be.
// The kind of the error is ErrUnavailable, or ErrCancelled if the context ended. For what
// changes nothing it means nothing.
var ErrUnknownOutcome = bb.ErrUnknownOutcome

// The types of entries.
const (
	TypeFile      = bb.TypeFile
	TypeDirectory = bb.TypeDirectory
)

// The tiers.
const (
	TierMemory = bb.TierMemory
	TierDisk   = bb.TierDisk
)

// The states of a file.
const (
	StateOpen    = bb.StateOpen
	StateDirty   = bb.StateDirty
	StateClean   = bb.StateClean
	StateEvicted = bb.StateEvicted
	StateLost    = bb.StateLost
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

// ParseAddress reads bb://BUFFER/path.
func ParseAddress(s string) (Address, error) { return bb.ParseAddress(s) }

// KindOf returns the kind of an error of this package; nil has kind 0.
func KindOf(err error) Kind { return bb.KindOf(err) }

// Entry is one file or directory of a buffer, as it was when it was asked for.
type Entry struct {
	Path       string // in the buffer, clean: "" is the root
	Name       string // its last name
	Type       EntryType
	File       FileID      // of a file
	Generation Generation  // of a file: the newest committed one
	Size       int64       // bytes
	Checksum   uint64      // CRC-64/NVME of the whole content, unless State is StateOpen
	State      State       // towards the backing store
	Reason     string      // why it is lost, or why its last flush failed
	Holders    []NodeID    // nodes that hold its bytes
	Mode       fs.FileMode // permission bits only
	UID        uint32
	GID        uint32
	ModTime    time.Time
	Flushed    Flushed // what the backing store holds of it; Generation 0: nothing
}

// IsDir reports whether the entry is a directory.
func (e *Entry) IsDir() bool { return e.Type == TypeDirectory }

// asEntry makes the entry of a path that a message stands for.
func asEntry(path string, m *wire.Entry) Entry {
	e := m.AsEntry()
	return Entry{
		Path: path, Name: e.Name, Type: e.Type, File: e.File, Generation: e.Generation,
		Size: e.Size, Checksum: e.Checksum, State: State(m.State), Reason: e.Reason, Holders: e.Holders,
		Mode: e.Mode, UID: e.UID, GID: e.GID, ModTime: e.MTime, Flushed: e.Flushed,
	}
}

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

// ServerInfo says which daemon a client talks to, and how.
type ServerInfo struct {
	Address  string // as it was dialled
	Node     NodeID
	Version  string // "bbd 1.2"
	Protocol uint32 // the version that the session speaks
	Instance uint64 // changes when the node's memory was lost
	Epoch    uint64 // changes with every start of the daemon
	UID      uint32 // who the daemon takes this client for
	GID      uint32
	Mapped   bool // bytes move through mapped memory, not in messages
}
