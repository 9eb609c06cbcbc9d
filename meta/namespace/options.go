package namespace

import (
	"context"
	"io/fs"
	"time"

	"forebay/internal/bb"
)

// Attr are the attributes that SetAttr changes; nil leaves one as it is.
type Attr struct {
	Mode  *fs.FileMode // permission bits
	UID   *uint32
	GID   *uint32
	MTime *time.Time
}

// Owner is who a new directory belongs to, and what its users may do.
type Owner struct {
	UID, GID uint32
	Mode     fs.FileMode // permission bits
}

// RenameOptions say how Rename goes about it.
type RenameOptions struct {
	// Replace lets a file replace a file and a directory an empty directory, as
	// rename(2) does; without it any entry at the new place is Exists.
	Replace bool
	// StoreOp leaves a StoreOp in the same atomic change.
	StoreOp bool
}

// Renamed is what a rename did.
type Renamed struct {
	Entry    bb.Entry  // at its new place
	Replaced *bb.Entry // what was there before; nil if nothing
}

// RemoveOptions say how Remove and RemoveAll go about it.
type RemoveOptions struct {
	// StoreOp leaves a StoreOp for what is removed, in the same atomic change.
	StoreOp bool
	// Revision, if not 0, is the one that Remove expects the entry to have; else
	// Busy with ErrConflict.
	Revision uint64
}

// IDs gives ids that are used nowhere else, ever.
type IDs interface {
	Next(ctx context.Context) (uint64, error)
}
