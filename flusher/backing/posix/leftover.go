package posix

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/link"
	"forebay/internal/bb"
)

// Sweep removes the temporary files of daemons that have ended, in the whole tree.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	found, err := s.Leftovers(ctx, backing.Within{Deep: true, Remove: true})
	removed := 0
	for i := range found {
		if found[i].Removed {
			removed++
		}
	}
	return removed, err
}

// Leftovers looks for temporary files. Age proves nothing, and the name alone does not prove that
// no user has made it. So its daemon must provably have ended.
func (s *Store) Leftovers(ctx context.Context, in backing.Within) (found []backing.Leftover, err error) {
	top := "."
	if in.Dir != "" {
		if err := backing.CheckName("sweep", in.Dir); err != nil {
			return nil, err
		}
		top = in.Dir
	}
	root, err := s.root(ctx)
	if err != nil {
		return nil, cause.Wrap("sweep", s.dir, err)
	}
	defer root.Close()
	look := func(name string, d fs.DirEntry) error {
		l, ok, err := s.leftover(root, name, d, in.Remove)
		if ok {
			found = append(found, l)
		}
		return err
	}
	if in.Deep {
		err = walkTemps(ctx, root, top, look)
	} else {
		err = eachTemp(ctx, root, top, look)
	}
	return found, cause.Wrap("sweep", s.dir, err)
}

// leftover describes a temporary file, and removes it if its daemon has ended. ok is false where it
// is gone, or is no file.
func (s *Store) leftover(root *os.Root, name string, d fs.DirEntry, remove bool) (l backing.Leftover, ok bool, err error) {
	if !link.OrFile(d.Type()) {
		return l, false, nil
	}
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return l, false, nil
	}
	if err != nil {
		return l, false, err
	}
	l = backing.Leftover{Name: name, Size: info.Size(), Instance: backing.InstanceOf(name), Ended: s.opts.Owner.Ended(name)}
	if !l.Ended || !remove {
		return l, true, nil
	}
	l.Removed, err = s.discard(root, name)
	return l, true, err
}

// walkTemps calls fn for all that is named like a temporary file at and below a directory.
func walkTemps(ctx context.Context, root *os.Root, top string, fn func(string, fs.DirEntry) error) error {
	return fs.WalkDir(root.FS(), top, func(name string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if errors.Is(err, fs.ErrPermission) && d != nil && d.IsDir() && name != top {
			return fs.SkipDir // another user's, so nothing of ours is in it
		}
		if err != nil || d.IsDir() || !backing.IsTemp(name) {
			return err
		}
		return fn(name, d)
	})
}

// namesAtOnce is how many names of a directory are read at a time.
const namesAtOnce = 1024

// eachTemp is walkTemps of one directory.
func eachTemp(ctx context.Context, root *os.Root, dir string, fn func(string, fs.DirEntry) error) error {
	f, err := openDir(root, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		list, err := f.ReadDir(namesAtOnce)
		for _, d := range list {
			if !backing.IsTemp(d.Name()) {
				continue
			}
			if err := fn(path.Join(dir, d.Name()), d); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

// Discard removes unfinished work by its names, as Leftovers does of daemons that have ended, and
// returns which it removed. Names that no Owner made are refused.
func (s *Store) Discard(ctx context.Context, names []string) (removed []string, err error) {
	root, err := s.root(ctx)
	if err != nil {
		return nil, cause.Wrap("sweep", s.dir, err)
	}
	defer root.Close()
	for _, name := range names {
		if !backing.IsTemp(name) {
			return removed, bb.E(bb.Invalid, "sweep", name, "is no name of unfinished work")
		}
		is, err := s.discard(root, name)
		if err != nil {
			return removed, cause.Wrap("sweep", name, err)
		}
		if is {
			removed = append(removed, name)
		}
	}
	return removed, nil
}

// discard removes the file that an ended daemon has left under a name. It returns false if the file
// must not be removed.
func (s *Store) discard(root *os.Root, name string) (bool, error) {
	if base, aside := backing.Aside(name); aside {
		return s.endAside(root, name, path.Join(path.Dir(name), base))
	}
	err := ignoreMissing(root.Remove(name))
	return err == nil, err
}
