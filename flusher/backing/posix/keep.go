package posix

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/link"
	"forebay/flusher/backing/posix/object"
	"forebay/flusher/backing/posix/opendir"
	"forebay/internal/bb"
)

// checkExisting fails if the options keep the object under a name.
func checkExisting(root *os.Root, name string, opts *backing.PutOptions) error {
	if !opts.Keep {
		return nil
	}
	info, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir(): // an exchange would take it for a file
		return bb.E(bb.Exists, "put", name, "the store has a directory there").WithRemedy("rename the file, or the directory on the store")
	case link.OrFile(info.Mode()) && opts.MayReplace(object.Of(name, info).ETag):
		return nil
	}
	return backing.Foreign("put", name)
}

// place gives a temporary file its name. With Keep, the kernel refuses a name that is taken, or
// swaps the two, and the file that had the name is compared before it goes.
func (p *Pending) place() error {
	if !p.opts.Keep {
		return p.rename(0)
	}
	err := p.rename(unix.RENAME_NOREPLACE)
	if err == nil || !errors.Is(err, unix.EEXIST) && !noFlags(err) {
		return err
	}
	if err := checkExisting(p.dir.Root, p.name, &p.opts); err != nil {
		return err
	}
	p.s.opts.between(p.name)
	switch err = p.rename(unix.RENAME_EXCHANGE); {
	case noFlags(err): // NFS: compared a moment ago
		return p.rename(0)
	case errors.Is(err, fs.ErrNotExist): // gone meanwhile
		return p.rename(unix.RENAME_NOREPLACE)
	case err != nil:
		return err
	}
	if err := checkExisting(p.dir.Root, p.temp, &p.opts); err != nil {
		if errors.Is(err, backing.ErrForeign) {
			err = backing.Foreign("put", p.name)
		}
		return errors.Join(err, p.rename(unix.RENAME_EXCHANGE))
	}
	return p.dir.Remove(path.Base(p.temp))
}

// rename renames the temporary file to its name.
func (p *Pending) rename(flags uint) error {
	if p.s.opts.rename2 != nil && flags != 0 {
		return p.s.opts.rename2(p.dir.Root, p.temp, p.name, flags)
	}
	return p.dir.Rename(path.Base(p.temp), path.Base(p.name), flags)
}

// noFlags reports whether a file system, such as NFS, cannot rename with flags.
func noFlags(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

func (s *Store) rename2(root *os.Root, old, newName string, flags uint) error {
	if s.opts.rename2 != nil {
		return s.opts.rename2(root, old, newName, flags)
	}
	return opendir.Rename(root, old, newName, flags)
}

// moveNew renames a file to a free name, and fails with EEXIST otherwise. Where a rename cannot
// check that, a second link does, and the first goes then. Where there are no links either, the
// name is checked right before.
func (s *Store) moveNew(root *os.Root, old, newName string) error {
	err := s.rename2(root, old, newName, unix.RENAME_NOREPLACE)
	if !noFlags(err) {
		return err
	}
	err = s.opts.link(root, old, newName)
	if err == nil {
		return root.Remove(old)
	}
	if !noFlags(err) && !errors.Is(err, unix.EPERM) {
		return err
	}
	if _, err := root.Lstat(newName); err == nil {
		return &os.LinkError{Op: "rename", Old: old, New: newName, Err: unix.EEXIST}
	}
	return root.Rename(old, newName)
}

// versionAt returns the version of the file that has a name now, or none. Anything but a file has a
// version that no Put has made.
func versionAt(root *os.Root, name string) (backing.Version, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return backing.Version{}, nil
	}
	if err != nil {
		return backing.Version{}, err
	}
	if !link.OrFile(info.Mode()) {
		return backing.Version{ETag: "not a file", Size: -1}, nil
	}
	o := object.Of(name, info)
	return o.Version(), nil
}

