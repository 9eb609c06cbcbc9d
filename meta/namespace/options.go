package namespace

import (
	"context"
	"io/fs"
	"time"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/kv"
)

// Attr are the attributes that SetAttr changes. nil leaves one as it is.
type Attr struct {
	Mode  *fs.FileMode // permission bits
	UID   *uint32
	GID   *uint32
	MTime *time.Time
	Xattr *xattr.Change // of one extended attribute
	// Revision, if not 0, is the one that the entry is expected to have. Otherwise the error is Busy with ErrConflict.
	Revision uint64
}

// Apply changes an entry. After an error it is as it was.
func (a *Attr) Apply(e *bb.Entry) error {
	if a.Revision != 0 && a.Revision != e.Revision {
		return kv.Wrap("setattr", e.Name, kv.ErrRevision)
	}
	if a.Xattr != nil {
		if e.Type.Special() {
			return bb.E(bb.Permission, "setattr", e.Name, "it is "+e.Type.Noun()+", which has no extended attributes")
		}
		xattrs, err := xattr.List(e.Xattrs).Apply(a.Xattr)
		if err != nil {
			return err
		}
		e.Xattrs = string(xattrs)
	}
	if a.Mode != nil {
		e.Mode = a.Mode.Perm()
	}
	if a.UID != nil {
		e.UID = *a.UID
	}
	if a.GID != nil {
		e.GID = *a.GID
	}
	if a.MTime != nil {
		e.MTime = *a.MTime
	}
	return nil
}

// Owner is the owner of a new directory, and the rights of its users.
type Owner struct {
	UID, GID uint32
	Mode     fs.FileMode // permission bits
}

// RenameOptions are the options of Rename.
type RenameOptions struct {
	// Replace allows a file to replace a file and a directory an empty directory, as rename(2)
	// does. Without it any entry at the new place is Exists.
	Replace bool
	// StoreOp leaves a StoreOp in the same atomic change.
	StoreOp bool
}

// Renamed is the result of a rename.
type Renamed struct {
	Entry    bb.Entry  // at its new place
	Replaced *bb.Entry // the entry that was there before; nil if none
}

// RemoveOptions are the options of Remove and RemoveAll.
type RemoveOptions struct {
	// StoreOp leaves a StoreOp for the removed entry, in the same atomic change.
	StoreOp bool
	// Revision, if not 0, is the one that Remove expects the entry to have. Otherwise the error is
	// Busy with ErrConflict.
	Revision uint64
}

// IDs returns ids that are used nowhere else, ever.
type IDs interface {
	Next(ctx context.Context) (uint64, error)
}
