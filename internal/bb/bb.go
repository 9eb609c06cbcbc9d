// Package bb holds Forebay's words as types: ids, names, entries, states and error kinds. Every other package
// may import it. It must never do I/O, nor import more than the standard library.
package bb

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"
)

// Scheme is the URL scheme that addresses files in buffers: bb://BUFFER/path.
const Scheme = "bb"

// Bounds that hold everywhere, on the command line, on the wire, in the namespace.
const (
	MaxName       = 255  // bytes in one name
	MaxPath       = 4096 // bytes in a path
	MaxDepth      = 128  // names in a path
	MaxBufferName = 63   // bytes in a buffer's name
	MaxPageSize   = 10_000
	MaxFileSize   = 1 << 50 // bytes: 1 PiB
)

// NodeID names a node, the host name, or the configured name.
type NodeID string

// InstanceID identifies one life of a daemon on a node. It survives a restart
// that adopts the node's regions and changes when they were lost.
type InstanceID uint64

// String returns the id as sixteen hexadecimal digits.
func (id InstanceID) String() string { return hex16(uint64(id)) }

// FileID identifies a file for ever, across renames. Ids are never used again.
type FileID uint64

// String returns the id as sixteen hexadecimal digits.
func (id FileID) String() string { return hex16(uint64(id)) }

// DirID identifies a directory for ever, across renames.
type DirID uint64

// RootDir is the directory at the root of every buffer.
const RootDir DirID = 1

// String returns the id as sixteen hexadecimal digits.
func (id DirID) String() string { return hex16(uint64(id)) }

// Generation numbers the contents that a file has had. Opening a closed file for writing makes a
// new, larger one. 0 means none.
type Generation uint64

// RegionID identifies a region of one node.
type RegionID uint64

// String returns the id as sixteen hexadecimal digits.
func (id RegionID) String() string { return hex16(uint64(id)) }

// LeaseID identifies a writer's right to fill a segment, within one instance of a daemon.
type LeaseID uint64

func hex16(v uint64) string {
	var b [8]byte
	for i := range b {
		b[i] = byte(v >> (56 - 8*i))
	}
	return hex.EncodeToString(b[:])
}

// ParseFileID is the inverse of FileID.String.
func ParseFileID(s string) (FileID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 {
		return 0, fmt.Errorf("file id %q is not sixteen hexadecimal digits", s)
	}
	return FileID(v), nil
}

// Tier is the place of a region.
type Tier uint8

// The tiers, fastest first.
const (
	TierMemory Tier = iota
	TierDisk
)

// String returns the tier's name.
func (t Tier) String() string {
	switch t {
	case TierMemory:
		return "memory"
	case TierDisk:
		return "disk"
	default:
		return "tier(" + strconv.Itoa(int(t)) + ")"
	}
}

// EntryType is the type of an entry.
type EntryType uint8

// The types of entries.
const (
	TypeFile EntryType = 1 + iota
	TypeDirectory
	TypeSymlink
	TypeFIFO
	TypeSocket
)

// String returns the type's name.
func (t EntryType) String() string {
	switch t {
	case TypeFile:
		return "file"
	case TypeDirectory:
		return "directory"
	case TypeSymlink:
		return "symlink"
	case TypeFIFO:
		return "fifo"
	case TypeSocket:
		return "socket"
	default:
		return "type(" + strconv.Itoa(int(t)) + ")"
	}
}

// Special reports whether entries of the type are neither files nor directories. They have no bytes in memory. A
// symbolic link is flushed as a file whose content is its target. Of the others the daemon keeps the name alone.
func (t EntryType) Special() bool { return t == TypeSymlink || t == TypeFIFO || t == TypeSocket }

// Noun is the noun for an entry of the type in a sentence.
func (t EntryType) Noun() string {
	switch t {
	case TypeFile:
		return "a file"
	case TypeDirectory:
		return "a directory"
	case TypeSymlink:
		return "a symbolic link"
	case TypeFIFO:
		return "a FIFO"
	case TypeSocket:
		return "a socket"
	default:
		return "of " + t.String()
	}
}

// Mode is the type as the bits of a mode.
func (t EntryType) Mode() fs.FileMode {
	switch t {
	case TypeDirectory:
		return fs.ModeDir
	case TypeSymlink:
		return fs.ModeSymlink
	case TypeFIFO:
		return fs.ModeNamedPipe
	case TypeSocket:
		return fs.ModeSocket
	}
	return 0
}

// MaxTarget bounds the target of a symbolic link, in bytes. It is the kernel's limit.
const MaxTarget = 4095

