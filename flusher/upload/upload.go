// Package upload carries the bytes of one file to its store, and has that recorded. It must never decide which
// file is flushed when, nor change a queue.
package upload

import (
	"context"
	"errors"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/flusher/owned"
	"forebay/flusher/receipt"
	"forebay/flusher/spool"
	"forebay/internal/bb"
	"forebay/internal/xattr"
)

// Job is one file on its way to the store. Its methods are called by one goroutine
// at a time, in this order. It may also be a Previous.
type Job interface {
	// Path returns the file's clean path in the buffer, as of Begin.
	Path() string
	// Source returns the bytes, which stay where they are until Close.
	Source() backing.Source
	// Damage is called after a Put has found that the whole has another checksum. It checks the
	// bytes piece by piece, and returns an error that names the wrong piece, or nil if none is
	// wrong any more. It calls progress from time to time. A large file takes long.
	Damage(ctx context.Context, progress func()) error
	// Done records the store's confirmation in the namespace. The file is clean only when it
	// returns nil. It must be idempotent. After an error, or a crash, the file is flushed again.
	// bb.NotFound means that the file went away. Then the new object is removed from the store.
	// Generation is left to the job.
	Done(ctx context.Context, flushed bb.Flushed) error
	// Close unpins the bytes. It is called once.
	Close()
}

// Previous is a Job that has the store's present content of the file. Without,
// the flusher assumes that it was never flushed before.
type Previous interface {
	Previous() bb.Flushed
}

// Attempted is a Job that lists the contents, before compression, that flushes of its file, and of
// files that it has replaced, may have put under its name without a record, in an earlier run of the
// daemon for instance. It is called if an object is under the name that Previous does not name.
type Attempted interface {
	Attempts() []bb.Content
}

// Current is a Job that can find out whether the content still is this node's to flush. It is
// called right before the store's object gets its name. An error ends the attempt.
type Current interface {
	Current(ctx context.Context) error
}

// Attributed is a Job that has the attributes of its file for a store
// that keeps them.
type Attributed interface {
	Attrs() *backing.Attrs
}

// Keeper is a Job that is called with the extended attributes that the store has kept of its file.
type Keeper interface {
	// Kept is called before Done.
	Kept(xattrs xattr.List)
}

// Uncompressed is a Job whose object may not be compressed, with any codec of its buffer.
type Uncompressed interface {
	Uncompressed() bool
}

// Watch is an upload's interface to its attempt. Its methods are called by one goroutine at a time, and may be
// called again.
type Watch interface {
	// Progress records that the upload makes progress, Read that the store has read bytes of the
	// source.
	Progress()
	Read(bytes int64)
	// Target records the object that the Put makes, and whether the file has had none of that name.
	Target(object string, isNew bool)
	// GivenUp reports whether the upload may change nothing any more.
	GivenUp() bool
	// MayName is called right before the object gets its name, MayRecord before Job.Done. From then
	// on the upload is not cancelled. An error ends it.
	MayName() error
	MayRecord() error
	// Made records the object that a Put may have made under a name, until Recorded is called for it. Unrecorded returns it.
	Made(object string, c bb.Content)
	Unrecorded(object string) owned.Unrecorded
	Recorded(object string)
}

// Upload is one attempt to store one file.
type Upload struct {
	Job      Job
	Store    backing.Store
	Watch    Watch
	Path     string // of the file
	Codec    string
	Keep     func() bool // objects of others are not replaced
	SpoolDir string
	Node     bb.NodeID
	Now      func() time.Time
	// Recording is the context of Job.Done, which is not cancelled with the upload.
	Recording context.Context
}

// Result is how an upload ended.
type Result struct {
	Err     error  // nil: the file is durable, and recorded
	Gone    bool   // with an error; there is nothing to flush any more
	Object  string // that a Put may have made
	WasNew  bool   // the file had no such object before
	Foreign string // another writer's object in the way
	Unsure  bool   // the object may be recorded all the same
	Receipt receipt.Receipt
}

// Before returns the store's present content of the file.
func (u *Upload) Before() bb.Flushed {
	if p, ok := u.Job.(Previous); ok {
		return p.Previous()
	}
	return bb.Flushed{}
}

// Do stores the file. A flush is right by the order of its steps: put, name, record. Every Put, and the compression before
// it, compares the checksum of the bytes that it reads with the file's before the object gets its name.
func (u *Upload) Do(ctx context.Context) Result {
	if plain, ok := u.Job.(Uncompressed); ok && plain.Uncompressed() {
		u.Codec = codec.None
	}
	r := u.put(ctx)
	if damaged(r.Err) {
		if err := u.Job.Damage(ctx, u.Watch.Progress); err != nil {
			r.Err = err
		}
	}
	return r
}

// damaged reports whether a Put failed by the bytes that it was to write. They have another checksum,
// or their memory is gone.
func damaged(err error) bool {
	source := (*backing.SourceError)(nil)
	return errors.As(err, &source) && (errors.Is(err, bb.Checksum) || errors.Is(err, bb.Lost))
}

