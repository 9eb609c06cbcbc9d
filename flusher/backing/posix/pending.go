package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/fileio"
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
	done      bool // nothing is left to remove
}

// Begin makes the directories and the temporary file of an object of size bytes. The caller
// calls Abort in the end. PutOptions.Last is the caller's to call.
func (s *Store) Begin(ctx context.Context, name string, size int64, opts backing.PutOptions) (*Pending, error) {
	if err := backing.CheckName("put", name); err != nil {
		return nil, err
	}
	root, err := s.root(ctx)
	if err != nil {
		return nil, wrap("put", name, err)
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
	p.f, err = p.s.create(p.root, p.temp, p.name, p.size)
	if errors.Is(err, fs.ErrNotExist) && gone(p.root, p.dir) { // somebody removed a directory that we remembered
		p.s.forgetDurable()
		if err = p.s.makeDirs(p.root, p.dir, p.opts.Attrs); err == nil {
			p.f, err = p.s.create(p.root, p.temp, p.name, p.size)
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
	err := setAttrs(p.root, p.temp, p.f, p.opts.Attrs, p.s.opts.Group)
	if err == nil {
		err = p.s.files.Sync(p.f, p.size, p.opened)
	}
	if err == nil {
		if p.info, err = p.f.Stat(); err == nil && p.info.Size() != p.size {
			err = bb.E(bb.Checksum, "put", p.name, "file has another size than what was written to it")
		}
	}
	return p.failed(errors.Join(err, p.close())) // a network file system may report a lost write only here
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
	return object(p.name, p.info), nil
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
	uid, gid := owners(p.opts.Attrs, os.Geteuid(), os.Getegid())
	return wrap("put", p.name, ofQuota("put", p.name, err, uid, gid))
}