// NotFile returns the error of using an entry at a path as a file, nil if it is one.
func NotFile(op, path string, t EntryType, target string) error {
	switch {
	case t == TypeDirectory:
		return E(IsDirectory, op, path, "it is a directory")
	case t == TypeSymlink:
		return E(Unsupported, op, path, "it is a symbolic link to "+Printable(target)+", which only a mount follows").WithRemedy("use its target")
	case t.Special():
		return E(Unsupported, op, path, "it is "+t.Noun()+", which only programs on a mount can open")
	}
	return nil
}

// Entry is one name in one directory of a buffer.
type Entry struct {
	Parent DirID
	Name   string
	Type   EntryType

	Dir DirID // of a directory: its own id
	Txn TxnID // of a directory: the transaction that is committed into it and whose output lies elsewhere still

	File       FileID     // of all but directories
	Generation Generation // of a file: the newest committed one; of a symbolic link in a buffer with a store: of its target
	Size       int64      // bytes, of a link those of its target; while Open, only the holders have the present size
	Checksum   uint64     // CRC-64/NVME of the whole content, valid unless Open
	Open       bool       // a writer has committed (Sync) but not closed this generation
	Holders    []NodeID   // nodes that hold extents of this generation

	Mode  fs.FileMode // permission bits only
	UID   uint32
	GID   uint32
	MTime time.Time

	Extras

	Flushed Flushed // the state of this file on the backing store
	Before  *Before // nil: none. Copies of the entry share it, so that it never changes (see SetBefore)
	Closed  Closing // when its writers had closed it; recorded in buffers with flush rules
	Lost    bool    // its bytes went with a node before they were flushed
	Reason  string  // why it was lost: node and cause

	Revision uint64 // the namespace's revision of this entry; 0 when not stored yet
	Rest     string // its fields of newer releases, encoded, which are kept
}

// Extras are fields that few entries need.
type Extras struct {
	Target string // of a symbolic link: where it leads, as it was written; never empty
	Xattrs string // the extended attributes of a file or directory, encoded by internal/xattr
}

// Before is the older contents that the backing store may hold under an entry's name. Few entries have any, and
// entries are copied often, so their size counts.
type Before struct {
	// Replaced is, until the first flush of this file, the store's object under its name. It is of
	// the file that a rename replaced by this one. It stays until the flush replaces it, or the
	// name is removed, so that a durable name stays durable.
	Replaced Flushed
	// Attempts are older contents of the file, or of one that a rename replaced by it. A flush may
	// have put them under its name without its record (see Unrecorded).
	Attempts []Content
}

// Replaced returns the content of Before of that name, or zero if there is none.
func (e *Entry) Replaced() Flushed {
	if e.Before == nil {
		return Flushed{}
	}
	return e.Before.Replaced
}

// Attempts returns the contents of Before of that name, which must not be changed.
func (e *Entry) Attempts() []Content {
	if e.Before == nil {
		return nil
	}
	return e.Before.Attempts
}

// SetBefore replaces Before.
func (e *Entry) SetBefore(replaced Flushed, attempts []Content) {
	e.Before = nil
	if replaced != (Flushed{}) || len(attempts) > 0 {
		e.Before = &Before{replaced, attempts}
	}
}

// Closing is the place of a generation's close in the order of the namespace's changes. It depends on no clock,
// no client can set it, and renames and changes of attributes keep it. A generation has none if one of its
// writers left without a close, since its end was made up by the daemon.
type Closing struct {
	Generation Generation // that was closed; 0: none was
	Revision   uint64     // of the entry that the close stored. 0 in a stored entry: that entry's own
}

// SetRevision sets the revision that the namespace has stored the entry with.
func (e *Entry) SetRevision(revision uint64) {
	e.Revision = revision
	if e.Closed.Generation != 0 && e.Closed.Revision == 0 {
		e.Closed.Revision = revision
	}
}

// ClosedAt returns the revision at which the last of the generation's writers closed it. If they
// did not all close it, or that is not known, it returns 0.
func (e *Entry) ClosedAt() uint64 {
	if e.Open || e.Lost || e.Generation == 0 || e.Closed.Generation != e.Generation {
		return 0
	}
	return e.Closed.Revision
}

// WrittenBy returns a revision by which all of the generation was written. Without a close that is known, it is the
// entry's own, which later changes of the entry raise.
func (e *Entry) WrittenBy() uint64 { return cmp.Or(e.ClosedAt(), e.Revision) }

// Place is the place of an entry: one name in one directory. The rename of a directory does not
// change the places of its entries.
type Place struct {
	Dir  DirID
	Name string
}

// In returns the path of the place in a directory whose path is dir, "" for the root.
func (p Place) In(dir string) string {
	if dir == "" {
		return p.Name
	}
	return dir + "/" + p.Name
}

// Place returns where the entry lies.
func (e *Entry) Place() Place { return Place{e.Parent, e.Name} }

// IsDir reports whether the entry is a directory.
func (e *Entry) IsDir() bool { return e.Type == TypeDirectory }

