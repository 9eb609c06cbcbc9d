package client

import (
	"io/fs"
	"time"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// The words of the system that users of this package name.
type (
	// Error has the failed operation, the reason, and the remedy. Every error of this package is an
	// *Error of one of the kinds ErrNotFound, ErrExists, …:
	//
	//	if errors.Is(err, client.ErrNoSpace) { … }
	//
	// The standard library's errors match too, as in errors.Is(err, fs.ErrNotExist).
	Error = bb.Error
	// Kind is one of the closed set of error kinds, for errors.Is.
	Kind = bb.Kind
	// State is a file's state towards the backing store.
	State = bb.State
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

// ErrUnknownOutcome is a target of errors.Is that matches a failed change with an unknown outcome.
// It may have been carried out, or may be yet, since the connection broke, or the context ended,
// before the answer came. The client does not send such a change again. Check whether it was
// carried out. A change whose error does not match was not carried out, and never will be. The kind
// of the error is ErrUnavailable, or ErrCancelled if the context ended. For operations that change
// nothing it has no meaning.
var ErrUnknownOutcome = bb.ErrUnknownOutcome

// The states of a file.
const (
	StateOpen    = bb.StateOpen
	StateDirty   = bb.StateDirty
	StateClean   = bb.StateClean
	StateEvicted = bb.StateEvicted
	StateLost    = bb.StateLost
	// StateSuperseded is of a file that a flush rule never flushes, since a newer step is complete.
	StateSuperseded = bb.StateSuperseded
)

// ParseAddress reads bb://BUFFER/path.
func ParseAddress(s string) (Address, error) { return bb.ParseAddress(s) }

// KindOf returns the kind of an error of this package. nil has kind 0.
func KindOf(err error) Kind { return bb.KindOf(err) }

// The types of entries.
const (
	TypeFile      = bb.TypeFile
	TypeDirectory = bb.TypeDirectory
	TypeSymlink   = bb.TypeSymlink
	TypeFIFO      = bb.TypeFIFO
	TypeSocket    = bb.TypeSocket
)

// Entry is one file or directory of a buffer, or a symbolic link, FIFO or socket, as it was at the
// request.
type Entry struct {
	Path       string // in the buffer, clean: "" is the root
	Name       string // its last name
	Type       bb.EntryType
	File       bb.FileID     // of a file
	Dir        bb.DirID      // of a directory
	Generation bb.Generation // of a file: the newest committed one
	Size       int64         // bytes
	Checksum   uint64        // CRC-64/NVME of the whole content, unless State is StateOpen
	State      State         // towards the backing store
	Reason     string        // why it is lost, why its last flush failed, or where its size is known
	Holders    []bb.NodeID   // nodes that hold its bytes
	Mode       fs.FileMode   // permission bits only
	UID        uint32
	GID        uint32
	ModTime    time.Time
	Flushed    bb.Flushed // the file's state on the backing store; Generation 0: nothing
	Target     string     // of a symbolic link
}

// IsFile reports whether the entry is a file.
func (e *Entry) IsFile() bool { return e.Type == bb.TypeFile }

// IsDir reports whether the entry is a directory.
func (e *Entry) IsDir() bool { return e.Type == bb.TypeDirectory }

// id is the number of the file or directory.
func (e *Entry) id() uint64 {
	if e.IsDir() {
		return uint64(e.Dir)
	}
	return uint64(e.File)
}

// asEntry makes the entry of a path that a message stands for.
func asEntry(path string, m *wire.Entry) Entry {
	e := m.AsEntry()
	return Entry{
		Path: path, Name: e.Name, Type: e.Type, File: e.File, Dir: e.Dir, Generation: e.Generation,
		Size: e.Size, Checksum: e.Checksum, State: State(m.State), Reason: e.Reason, Holders: e.Holders,
		Mode: e.Mode, UID: e.UID, GID: e.GID, ModTime: e.MTime, Flushed: e.Flushed, Target: e.Target,
	}
}

// ServerInfo describes the daemon that a client is connected to, and the connection.
type ServerInfo struct {
	Address  string // as it was dialled
	Node     bb.NodeID
	Version  string // "bbd 1.2"
	Protocol uint32 // the session's version
	Instance uint64 // changes when the node's memory was lost
	Epoch    uint64 // changes with every start of the daemon
	UID      uint32 // the user for whom the daemon acts
	GID      uint32
	Mapped   bool // bytes move through mapped memory, not in messages
}