// put writes the object and has it recorded.
func (u *Upload) put(ctx context.Context) Result {
	before := u.Before()
	src, release, err := spool.Encode(ctx, u.SpoolDir, u.Codec, &watched{u.Job.Source(), u.Watch})
	if err != nil {
		return Result{Err: err}
	}
	defer release()
	r := Result{Object: u.Path + codec.Suffix(u.Codec), WasNew: before.Generation == 0 || before.Codec != u.Codec}
	u.Watch.Target(r.Object, r.WasNew)
	o, err := u.putKeeping(ctx, r.Object, &counted{watched{src, u.Watch}}, u.options(before, r.WasNew))
	if errors.Is(err, backing.ErrForeign) {
		return Result{Err: err, Foreign: r.Object} // no Put of ours made the object there
	}
	if err == nil {
		if err = u.Watch.MayRecord(); err != nil {
			u.Watch.Made(r.Object, bb.Content{Size: o.Size, Checksum: o.Checksum})
		}
	}
	if r.Err = err; err != nil {
		return r
	}
	flushed := bb.Flushed{ETag: o.ETag, Size: o.Size, Checksum: o.Checksum, Codec: u.Codec, At: u.Now(), By: u.Node, Layout: o.Layout}
	if k, ok := u.Job.(Keeper); ok {
		k.Kept(o.Xattrs)
	}
	if r.Err = u.Job.Done(u.Recording, flushed); r.Err != nil {
		u.Watch.Made(r.Object, bb.Content{Size: o.Size, Checksum: o.Checksum})
		r.Gone = bb.KindOf(r.Err) == bb.NotFound
		r.Unsure = !r.Gone
		return r
	}
	u.Watch.Recorded(r.Object)
	r.Receipt = receipt.New(u.Path, u.Job.Source(), flushed)
	if a, ok := u.Job.(Attributed); ok {
		r.Receipt.Link = a.Attrs().IsLink()
		r.Receipt.NotKept = unstored(a.Attrs().Xattrs, o.Xattrs)
	}
	return r
}

// unstored returns the names of attributes that a store has not kept.
func unstored(all, kept xattr.List) []string { return all.MarkedAs(kept).Unstored() }

func (u *Upload) options(before bb.Flushed, wasNew bool) backing.PutOptions {
	opts := backing.PutOptions{Keep: u.Keep()}
	if a, ok := u.Job.(Attributed); ok {
		opts.Attrs = a.Attrs()
	}
	if !wasNew {
		opts.Replaces = before.ETag
	}
	opts.Last = func(ctx context.Context) error {
		if c, ok := u.Job.(Current); ok {
			if err := c.Current(ctx); err != nil {
				return err
			}
		}
		return u.Watch.MayName()
	}
	return opts
}

// putKeeping puts an object. If an object is in the way, and may not be replaced by its tag, it is
// replaced if its content is this buffer's. ErrForeign is certain, since no Put of ours has made
// it.
func (u *Upload) putKeeping(ctx context.Context, object string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	o, err := u.Store.Put(ctx, object, src, opts)
	if opts.Keep && errors.Is(err, backing.ErrForeign) {
		k := owned.Known{
			Flushed: []bb.Flushed{u.Before()}, Codec: u.Codec,
			Unrecorded: u.Watch.Unrecorded(object).And(owned.Unrecorded{Made: []bb.Content{{Size: src.Size(), Checksum: src.Checksum()}}}),
		}
		if a, ok := u.Job.(Attempted); ok {
			k.Unrecorded = k.And(owned.Unrecorded{Attempts: a.Attempts()})
		}
		there, ours, lookErr := k.Find(ctx, u.Store, object, u.Watch.Progress)
		switch {
		case lookErr != nil:
			err = lookErr
		case ours || there == (backing.Version{}):
			opts.Replaces = there.ETag
			if o, err = u.Store.Put(ctx, object, src, opts); errors.Is(err, backing.ErrForeign) {
				err = owned.Changed("put", object)
			}
		}
	}
	if err != nil {
		u.Watch.Made(object, bb.Content{Size: src.Size(), Checksum: src.Checksum()})
	}
	return o, err
}

// watched is a source that counts reads as progress.
type watched struct {
	backing.Source
	w Watch
}

func (w *watched) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	w.w.Progress()
	if w.w.GivenUp() { // its bytes are not read any more, so Close does not wait for them
		return dst, bb.E(bb.Cancelled, "flush", "", "the flush was abandoned")
	}
	return w.Source.Slices(dst, off, n)
}

// counted is a watched source that counts the bytes that the store has read.
type counted struct{ watched }

func (c *counted) Slices(dst [][]byte, off, n int64) ([][]byte, error) {
	c.w.Read(n)
	return c.watched.Slices(dst, off, n)
}
