// Package content is the bytes of a file that programs have open: they go to the daemon and come from there, or are those of
// a file whose name is gone. It must never depend on names, nor on the kernel's requests.
package content

import (
	"context"
	"time"

	"forebay/client"
	"forebay/internal/bb"
)

// Content is the bytes of a file that is open, shared by all openers on this mount, so that each reads others' writes
// at once. ReadAt may be called beside ReadAt, Unsaved at any time. Every other call is alone.
type Content interface {
	ReadAt(ctx context.Context, p []byte, off int64) (int, error) // io.EOF: there is no more
	WriteAt(ctx context.Context, p []byte, off int64) (int, error)
	Truncate(ctx context.Context, size int64) error
	Sync(ctx context.Context) error
	// Release commits the written bytes, and closes the file for writing until it is written again.
	Release(ctx context.Context) error
	// Unsaved returns the state that the daemon does not have yet, or nil if there is none.
	Unsaved() *Unsaved
	// Detach returns the content that continues when the file's name is removed or another file's.
	// The caller discards one of the two.
	Detach(ctx context.Context) (Content, error)
	// Discard closes everything, and drops uncommitted bytes.
	Discard()
}

// Unsaved is the state of a file that differs from the daemon's.
type Unsaved struct {
	Size    int64 // bytes
	ModTime time.Time
}

// File is a file of the buffer that was opened for an owner. Its methods are those of client.File.
type File interface {
	ReadAtContext(ctx context.Context, p []byte, off int64) (int, error)
	WriteAtContext(ctx context.Context, p []byte, off int64) (int, error)
	SyncContext(ctx context.Context) error
	SetModTime(t time.Time) error
	Extend(size int64) error
	Close() error
	Abort()
	Alone() bb.Generation
}

// Owner is the file whose content it is. Its methods may be called concurrently, and wait as long as the file's requests do.
type Owner interface {
	// Open opens the file where it is now, and returns its entry. If its name is nobody's or another file's, that fails with
	// syscall.ESTALE. The content closes what was opened. Open holds the path until it returns, but not while it waits for
	// another node's daemon.
	Open(ctx context.Context, o client.OpenOptions) (File, client.Entry, error)
	// Stat returns the daemon's entry of the file.
	Stat(ctx context.Context) (client.Entry, error)
	// Until repeats do while another node's daemon that it needs is away, and returns its last error.
	Until(ctx context.Context, do func() error) error
	// Moved reports whether the path of an open file has changed since the last call.
	Moved() bool
	// Closing is called before a file that was written is closed, and the returned function after it, with what was unsaved
	// and the error of the close. Meanwhile Unsaved returns the same state.
	Closing() (closed func(u *Unsaved, err error))
	// Closed is called whenever a file that was written is closed, and before Unsaved returns nil. It does not wait.
	Closed()
}
