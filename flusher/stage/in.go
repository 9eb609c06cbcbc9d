package stage

import (
	"context"
	"errors"
	"io"
	"path"
	"strings"

	"golang.org/x/sync/errgroup"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
)

// Sink is a buffer that is staged into. Its methods may be called concurrently.
type Sink interface {
	// Same reports whether the path already has the object's content, by sizes and checksums, or by
	// the entity tag it was staged from. It adds fields to the object that it has requested from
	// the store.
	Same(ctx context.Context, path string, o *backing.Object, codecName string) (bool, error)
	// Keep gives a file that is the Same the object's mode, time and extended attributes, where it has them.
	Keep(ctx context.Context, path string, o backing.Object) error
	// Create begins a file. It is not visible before Publish. Directories are made.
	Create(ctx context.Context, path string, o backing.Object) (File, error)
	// Link makes a symbolic link, or gives one another target. Directories are made.
	Link(ctx context.Context, path string, o backing.Object, target string) error
}

// File is a file that is being staged in. Fill may be called concurrently for
// ranges that do not overlap.
type File interface {
	// Fill reads n bytes, or all if n is negative, from r straight into leased memory
	// at an offset, and returns how many came. Fewer than n is an error.
	Fill(ctx context.Context, offset, n int64, r io.Reader) (int64, error)
	// Describe returns the store's description of the object when it is read, which may have more
	// than a listing. It is called at most once, and not while Publish is.
	Describe(o backing.Object)
	// Publish makes the file visible with the size that was filled.
	Publish(ctx context.Context, size int64) error
	// Abort gives it up. After Publish it does nothing.
	Abort()
}

// InOptions are the options of a stage-in.
type InOptions struct {
	Options
	// Codec is the buffer's. Objects with its suffix are decompressed, and lose it.
	Codec string
}

// Found is an object that is to be staged in, and the path that it goes to.
type Found struct {
	Object backing.Object
	Target string
}

// Find calls fn for the object called name, or else those of the tree below it, or, if
// name is "" or ends in a slash, of the tree below it. An object goes under exactly the
// target, a tree's objects below it. If there is nothing under the name it is bb.NotFound.
func Find(ctx context.Context, from backing.Reader, name, target string, fn func(Found) error) error {
	found := false
	err := objects(ctx, from, name, func(o backing.Object, below string) error {
		found = true
		return fn(Found{o, path.Join(target, below)})
	})
	if err == nil && !found {
		err = bb.E(bb.NotFound, "stage-in", name, "there is nothing under this name")
	}
	return err
}

// In copies the files of Find to a path in the buffer. Files that fail do not stop others. The
// error is nil only if all were copied or are there already.
func In(ctx context.Context, from backing.Reader, name string, to Sink, target string, opts InOptions) (Report, error) {
	in := newStageIn(from, to, opts)
	err := Find(ctx, from, name, target, func(f Found) error { return in.start(ctx, f.Object, f.Target) })
	return in.finish(ctx, "stage-in", err)
}

// InFound is In for objects that were found before.
func InFound(ctx context.Context, from backing.Reader, found []Found, to Sink, opts InOptions) (Report, error) {
	in := newStageIn(from, to, opts)
	var err error
	for i := 0; i < len(found) && err == nil; i++ {
		err = in.start(ctx, found[i].Object, found[i].Target)
	}
	return in.finish(ctx, "stage-in", err)
}

type stageIn struct {
	*copier
	from  backing.Reader
	to    Sink
	codec string
}

func newStageIn(from backing.Reader, to Sink, opts InOptions) *stageIn {
	return &stageIn{copier: newCopier(opts.Options), from: from, to: to, codec: opts.Codec}
}

// objects calls fn for each object with its name below the given one. A name that is that of a symbolic link to a
// directory stands for the directory, as in Others, and any other link for itself.
func objects(ctx context.Context, from backing.Reader, name string, fn func(o backing.Object, below string) error) error {
	if name != "" && !strings.HasSuffix(name, "/") {
		o, err := from.Stat(ctx, name)
		if err != nil && bb.KindOf(err) != bb.NotFound {
			return err
		}
		isDir := err != nil
		if o.IsLink() {
			if isDir, err = IsDirectory(ctx, from, name); err != nil {
				return err
			}
		}
		if !isDir {
			return fn(o, "")
		}
		name += "/"
	}
	return from.List(ctx, name, func(o backing.Object) error { return fn(o, o.Name[len(name):]) })
}

// errEnough ends a listing.
var errEnough = errors.New("enough is known")