// State returns the file's state towards the backing store.
func (e *Entry) State() State {
	switch {
	case e.Type == TypeDirectory || e.Type.Special() && e.Generation == 0:
		return StateClean // a link of a buffer without a store has no generation
	case e.Lost:
		return StateLost
	case e.Open:
		return StateOpen
	case e.Flushed.Generation == e.Generation && e.Generation != 0:
		return StateClean
	default:
		return StateDirty
	}
}

// Stored returns the backing store's object under the entry's name, which is of this file, or of
// the one that it replaced.
func (e *Entry) Stored() Flushed {
	if e.Flushed.Generation != 0 {
		return e.Flushed
	}
	return e.Replaced()
}

// SetFlushed records a flush, which has replaced the store's object under the name.
func (e *Entry) SetFlushed(f Flushed) { e.Flushed, e.Before = f, nil }

// Content distinguishes the contents of a file.
type Content struct {
	Size     int64
	Checksum uint64 // CRC-64/NVME
}

// MaxAttempts bounds Before.Attempts. The oldest go first, since their contents are in conflict
// with the file then, if they are on the store, and nothing is replaced or lost.
const MaxAttempts = 64

// Unrecorded returns the contents that the store may hold under the file's name without a record,
// the oldest first. A flush puts an object before the namespace records it.
func (e *Entry) Unrecorded() []Content {
	switch state := e.State(); {
	case e.IsDir() || state == StateClean:
		return nil
	case state == StateOpen, state == StateLost && e.Size == 0: // its content is unknown
		return e.Attempts()
	}
	return AddContents(e.Attempts(), Content{e.Size, e.Checksum})
}

// Supersede is called before the entry names another generation.
func (e *Entry) Supersede() { e.SetBefore(e.Replaced(), e.Unrecorded()) }

// AddContents appends contents to a list that holds each once and at most MaxAttempts. The list
// itself is not changed.
func AddContents(list []Content, more ...Content) []Content {
	list = slices.Clone(list)
	for _, c := range more {
		if i := slices.Index(list, c); i >= 0 {
			list = slices.Delete(list, i, i+1)
		}
		list = append(list, c)
	}
	return list[max(0, len(list)-MaxAttempts):]
}

// LostReason is the reason why the file is lost, with the store's object in its place.
func (e *Entry) LostReason() string {
	if !e.Lost || e.Stored().Generation == 0 || e.Flushed.Generation == e.Generation {
		return e.Reason
	}
	return e.Reason + "; the store has an older version under its name"
}

// Flushed is the state of a file on the backing store. Its name in the store is the
// file's path in the buffer followed by the codec's suffix.
type Flushed struct {
	Generation Generation // the generation that is in the store; 0: none ever was
	ETag       string     // the store's name of this content: an entity tag or inode:mtime
	Size       int64      // bytes in the store, after compression
	Checksum   uint64     // CRC-64/NVME of the bytes in the store
	Codec      string     // "", "zstd" or "s2"
	At         time.Time
	By         NodeID
	Layout     string // how the store has placed it, in the words of its file system; "": not known
	Rest       string // its fields of newer releases, encoded, which are kept
}

// State is a file's state towards the backing store.
type State uint8

// The states of a file.
//
//	open ──close──▶ dirty ──flush──▶ clean ──evict──▶ evicted
//	  ▲               │  node lost      │ open for writing
//	  │               ▼                 │
//	  └── (new      lost                │
//	   generation) ◀────────────────────┘
const (
	StateOpen State = 1 + iota
	StateDirty
	StateClean
	StateEvicted
	StateLost
	StateSuperseded // dirty, in a step that a flush rule never flushes; it is the daemon's state, and not in the entry
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case StateOpen:
		return "open"
	case StateDirty:
		return "dirty"
	case StateClean:
		return "clean"
	case StateEvicted:
		return "evicted"
	case StateLost:
		return "lost"
	case StateSuperseded:
		return "superseded"
	default:
		return "state(" + strconv.Itoa(int(s)) + ")"
	}
}

// Durability is the event that Close waits for.
type Durability string

// The durabilities of a buffer.
const (
	DurabilityResident Durability = "resident" // Close returns when the bytes are committed in memory
	DurabilityFlushed  Durability = "flushed"  // Close returns when they are on the backing store
)

