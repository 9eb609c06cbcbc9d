package posix

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"unicode/utf8"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/fileattr"
	"forebay/flusher/backing/posix/link"
	"forebay/internal/xattr"
)

// unlisted makes a walk skip entries below directories without UTF-8 names, as fs opens none.
func unlisted(name string, d fs.DirEntry) error {
	if d.IsDir() && !utf8.ValidString(name) {
		return fs.SkipDir
	}
	return nil
}

// Others walks a directory and follows no symbolic link. Of a directory whose name is not UTF-8, only that name is
// passed to fn, and List has nothing below it.
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
				o := backing.Other{Name: name, Mode: info.Mode(), MTime: info.ModTime()}
				if o.Xattrs, err = dirXattrs(root, &o); err == nil {
					stopped = fn(o)
					return cmp.Or(stopped, unlisted(name, d))
				}
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

// dirXattrs returns the extended attributes of a directory. One that this process may not read is not listed either.
func dirXattrs(root *os.Root, o *backing.Other) (xattr.List, error) {
	if !o.Mode.IsDir() {
		return "", nil
	}
	f, err := openDir(root, o.Name)
	if err != nil {
		return "", nil // the walk reports it
	}
	defer f.Close()
	return fileattr.Xattrs(f)
}