// IsDirectory reports whether a name leads to a directory.
func IsDirectory(ctx context.Context, from backing.Reader, name string) (is bool, err error) {
	err = from.Others(ctx, name, func(o backing.Other) error {
		is = o.Name == name && o.Mode.IsDir()
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return is, err
}

// Plain returns the path that a target has in a buffer with a codec, and the codec that
// is undone on the way.
func Plain(target, bufferCodec string) (string, string) {
	if plain, of := codec.OfName(target); of != codec.None && of == bufferCodec {
		return plain, of
	}
	return target, codec.None
}

// start copies one object on a goroutine of its own, as soon as there is a slot.
func (in *stageIn) start(ctx context.Context, o backing.Object, target string) error {
	target, name := Plain(target, in.codec)
	in.begin(o.Size)
	if err := in.acquire(ctx); err != nil {
		return err
	}
	in.wg.Go(func() {
		done, err := in.copy(ctx, o, target, name)
		in.end(target, o.Size, max(0, o.Size-done), err)
	})
	return nil
}

// copy copies one object and returns how many of its bytes were counted. It holds a
// slot when it begins, and frees it.
func (in *stageIn) copy(ctx context.Context, o backing.Object, target, name string) (counted int64, err error) {
	same, err := in.to.Same(ctx, target, &o, name)
	switch {
	case err != nil:
	case same:
		err = errSame
	case in.opts.DryRun:
		err = errDry
	}
	if same && err == errSame && !in.opts.DryRun {
		if kept := in.keep(ctx, o, target); kept != nil {
			err = kept
		}
	}
	if err != nil {
		in.free()
		return 0, err
	}
	if name == codec.None && mayBeLink(&o) {
		defer in.free()
		return o.Size, in.whole(ctx, o, target)
	}
	f, err := in.to.Create(ctx, target, o)
	if err != nil {
		in.free()
		return 0, err
	}
	defer f.Abort()
	if o.Size == 0 { // of which nothing is read
		if now, ok, err := in.described(ctx, o.Name); err != nil {
			in.free()
			return 0, err
		} else if ok {
			f.Describe(now)
		}
	}
	size := o.Size
	if name == codec.None {
		counted, err = o.Size, in.ranges(ctx, o, f)
	} else {
		size, err = in.stream(ctx, o, f, name)
	}
	if err != nil {
		return counted, err
	}
	return counted, f.Publish(ctx, size)
}

// described returns the store's description of an object, which may have more than a listing.
func (in *stageIn) described(ctx context.Context, name string) (o backing.Object, ok bool, err error) {
	r, err := in.from.Get(ctx, name, 0, 0)
	if err != nil {
		return o, false, err
	}
	defer r.Close()
	o, ok = backing.Described(r)
	_, err = io.Copy(io.Discard, r)
	return o, ok, err
}

// keep brings the attributes of a file that is there up to date. A listing of a store with modes has all of them but the
// extended ones.
func (in *stageIn) keep(ctx context.Context, o backing.Object, target string) error {
	if o.HasMode && !o.IsLink() && o.Xattrs == "" {
		now, ok, err := in.described(ctx, o.Name)
		if err != nil && bb.KindOf(err) != bb.Permission { // only the content needs the right to read
			return err
		}
		if ok && now.ETag == o.ETag {
			o.Xattrs = now.Xattrs
		}
	}
	return in.to.Keep(ctx, target, o)
}

// mayBeLink reports whether an object may be a symbolic link by its listing.
func mayBeLink(o *backing.Object) bool {
	return o.IsLink() || !o.HasMode && 0 < o.Size && o.Size <= bb.MaxTarget
}

// whole copies a small object, or makes the symbolic link that it stands for. A store without directories shows
// that when the object is read, and not in a listing.
func (in *stageIn) whole(ctx context.Context, o backing.Object, target string) error {
	r, err := in.from.Get(ctx, o.Name, 0, o.Size)
	if err != nil {
		return err
	}
	defer r.Close()
	bytes := &countingReader{r, in.copier}
	described, ok := backing.Described(r)
	if ok = ok && described.ETag == o.ETag; ok && described.IsLink() {
		o.Mode, o.HasMode, o.MTime = described.Mode, true, described.MTime
	}
	if o.IsLink() {
		text, err := io.ReadAll(bytes)
		if err != nil {
			return err
		}
		if int64(len(text)) != o.Size {
			return io.ErrUnexpectedEOF
		}
		return in.to.Link(ctx, target, o, string(text))
	}
	f, err := in.to.Create(ctx, target, o)
	if err != nil {
		return err
	}
	defer f.Abort()
	if ok {
		f.Describe(described)
	}
	if _, err := f.Fill(ctx, 0, o.Size, bytes); err != nil {
		return err
	}
	return f.Publish(ctx, o.Size)
}

// ranges copies an object's ranges. The first uses the slot that copy was given.
func (in *stageIn) ranges(ctx context.Context, o backing.Object, f File) error {
	group, ctx := errgroup.WithContext(ctx)
	first, ended := true, error(nil)
	for off := int64(0); off < o.Size; off += in.opts.Range {
		if !first {
			if ended = in.acquire(ctx); ended != nil {
				break
			}
		}
		first = false
		n := min(in.opts.Range, o.Size-off)
		group.Go(func() error {
			defer in.free()
			return in.piece(ctx, o, f, off, n)
		})
	}
	if first {
		in.free()
	}
	if err := group.Wait(); err != nil {
		return err // the first piece's, which ended the others
	}
	return ended
}

func (in *stageIn) piece(ctx context.Context, o backing.Object, f File, off, n int64) error {
	r, err := in.from.Get(ctx, o.Name, off, n)
	if err != nil {
		return err
	}
	defer r.Close()
	if off == 0 {
		describe(f, r)
	}
	_, err = f.Fill(ctx, off, n, &countingReader{r, in.copier})
	return err
}

// stream copies a compressed object from one end to the other.
func (in *stageIn) stream(ctx context.Context, o backing.Object, f File, name string) (int64, error) {
	defer in.free()
	packed, err := in.from.Get(ctx, o.Name, 0, -1)
	if err != nil {
		return 0, err
	}
	defer packed.Close()
	describe(f, packed)
	plain, err := codec.NewReader(name, packed)
	if err != nil {
		return 0, err
	}
	defer plain.Close()
	return f.Fill(ctx, 0, -1, plain)
}

func describe(f File, r io.Reader) {
	if o, ok := backing.Described(r); ok {
		f.Describe(o)
	}
}

// countingReader counts bytes for progress.
type countingReader struct {
	io.Reader
	c *copier
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.c.update(func(report *Report) { report.BytesDone += int64(n) })
	return n, err
}
