package posix

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/fileattr"
	"forebay/flusher/backing/posix/fileio"
	"forebay/flusher/backing/posix/link"
	"forebay/flusher/backing/posix/lustre"
	"forebay/flusher/backing/posix/object"
	"forebay/flusher/backing/posix/opendir"
	"forebay/flusher/backing/posix/syncgroup"
	"forebay/internal/bb"
	"forebay/internal/xattr"
)

// Pending is a file that is being put, in the steps that Put draws: Begin, WriteAt, Finish,
// Commit. It is for callers that bring the bytes piece by piece, and that compare their
// checksum themselves before Commit.
type Pending struct {
	s    *Store
	dir  *opendir.Dir // nil: it is not open
	temp string
	name string
	size int64
	opts backing.PutOptions

	f, direct *os.File // direct: the same file, past the page cache; nil: it is written as usual
	opened    uint64   // of syncgroup
	info      fs.FileInfo
	asked     lustre.Layout // nil: the directory's
	layout    lustre.Layout // that it has; nil: not on Lustre, or not known
	kept      xattr.List    // of the extended attributes
	done      bool          // nothing is left to remove
}

// Begin makes the directories and the temporary file of an object of size bytes. The caller
// calls Abort in the end. PutOptions.Last is the caller's to call.
func (s *Store) Begin(ctx context.Context, name string, size int64, opts backing.PutOptions) (*Pending, error) {
	if err := backing.CheckName("put", name); err != nil {
		return nil, err
	}
	p := &Pending{s: s, temp: path.Join(path.Dir(name), s.opts.Owner.TempName()), name: name, size: size, opts: opts}
	if err := p.create(ctx); err != nil {
		err = p.failed(err)
		p.Abort()
		return nil, err
	}
	return p, nil
}

func (p *Pending) create(ctx context.Context) error {
	err := p.createIn(ctx)
	if errors.Is(err, fs.ErrNotExist) { // a recorded or open directory was removed meanwhile
		p.s.forgetDurable()
		if p.dir != nil {
			p.dir.Release()
			p.dir = nil
		}
		err = p.createIn(ctx)
	}
	if err != nil {
		return err
	}
	p.opened = p.s.files.Opened()
	if p.direct = p.s.openDirect(p.dir.Root, p.temp, p.size); p.direct != nil {
		return fileio.Allocate(p.f, p.size)
	}
	return nil
}

func (p *Pending) createIn(ctx context.Context) (err error) {
	if p.dir, err = p.openDir(ctx); err != nil {
		return err
	}
	if p.opts.Keep && p.size > syncgroup.Small && !p.dir.Free(path.Base(p.name)) { // before all bytes are written for nothing
		if err := checkExisting(p.dir.Root, p.name, &p.opts); err != nil {
			return err
		}
	}
	if p.opts.Attrs.IsLink() {
		p.f, err = link.Begin(p.name, p.size)
		return err
	}
	p.f, p.asked, err = p.s.create(p.dir, path.Base(p.temp), p.name, p.size)
	return err
}

func (p *Pending) openDir(ctx context.Context) (*opendir.Dir, error) {
	dir := path.Dir(p.name)
	return p.s.open.Get(dir, func() (*opendir.Dir, error) { return p.s.openToPut(ctx, dir, p.opts.Attrs) })
}