// Buffer is a named allocation, which is a namespace with an owner, a capacity, a backing store,
// policies and a lifetime.
type Buffer struct {
	Name       string
	UID        uint32
	GID        uint32
	Mode       fs.FileMode // permission bits of the root directory
	Capacity   int64       // bytes of dirty and resident data it may hold; 0: no limit of its own
	Backing    string      // file:///path or s3://bucket/prefix; "" for a scratch buffer that is never flushed
	BackingID  string      // which directory Backing was when the buffer was made; "": unknown
	Durability Durability
	Codec      string   // compression on the way out: "", "zstd" or "s2"
	NoFlush    []string // patterns of names that are only passing and are not flushed
	Existing   Existing // the fate of files of the store that the buffer did not write
	Findings
	Shared     bool          // its store may overlap those of other buffers; only in the request to create it
	Tiers      []TierRule    // which files go to disk rather than stay in memory; the first that fits counts
	Flush      []FlushRule   // which steps of a series are flushed; the first that fits counts
	FlushLimit int64         // bytes a second to the store; 0: no limit
	DirtyAge   time.Duration // oldest a dirty byte may get before a flush of it begins; 0: the daemon's default
	NoWait     bool          // writes without room fail with NoSpace instead of waiting
	Receipt    bool          // keep the receipt on the store beside the data
	Job        string        // the job it belongs to; "" until destroyed
	Replicas   int           // nodes that hold each committed byte: 0 or 1, or 2
	Created    time.Time
	State      BufferState
	Revision   uint64
	Rest       string // its fields of newer releases, encoded, which are kept
}

// Existing is the treatment of files on the store that a buffer did not write.
type Existing string

// The treatments. ExistingKeep is the default of a new buffer. The record of an older one without a
// value means ExistingOverwrite.
const (
	ExistingRefuse    Existing = "refuse"    // no buffer is made on a store that holds something, and it keeps objects that appear later
	ExistingKeep      Existing = "keep"      // a file of the buffer that has the name of one stays in memory
	ExistingOverwrite Existing = "overwrite" // it is replaced
)

// MaxFound is the number of files up to which those of a new buffer's store are counted.
const MaxFound = 1000

// FoundText returns the number of files that a store held when a buffer was made, and names one.
func FoundText(total int, name string) string {
	switch {
	case total > MaxFound:
		return fmt.Sprintf("more than %d files, among them %s", MaxFound, Printable(name))
	case total > 1:
		return Count(total, "file") + ", among them " + Printable(name)
	case total == 1:
		return "1 file, " + Printable(name)
	}
	return "files, among them " + Printable(name) // a daemon of an older release does not count
}

// Keeps reports whether such files stay.
func (e Existing) Keeps() bool { return e == ExistingKeep || e == ExistingRefuse }

// BufferState is a buffer's place in its lifetime.
type BufferState string

// The states of a buffer follow. An orphan is one whose job is gone and whose teardown was
// abandoned. It goes on draining.
const (
	BufferActive     BufferState = "active"
	BufferOrphan     BufferState = "orphan"
	BufferDestroying BufferState = "destroying"
)

// DefaultNoFlush are the patterns of temporary names, which are of files that Hadoop, Spark and many
// tools rename when they are whole.
func DefaultNoFlush() []string { return []string{"_temporary/", ".spark-staging*/", "*.tmp"} }

// Event reports a change of a file or a buffer.
type Event struct {
	Time       time.Time  `json:"time"`
	Kind       EventKind  `json:"kind"`
	Buffer     string     `json:"buffer"`
	Path       string     `json:"path,omitempty"`
	Generation Generation `json:"generation,omitempty"`
	Bytes      int64      `json:"bytes,omitempty"`
	Node       NodeID     `json:"node,omitempty"`
	Reason     string     `json:"reason,omitempty"`
}

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	EventCommitted   EventKind = "committed"
	EventFlushed     EventKind = "flushed"
	EventFlushFailed EventKind = "flush-failed"
	EventEvicted     EventKind = "evicted"
	EventRenamed     EventKind = "renamed"
	EventRemoved     EventKind = "removed"
	EventLost        EventKind = "lost"
	EventFound       EventKind = "found"       // the namespace had forgotten a file, which has an entry again; see Reason
	EventUnexplained EventKind = "unexplained" // dirty bytes that no entry explains, and that stay; see Reason
	EventAside       EventKind = "set-aside"   // a buffer whose namespace could not be read at a start; see Reason
	EventDrained     EventKind = "drained"
	EventLate        EventKind = "late" // a job will end before its buffer is on the store
	EventCreated     EventKind = "buffer-created"
	EventDestroyed   EventKind = "buffer-destroyed"
	EventTxnBegun    EventKind = "txn-begun"
	EventTxnDecided  EventKind = "txn-committed"
	EventTxnAborted  EventKind = "txn-aborted"
	EventStoreFails  EventKind = "store-fails"   // calls of the buffer's store fail, or have no answer, on that node; see Reason
	EventStoreWorks  EventKind = "store-answers" // the store answers that node again
	EventSuperseded  EventKind = "superseded"    // a step was dropped that was never flushed, since a newer one is complete; see Reason
	EventMissed      EventKind = "missed"        // the listener, or a daemon that publishes, was too slow; see Reason
	EventChanged     EventKind = "changed"       // attributes of an entry, or synced bytes of a file that is being written again
)
