package backing

import (
	"context"
	"io"
	"io/fs"
	"time"

	"forebay/internal/bb"
	"forebay/internal/xattr"
)

// Store is one root in a backing store: a directory, or a prefix in a bucket.
//
// Names are relative to the root: parts joined by single slashes, without "."
// or "..", as bb.CleanPath returns them. Any other name is refused as
// bb.Invalid before anything is touched. Names that this package makes for
// unfinished work (see Owner) are never listed.
//
// An object is a file, or a symbolic link: Object.Mode then has fs.ModeSymlink, and its content is the target as it
// was written. No method follows the link that has a name.
//
// All methods may be called concurrently. Every call ends soon after its context does. Errors are
// *bb.Error. Passing decides which of them may pass.
type Store interface {
	Reader
	Writer

	// Check finds out whether the root can be reached, written and read back, and that the store
	// confirms checksums. The error has a remedy. It leaves nothing behind.
	Check(ctx context.Context) error

	// Sweep removes the remains of Puts that a crash ended, and returns how many it removed. It
	// never touches the work of a living owner, nor anything that was not made by this package (see
	// Owner.Abandoned).
	Sweep(ctx context.Context) (int, error)

	// Leftovers lists unfinished work, and removes the selected part of it. It never touches the
	// work of a daemon that may live, nor files that no Owner named. A missing directory has none.
	// With an error it returns its findings so far.
	Leftovers(ctx context.Context, in Within) ([]Leftover, error)

	// Close releases connections. Calls in progress may fail as bb.Unavailable.
	// Closing again does nothing.
	Close() error
}

// Reader reads from a root.
type Reader interface {
	// Get returns n bytes from offset off of an object. A negative n means up to its end. The
	// reader returns io.ErrUnexpectedEOF when the object ends before. The caller closes it. A name
	// without object is bb.NotFound. Get does not verify. A caller that has the checksum wraps the
	// reader with Verify.
	Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error)

	// Stat describes one object. It returns bb.NotFound if there is none. A directory is not an object.
	Stat(ctx context.Context, name string) (Object, error)

	// List calls fn for every object whose name begins with prefix, in no particular order. It
	// holds no more than one page. An empty prefix means all. A prefix with a trailing slash means
	// the objects below that directory. An error of fn ends the listing and is returned as it is.
	// fn may call the store.
	List(ctx context.Context, prefix string, fn func(Object) error) error

	// Others calls fn, as List does, for each entry below a directory (the empty name: the root) that is no object:
	// directories, each before its entries, pipes, sockets and devices. The directory itself comes first, also if the name
	// is that of a link to it. Of a pipe, socket or device it is that alone. Stores without directories have those that a
	// marker stands for (S3), or none.
	Others(ctx context.Context, dir string, fn func(Other) error) error
}

// Other is something in a store that is no object.
type Other struct {
	Name  string
	Mode  fs.FileMode // type and permission bits
	MTime time.Time
	Bare  bool // of a directory: the store keeps neither its mode nor its time
	// Xattrs are the extended attributes of a directory.
	Xattrs xattr.List
}

// Writer changes a root. Its changes are durable when it returns nil.
type Writer interface {
	// Put writes an object, replacing one of that name. It is atomic: until it returns nil, and for
	// ever if it fails or the process dies, readers find the former object under the name, never a
	// part. (An error whose cause is a lost answer may come although the object is in place.
	// Putting it again is harmless.)
	//
	// The source's bytes are read without a copy of the whole, in parallel when there are many, and
	// their checksum is compared with src.Checksum. Bytes that do not match are bb.Checksum, and so
	// is a store that confirms another sum. Neither src nor any slice of it is touched after Put
	// has returned.
	Put(ctx context.Context, name string, src Source, opts PutOptions) (Object, error)

	// Rename moves an object, or a whole tree, from old to newName, replacing objects of the same
	// names. A tree moved onto a tree is merged into it. If nothing is there under old, it is
	// bb.NotFound. A single object moves atomically in the sense of Put. A tree may move one object
	// at a time (S3), and after a failure the call is repeated to move the rest.
	Rename(ctx context.Context, old, newName string) error

	// Remove removes an object. Removing a missing one succeeds.
	Remove(ctx context.Context, name string) error

	// RemoveIf removes an object if it still is a version that is the caller's own. If nothing is
	// there, that is success. Something else stays, and the error is ErrForeign. The store compares
	// in the step that removes, where it can. docs/durability.md lists the stores that do.
	RemoveIf(ctx context.Context, name string, is Version) error

	// RenameIf moves an object, as Rename does, if it still is a version, to a name that is free,
	// or has another version of the caller's. Otherwise both stay, and the error is ErrForeign with
	// the name whose object differs. If nothing is there under old, it is bb.NotFound. Called again
	// with the same versions, it completes a call that a crash cut between its steps.
	RenameIf(ctx context.Context, old, newName string, is, replaces Version) error

	// RemoveTree removes name and everything below it. The empty name means everything in the root, but not the root.
	// Removing a missing tree succeeds.
	RemoveTree(ctx context.Context, name string) error

	// MakeDir makes a directory, and those above it. A present directory gets the attributes, where
	// it has others. If the name has something else, the error is bb.Exists. See DirOptions.
	MakeDir(ctx context.Context, name string, opts DirOptions) error

	// SetMode gives an object other permission bits than it has, if it belongs to attrs.UID. It
	// keeps its ETag. Stores without Object.HasMode, and those that cannot, do nothing.
	SetMode(ctx context.Context, name string, attrs Attrs) error

	// RemoveDir removes a directory that holds nothing. A directory that holds something stays, and
	// so does anything but a directory. Both are no error. Stores without directories do nothing.
	RemoveDir(ctx context.Context, name string) error
}