// RemoveIf moves a file aside, to a name with the version that may be removed, compares it there,
// where no other one takes its place, and removes it or puts it back. Sweep removes or puts back a
// file that a crash left aside.
func (s *Store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("remove", name, err)
	}
	defer root.Close()
	now, err := versionAt(root, name)
	switch {
	case err != nil:
		return cause.Wrap("remove", name, err)
	case now == (backing.Version{}): // an earlier try may have removed it, and failed to make that durable
	case now != is:
		return backing.Foreign("remove", name)
	default:
		if err := s.removeVersion(root, name, is); err != nil {
			return cause.Wrap("remove", name, err)
		}
	}
	return cause.Wrap("remove", name, s.syncDirIfThere(root, path.Dir(name)))
}

// removeVersion removes a file that a moment ago was a version.
func (s *Store) removeVersion(root *os.Root, name string, is backing.Version) error {
	base, ok := s.opts.Owner.AsideName(path.Base(name), is)
	if !ok {
		return ignoreMissing(root.Remove(name))
	}
	aside := path.Join(path.Dir(name), base)
	s.opts.between(name)
	if err := root.Rename(name, aside); err != nil {
		return ignoreMissing(err)
	}
	removed, err := s.endAside(root, aside, name)
	if err == nil && !removed {
		err = backing.Foreign("remove", name)
	}
	return err
}

// endAside removes a file that was moved aside, if it is the version in its name, or else puts it
// back. If something else has the name by then, the file stays aside, as it may not be removed.
func (s *Store) endAside(root *os.Root, aside, name string) (removed bool, err error) {
	now, err := versionAt(root, aside)
	switch {
	case err != nil:
		return false, err
	case now == (backing.Version{}):
		return true, nil
	case backing.MayRemove(aside, now):
		if err := ignoreMissing(root.Remove(aside)); err != nil {
			return false, errors.Join(err, ignoreMissing(s.moveNew(root, aside, name))) // the next try finds it again
		}
		return true, nil
	}
	if err := s.moveNew(root, aside, name); err != nil {
		s.opts.Logger.Warn("a file that another program has written stays under another name", "directory", s.dir, "name", name, "file", aside, "error", err)
		if !errors.Is(err, fs.ErrExist) {
			return false, err
		}
	}
	return false, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RenameIf moves a file to a name that is free, or swaps a link of it with the replaced file, then
// compares the moved file, and moves it back or removes the replaced one. A crash before the
// comparison leaves a file that another program had written at that moment under the new name, or,
// of a swap, under a temporary one, which Sweep removes.
func (s *Store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("rename", old, err)
	}
	defer root.Close()
	from, err := versionAt(root, old)
	if err != nil {
		return cause.Wrap("rename", old, err)
	}
	to, err := versionAt(root, newName)
	switch {
	case err != nil:
		return cause.Wrap("rename", newName, err)
	case old == newName && from == is:
		return nil
	case to == is && to != (backing.Version{}):
		return cause.Wrap("rename", old, s.endRename(root, old, newName, from, is, replaces))
	case from == (backing.Version{}):
		// An earlier try may have moved it, and failed to make that durable: package retry treats a
		// file under the new name as success.
		return cause.Wrap("rename", old, cmp.Or(s.syncMove(root, old, newName), error(&fs.PathError{Op: "rename", Path: old, Err: fs.ErrNotExist})))
	case from != is:
		return backing.Foreign("rename", old)
	case to != (backing.Version{}) && to != replaces:
		return backing.Foreign("rename", newName)
	}
	if err := s.makeDirs(root, path.Dir(newName), nil); err != nil {
		return cause.Wrap("rename", newName, err)
	}
	s.opts.between(old)
	if err := s.renameVersion(root, old, newName, is, to); err != nil {
		return cause.Wrap("rename", old, err)
	}
	return cause.Wrap("rename", old, s.syncMove(root, old, newName))
}

