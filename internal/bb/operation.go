package bb

import "time"

// Operation is a stage-in, stage-out or drain that daemons do together, and how far it is.
type Operation struct {
	ID      string    `json:"id"`
	Kind    string    `json:"kind"` // stage-in, stage-out, drain
	Buffer  string    `json:"buffer"`
	Path    string    `json:"path,omitempty"`
	URL     string    `json:"url,omitempty"`
	UID     uint32    `json:"uid"`   // the user that requested it
	State   string    `json:"state"` // running, done, cancelled, OperationFailed, OperationIncomplete
	Created time.Time `json:"created"`
	Ended   time.Time `json:"ended,omitzero"`

	Tasks     int `json:"tasks"` // that are known by now
	Running   int `json:"running"`
	TasksDone int `json:"tasks_done"`

	// Totals grow while more files are found. Skipped files count as done.
	Files     int64 `json:"files"`
	FilesDone int64 `json:"files_done"`
	Skipped   int64 `json:"skipped"`
	Bytes     int64 `json:"bytes"`
	BytesDone int64 `json:"bytes_done"`

	BytesNotCopied int64 `json:"bytes_not_copied,omitempty"` // done, of files that were skipped or have failed

	Failed        []OperationFailure        `json:"failed,omitempty"` // the first of them
	FailedTotal   int64                     `json:"failed_total"`
	ExcludedTotal int64                     `json:"held_total"` // names held back by a keep pattern
	OpenTotal     int64                     `json:"open_total"` // files open for writing
	LastError     string                    `json:"last_error,omitempty"`
	Nodes         map[NodeID]OperationShare `json:"nodes,omitempty"` // the nodes that do it

	// Superseded are steps that a drain has not flushed, since newer ones are complete. Only the
	// first of them are here.
	Superseded      []string `json:"-"`
	SupersededTotal int64    `json:"-"`
}

// The states of an operation that has ended and has left something out.
const (
	OperationFailed     = "failed"     // some files failed
	OperationIncomplete = "incomplete" // nothing failed; names were held back by a keep pattern, or files were open
)

// OperationShare is one node's part of an operation.
type OperationShare struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// OperationFailure is a file that an operation could not deal with.
type OperationFailure struct {
	Path   string `json:"path,omitempty"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Bytes  int64  `json:"bytes"`
}