// Source is the content of a Put: bytes that lie in memory, in pieces.
// Its methods may be called concurrently. The bytes belong to the source and
// must stay as they are until Put has returned.
type Source interface {
	// Size returns the number of bytes.
	Size() int64
	// Checksum returns the CRC-64/NVME that the whole should have.
	Checksum() uint64
	// Slices appends to dst the pieces that hold the n bytes from offset off,
	// in order, and returns it. Holes come as pieces of zero bytes.
	Slices(dst [][]byte, off, n int64) ([][]byte, error)
}

// PutOptions are the options of writing an object.
type PutOptions struct {
	// Attrs are given to the file by stores that have such things (POSIX, and mode and time S3).
	// Others ignore them. Nil leaves it to the store.
	Attrs *Attrs
	// Last, if not nil, is called once all bytes are in their place and not visible yet, right
	// before the step that puts them under the name. If it fails, the Put does, and the former
	// object stays.
	Last func(ctx context.Context) error
	// Replaces is the Object.ETag of the object that should be under the name. "" means that none
	// should be there. It spares stores that compare (S3) a request, and changes nothing else.
	// Without Keep, any object there is replaced.
	Replaces string
	// Keep makes the Put fail with ErrForeign when another object than Replaces is under the
	// name. That object stays.
	Keep bool
}

// LastStep calls Last.
func (o *PutOptions) LastStep(ctx context.Context) error {
	if o.Last == nil {
		return nil
	}
	return o.Last(ctx)
}

// DirOptions are the options of making a directory.
type DirOptions struct {
	Attrs Attrs
	// Holds: the directory has an entry, or is about to have one. Stores without directories then
	// do nothing.
	Holds bool
	// Keep leaves a directory that is there as it is, unless the store has made it and has its mark
	// on it. Without it, that is done only to
	// directories that do not belong to Attrs.UID, or to this process if it is not root's.
	Keep bool
}

// Attrs are the attributes of a file or directory.
type Attrs struct {
	Mode  fs.FileMode // permission bits. With fs.ModeSymlink the bytes of a Put are the target of a link that it makes
	UID   uint32      // set only by a daemon that may
	GID   uint32
	MTime time.Time // zero: now
	// Xattrs are the extended attributes, of a file or directory. Attributes that the store cannot keep are no
	// failure of a Put. Object.Xattrs has the others. MakeDir leaves the directory's other attributes as they are.
	Xattrs xattr.List `json:"-"` // bytes, which do not survive JSON
}

// Object describes the object under a name of a store.
type Object struct {
	Name string
	Size int64
	ETag string // the store's name of this content: an entity tag, or inode:mtime
	// Checksum is the CRC-64/NVME of the whole object, if HasChecksum. Put always returns it. Stat
	// does where the store keeps it, List never.
	Checksum    uint64
	HasChecksum bool
	MTime       time.Time
	// Mode has the permission bits and, of a symbolic link, fs.ModeSymlink, if HasMode: of stores that have such
	// things (POSIX). S3 returns the mode and the time that were put with an object in Stat and Described, not in List.
	Mode    fs.FileMode
	HasMode bool
	// Layout is how a file system that spreads files over servers has placed the object, in its own
	// words (on Lustre the options of lfs setstripe). Only Put returns it. It is "" if it is
	// unknown, or if there is no such thing.
	Layout string
	// Xattrs are, of a Put, those of Attrs.Xattrs that the object has now. Described returns all that an entry can have,
	// as does Stat of S3.
	Xattrs xattr.List `json:"-"` // bytes, which do not survive JSON
}

// Version distinguishes the objects that have been under a name, by the results of Put, Stat and
// List. The zero Version is that of a name without an object.
type Version struct {
	ETag string
	Size int64 // bytes
}

// IsLink reports whether the object is known to be a symbolic link.
func (o Object) IsLink() bool { return o.HasMode && o.Mode&fs.ModeSymlink != 0 }

// Version returns the object's version.
func (o Object) Version() Version { return Version{o.ETag, o.Size} }

// Described returns the store's description of the object that a reader of Get reads, if it has one.
func Described(r io.Reader) (Object, bool) {
	d, ok := r.(interface{ Object() (Object, bool) })
	if !ok {
		return Object{}, false
	}
	return d.Object()
}

// AttrsOf returns the attributes of an entry.
func AttrsOf(e *bb.Entry) *Attrs {
	a := &Attrs{Mode: e.Mode, UID: e.UID, GID: e.GID, MTime: e.MTime, Xattrs: xattr.List(e.Xattrs)}
	if e.Type == bb.TypeSymlink {
		a.Mode = fs.ModePerm | fs.ModeSymlink
	}
	return a
}

// IsLink reports whether a Put makes a symbolic link.
func (a *Attrs) IsLink() bool { return a != nil && a.Mode&fs.ModeSymlink != 0 }
