package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/fileio"
	"forebay/flusher/backing/posix/link"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
)

// Pending is a file that is being put, in the steps that Put draws: Begin, WriteAt, Finish,
// Commit. It is for callers that bring the bytes piece by piece, and that compare their
// checksum themselves before Commit.
type Pending struct {
	s         *Store
	root      *os.Root
	dir, temp string
	name      string
	size      int64
	opts      backing.PutOptions

	f, direct *os.File // direct: the same file, past the page cache; nil: it is written as usual
	opened    uint64   // of syncgroup
	info      fs.FileInfo
	asked     lustre.Layout // nil: the directory's
	layout    lustre.Layout // that it has; nil: not on Lustre, or not known
	done      bool          // nothing is left to remove
}

// Begin makes the directories and the temporary file of an object of size bytes. The caller
// calls Abort in the end. PutOptions.Last is the caller's to call.
func (s *Store) Begin(ctx context.Context, name string, size int64, opts backing.PutOptions) (*Pending, error) {
	if err := backing.CheckName("put", name); err != nil {
		return nil, err
	}
	root, err := s.root(ctx)
	if err != nil {
		return nil, cause.Wrap("put", name, err)
	}
	dir := path.Dir(name)
	p := &Pending{s: s, root: root, dir: dir, temp: path.Join(dir, s.opts.Owner.TempName()), name: name, size: size, opts: opts}
	if err := p.create(); err != nil {
		err = p.failed(err)
		p.Abort()
		return nil, err
	}
	return p, nil
}

func (p *Pending) create() error {
	if err := checkExisting(p.root, p.name, &p.opts); err != nil { // before all bytes are written for nothing
		return err
	}
	err := p.s.makeDirs(p.root, p.dir, p.opts.Attrs)
	if err != nil {
		return err
	}
	if p.opts.Attrs.IsLink() {
		p.f, err = link.Begin(p.name, p.size)
		return err
	}
	p.f, p.asked, err = p.s.create(p.root, p.temp, p.name, p.size)
	if errors.Is(err, fs.ErrNotExist) && gone(p.root, p.dir) { // somebody removed a directory that we remembered
		p.s.forgetDurable()
		if err = p.s.makeDirs(p.root, p.dir, p.opts.Attrs); err == nil {
			p.f, p.asked, err = p.s.create(p.root, p.temp, p.name, p.size)
		}
	}
	if err != nil {
		return err
	}
	p.opened = p.s.files.Opened()
	if p.direct = p.s.openDirect(p.root, p.temp, p.size); p.direct != nil {
		return fileio.Allocate(p.f, p.size)
	}
	return nil
}

// PartSize returns how many bytes one of the concurrent calls of WriteAt, or one worker, writes at a time, at most as
// many as most: on Lustre whole stripes.
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

// WriteAt writes bytes at an offset. Calls may be concurrent. Files of at least 4 MiB are written
// faster if b and off are aligned to 4096 bytes.
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
	err := setAttrs(p.root, p.temp, p.f, p.opts.Attrs, p.s.opts.Group)
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
	n := link.New{Target: p.f, Size: p.size, Attrs: p.opts.Attrs, Group: p.s.opts.Group, Remake: func() error {
		p.s.forgetDurable()
		return p.s.makeDirs(p.root, p.dir, p.opts.Attrs)
	}}
	p.info, err = n.Make(p.root, p.temp)
	return err
}

// Commit gives the file its name, and makes that durable.
func (p *Pending) Commit(ctx context.Context) (backing.Object, error) {
	err := ctx.Err()
	if err == nil {
		err = p.s.stillThere(p.root)
	}
	if err == nil {
		err = p.s.place(p.root, p.temp, p.name, &p.opts)
	}
	if err != nil {
		return backing.Object{}, p.failed(err)
	}
	p.done = true
	p.s.full.Forget(p.name)
	if err := p.s.syncDir(p.root, p.dir); err != nil {
		return backing.Object{}, p.failed(err)
	}
	if fewer := lustre.Fewer(p.asked, p.layout); fewer != "" && p.s.told.First(fewer) {
		p.s.opts.Logger.Warn(fewer, "directory", p.s.dir)
	}
	o := object(p.name, p.info)
	o.Layout = p.layout.String()
	return o, nil
}

// Abort removes what was not committed, and closes. Calling it again does nothing. What stays
// after a failure here, Sweep finds.
func (p *Pending) Abort() {
	p.close()
	if p.root == nil {
		return
	}
	if !p.done {
		p.root.Remove(p.temp)
	}
	p.root.Close()
	p.root = nil
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
	err = p.fullTarget(withoutTemp(err, p.temp, p.name))
	if errors.Is(err, syscall.EDQUOT) {
		uid, gid := owners(p.opts.Attrs, os.Geteuid(), os.Getegid())
		err = cause.OfQuota(p.name, err, uid, gid, p.project())
	}
	return cause.Wrap("put", p.name, err)
}

// project returns the file's project; 0: none, or it is not known.
func (p *Pending) project() uint32 {
	if p.f == nil {
		return 0
	}
	return lustre.Project(p.f)
}

// owners returns whose file a Put makes: that of its attributes, where this process may give files away, else its own.
func owners(attrs *backing.Attrs, euid, egid int) (uid, gid int) {
	if attrs != nil && euid == 0 {
		return int(attrs.UID), int(attrs.GID)
	}
	if attrs != nil {
		return euid, int(attrs.GID)
	}
	return euid, egid
}