// openToPut makes a directory where it is missing, and opens it.
func (s *Store) openToPut(ctx context.Context, dir string, attrs *backing.Attrs) (*opendir.Dir, error) {
	root, err := s.root(ctx)
	if err != nil {
		return nil, err
	}
	d := &opendir.Dir{Root: root, Opened: s.dirs.Opened()}
	if err = s.makeDirs(root, dir, attrs); err == nil {
		d.File, err = openDir(root, dir)
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// PartSize returns the number of bytes, at most most, that one of the concurrent calls of WriteAt
// or one worker writes at a time, on Lustre in whole stripes.
func (p *Pending) PartSize(most int64) int64 {
	if p.size > most {
		p.readLayout()
	}
	return lustre.PartSize(most, p.layout, p.size)
}

// readLayout reads the layout of the open file, where there is such a thing. No call of WriteAt is under way.
func (p *Pending) readLayout() {
	if p.s.identity.Kind == lustre.Magic && p.f != nil {
		p.layout = lustre.Of(p.f)
	}
}

// WriteAt writes bytes at an offset. Calls may be concurrent. If b and off are aligned to
// 4096 bytes, files of at least 4 MiB are written faster.
func (p *Pending) WriteAt(b []byte, off int64) error {
	if p.direct != nil && off%alignment == 0 {
		return p.failed(p.writeDirect(b, off))
	}
	_, err := p.f.WriteAt(b, off)
	return p.failed(err)
}

// Finish sets the attributes and makes the bytes durable. They are under no name yet.
func (p *Pending) Finish() error {
	if p.opts.Attrs.IsLink() {
		return p.failed(errors.Join(p.makeLink(), p.close()))
	}
	kept, err := fileattr.SetXattrs(p.f, p.opts.Attrs) // before the mode, which may forbid it
	if p.kept = kept; err == nil {
		err = setAttrs(p.dir.Root, p.temp, p.f, p.opts.Attrs, p.s.opts.Group)
	}
	if err == nil {
		err = p.s.files.Sync(p.f, p.size, p.opened)
	}
	if err == nil {
		p.readLayout() // now that all of its objects exist
		if p.info, err = p.f.Stat(); err == nil && p.info.Size() != p.size {
			err = bb.E(bb.Checksum, "put", p.name, "the file's size differs from the bytes written to it")
		}
	}
	return p.failed(errors.Join(err, p.close())) // a network file system may report a lost write only here
}

func (p *Pending) makeLink() (err error) {
	first := p.dir
	n := link.New{Target: p.f, Size: p.size, Attrs: p.opts.Attrs, Group: p.s.opts.Group, Remake: func() error {
		p.s.forgetDurable()
		again, err := p.openDir(context.Background())
		if err == nil {
			p.dir = again
		}
		return err
	}}
	p.info, err = n.Make(first.Root, p.temp)
	if p.dir != first {
		first.Release()
	}
	return err
}

// Commit gives the file its name, and makes that durable.
func (p *Pending) Commit(ctx context.Context) (backing.Object, error) {
	err := ctx.Err()
	if err == nil {
		err = p.dir.Check(ctx, func() error { return cmp.Or(p.s.stillThere(p.dir.Root), p.dir.InPlace()) })
	}
	if err == nil {
		err = p.place()
	}
	if err != nil {
		return backing.Object{}, p.failed(err)
	}
	p.done = true
	p.s.full.Forget(p.name)
	if err := p.dir.Sync(func() error { return p.s.syncOpen(p.dir.File, path.Dir(p.name), p.dir.Opened) }); err != nil {
		return backing.Object{}, p.failed(err)
	}
	o := object.Of(p.name, p.info)
	o.Layout, o.Xattrs = p.layout.String(), p.kept
	return o, nil
}

// Fewer describes, after Commit, the parts of the requested layout that the file did not get. "": there are none.
func (p *Pending) Fewer() string { return lustre.Fewer(p.asked, p.layout) }

// Abort removes the uncommitted file, and closes. A second call does nothing. A file that stays
// after a failure here is found by Sweep.
func (p *Pending) Abort() {
	p.close()
	if p.dir == nil {
		return
	}
	if !p.done {
		p.dir.Remove(path.Base(p.temp))
	}
	p.dir.Release()
	p.dir = nil
}

func (p *Pending) close() (err error) {
	if p.f != nil {
		err = p.f.Close()
	}
	if p.direct != nil {
		err = errors.Join(err, p.direct.Close())
	}
	p.f, p.direct = nil, nil
	return err
}

// failed names the file in an error, and not its temporary one.
func (p *Pending) failed(err error) error {
	err = p.fullTarget(cause.WithoutTemp(err, p.temp, p.name))
	if errors.Is(err, syscall.EDQUOT) {
		uid, gid := owners(p.opts.Attrs, os.Geteuid(), os.Getegid())
		err = cause.OfQuota(p.name, err, uid, gid, p.project())
	}
	return cause.Wrap("put", p.name, err)
}

// project returns the file's project, or 0 if there is none, or it is unknown.
func (p *Pending) project() uint32 {
	if p.f == nil {
		return 0
	}
	return lustre.Project(p.f)
}

// owners returns the owner of the file that a Put makes: that of its attributes, where this process
// may give files away, else its own.
func owners(attrs *backing.Attrs, euid, egid int) (uid, gid int) {
	if attrs != nil && euid == 0 {
		return int(attrs.UID), int(attrs.GID)
	}
	if attrs != nil {
		return euid, int(attrs.GID)
	}
	return euid, egid
}
