package posix

import (
	"context"
	"errors"
	"io/fs"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/link"
)

// Others walks a directory and follows no symbolic link.
func (s *Store) Others(ctx context.Context, dir string, fn func(backing.Other) error) error {
	if dir == "" {
		dir = "."
	} else if err := backing.CheckName("list", dir); err != nil {
		return err
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("list", dir, err)
	}
	defer root.Close()
	switch info, err := root.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist), err != nil && link.Is(root, dir):
		return nil
	case err != nil:
		return cause.Wrap("list", dir, err)
	case info.Mode().IsRegular():
		return nil
	case !info.IsDir():
		return fn(backing.Other{Name: dir, Mode: info.Mode(), MTime: info.ModTime()})
	}
	var stopped error
	err = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && (!link.OrFile(d.Type()) || name == dir) && !backing.IsTemp(name) {
			var info fs.FileInfo
			if info, err = root.Lstat(name); err == nil && name == dir {
				info, err = root.Stat(name) // the directory may be named by a link
			}
			if err == nil {
				stopped = fn(backing.Other{Name: name, Mode: info.Mode(), MTime: info.ModTime()})
				return stopped
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed while we walked
		}
		return err
	})
	if stopped != nil {
		return stopped
	}
	return cause.Wrap("list", dir, err)
}
