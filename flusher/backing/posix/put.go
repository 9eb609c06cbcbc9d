package posix

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/fileattr"
	"forebay/flusher/backing/posix/fileio"
	"forebay/flusher/backing/posix/lustre"
	"forebay/flusher/backing/posix/opendir"
	"forebay/internal/bb"
)

// Put writes a file in the steps that make it atomic and durable. None may be left out or moved:
//
//	make and sync missing directories → create a temporary file beside the final
//	name → write → compare checksums → attributes → sync → close, checked →
//	PutOptions.Last → the root is still there → rename → sync the directory
//
// Puts under way together share both syncs (package syncgroup).
func (s *Store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	p, err := s.Begin(ctx, name, src.Size(), opts)
	if err != nil {
		return backing.Object{}, err
	}
	defer p.Abort()
	sum, err := backing.InParts(ctx, src.Size(), p.PartSize(s.opts.PartSize), s.opts.Parallel,
		func(ctx context.Context, _ int, off, n int64) (uint64, error) { return p.writePart(ctx, src, off, n) })
	if err == nil {
		err = backing.CheckSource(name, src, sum)
	}
	if err != nil {
		return backing.Object{}, p.failed(err)
	}
	if err := p.Finish(); err != nil {
		return backing.Object{}, err
	}
	if err := opts.LastStep(ctx); err != nil {
		return backing.Object{}, p.failed(err)
	}
	o, err := p.Commit(ctx)
	if err == nil {
		o.Checksum, o.HasChecksum = src.Checksum(), true
		if fewer := p.Fewer(); s.told.First(fewer) {
			s.opts.Logger.Warn(fewer, "directory", s.dir)
		}
	}
	return o, err
}

// create makes the temporary file. On Lustre the file has the layout that the table, or an attempt that met a full
// target, requests, and create returns that. Nil: it has that of its directory.
func (s *Store) create(dir *opendir.Dir, temp, name string, size int64) (*os.File, lustre.Layout, error) {
	flags := 0
	var layout lustre.Layout
	if s.identity.Kind == lustre.Magic {
		if layout = s.full.Next(name); layout == nil {
			layout = lustre.LayoutFor(s.opts.Layouts, size)
		}
	}
	if layout != nil {
		flags |= lustre.DelayCreate
	}
	f, err := dir.Create(temp, flags, 0o666)
	if errors.Is(err, fs.ErrExist) {
		// No other put has this name. The kernel or the server has made the file, lost the answer
		// and tried again (ESTALE, NFS).
		return nil, nil, &bb.Error{Kind: bb.Unavailable, Op: "put", Err: syscall.EEXIST}
	}
	if err == nil && layout != nil {
		if err := layout.Set(f); err != nil {
			// The file can be written all the same, only more slowly.
			s.opts.Logger.Warn("no stripe layout", "directory", s.dir, "file", temp, "error", err)
			layout = nil
		}
	}
	return f, layout, err
}

// setAttrs comes before the sync, so that it covers them.
func setAttrs(root *os.Root, temp string, f *os.File, attrs *backing.Attrs, group bool) error {
	if attrs == nil {
		return nil
	}
	if err := fileattr.Group(group).SetOwner(f, attrs); err != nil {
		return err
	}
	if err := f.Chmod(attrs.Mode.Perm()); err != nil {
		return err
	}
	if attrs.MTime.IsZero() {
		return nil
	}
	return fileattr.SetTime(root, temp, f, attrs.MTime)
}

// writePart writes a range straight from the source's memory, or past the page cache.
func (p *Pending) writePart(ctx context.Context, src backing.Source, off, n int64) (uint64, error) {
	if p.direct != nil {
		return p.writePartDirect(ctx, src, off, n)
	}
	slices, sum, err := backing.ReadSource(p.name, src, nil, off, n)
	if err != nil {
		return 0, err
	}
	return sum, fileio.WriteAll(p.f, slices, off)
}

// makeDirs makes a directory and its parents, and syncs the entry of each that may not be on disk,
// by any maker. Directories that it makes belong to the owner of their later files, without
// attributes to that of their parent. Directories of root's would hinder the user of those files,
// here and the next time.
func (s *Store) makeDirs(root *os.Root, dir string, attrs *backing.Attrs) error {
	if dir == "." || s.isDurable(dir) {
		return nil
	}
	if err := s.makeDirs(root, path.Dir(dir), attrs); err != nil {
		return err
	}
	err := root.Mkdir(dir, 0o777)
	if err == nil {
		if err = own(root, dir, attrs); err != nil {
			root.Remove(dir) // the next try would find it made, and leave it to the daemon's user
		} else {
			s.mark(root, dir)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if err := s.syncDir(root, path.Dir(dir)); err != nil {
		return err
	}
	s.setDurable(dir)
	return nil
}

// own gives a new directory its owner, if this process may.
func own(root *os.Root, dir string, attrs *backing.Attrs) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if attrs != nil {
		return root.Chown(dir, int(attrs.UID), int(attrs.GID))
	}
	parent, err := root.Stat(path.Dir(dir))
	if err != nil {
		return err
	}
	if stat, ok := parent.Sys().(*syscall.Stat_t); ok {
		return root.Chown(dir, int(stat.Uid), int(stat.Gid))
	}
	return nil
}

func (s *Store) isDurable(dir string) bool {
	s.durable.Lock()
	defer s.durable.Unlock()
	_, ok := s.durable.dirs[dir]
	return ok
}

func (s *Store) setDurable(dir string) {
	s.durable.Lock()
	defer s.durable.Unlock()
	if len(s.durable.dirs) >= maxDurable {
		clear(s.durable.dirs)
	}
	s.durable.dirs[dir] = struct{}{}
}

// forgetDurable is called when directories move or go away.
func (s *Store) forgetDurable() {
	s.durable.Lock()
	defer s.durable.Unlock()
	clear(s.durable.dirs)
	s.open.Forget()
}

func (s *Store) syncDir(root *os.Root, dir string) error {
	d, err := openDir(root, dir)
	if err != nil {
		return err
	}
	err = s.syncOpen(d, dir, s.dirs.Opened())
	return errors.Join(err, d.Close())
}

func (s *Store) syncOpen(d *os.File, dir string, opened uint64) error {
	err := s.dirs.Sync(d, path.Clean(dir), opened)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil // some network file systems have no fsync of directories, whose entries are durable at once
	}
	return err
}