// endRename ends a rename that a crash has cut. The new name has the file already. The old one has
// a second link of the same file, or the replaced file, or one that may not be removed.
func (s *Store) endRename(root *os.Root, old, newName string, from, is, replaces backing.Version) error {
	var err error
	if from == is || from == replaces && from != (backing.Version{}) {
		err = s.removeVersion(root, old, from)
	}
	return cmp.Or(err, s.syncMove(root, old, newName))
}

// renameVersion moves a file that a moment ago was a version, to a name that had another one, or none.
func (s *Store) renameVersion(root *os.Root, old, newName string, is, replaces backing.Version) error {
	if replaces != (backing.Version{}) {
		return s.replaceVersion(root, old, newName, is, replaces)
	}
	err := s.moveNew(root, old, newName)
	if errors.Is(err, fs.ErrExist) {
		return backing.Foreign("rename", newName)
	}
	if err != nil {
		return err
	}
	now, err := versionAt(root, newName)
	if err != nil || now == is {
		return err
	}
	if err := s.moveNew(root, newName, old); err != nil {
		s.warnMoved(old, newName, err)
	}
	return backing.Foreign("rename", old)
}

// replaceVersion is renameVersion over another version. A second link of the file and the replaced
// file are swapped, so that at no moment, and after no crash, the old name has the replaced file.
// Where there are no links, the two names themselves are swapped.
func (s *Store) replaceVersion(root *os.Root, old, newName string, is, replaces backing.Version) error {
	second := path.Join(path.Dir(newName), s.opts.Owner.TempName())
	err := s.opts.link(root, old, second)
	linked := err == nil
	if !linked {
		if !noFlags(err) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EMLINK) {
			return err
		}
		second = old
	}
	err = s.rename2(root, second, newName, unix.RENAME_EXCHANGE)
	if err != nil && linked {
		if err := ignoreMissing(root.Remove(second)); err != nil {
			return err
		}
	}
	switch {
	case noFlags(err): // NFS: compared a moment ago
		return root.Rename(old, newName)
	case errors.Is(err, fs.ErrNotExist): // the replaced file is gone, or the file itself
		return s.renameVersion(root, old, newName, is, backing.Version{})
	case err != nil:
		return err
	}
	if err := s.undo(root, second, old, newName, is, replaces); err != nil {
		return err
	}
	if !linked {
		return s.removeVersion(root, old, replaces)
	}
	if err := ignoreMissing(root.Remove(second)); err != nil {
		return err
	}
	// A file that another program has put under the old name since must not be removed.
	if err := s.removeVersion(root, old, is); !errors.Is(err, backing.ErrForeign) {
		return err
	}
	return nil
}

// undo swaps two names again unless they have the expected files after a swap. One of them is that
// of the file, or of a second link of it, which goes.
func (s *Store) undo(root *os.Root, second, old, newName string, is, replaced backing.Version) error {
	to, err := versionAt(root, newName)
	if err != nil {
		return err
	}
	from, err := versionAt(root, second)
	if err != nil {
		return err
	}
	wrong := newName // that the unexpected file had before
	switch {
	case to == is && from == replaced:
		return nil
	case to != is:
		wrong = old
	}
	err = s.rename2(root, newName, second, unix.RENAME_EXCHANGE)
	if err == nil && second != old {
		err = s.removeLink(root, second, to)
	}
	if err != nil {
		s.warnMoved(second, newName, err)
	}
	return backing.Foreign("rename", wrong)
}

// removeLink removes a second link of a file, if it still is one.
func (s *Store) removeLink(root *os.Root, second string, is backing.Version) error {
	now, err := versionAt(root, second)
	if err == nil && now != is {
		return backing.Foreign("rename", second)
	}
	return errors.Join(err, ignoreMissing(root.Remove(second)))
}

func (s *Store) warnMoved(from, to string, err error) {
	s.opts.Logger.Warn("a file that another program has written was moved", "directory", s.dir, "from", from, "to", to, "error", err)
}
