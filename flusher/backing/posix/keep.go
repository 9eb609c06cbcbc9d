package posix

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"forebay/flusher/backing"
)

// checkExisting fails if the options keep what is under a name.
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
	case info.IsDir(): // the rename says what is wrong
		return nil
	case info.Mode().IsRegular() && opts.MayReplace(object(name, info).ETag):
		return nil
	}
	return backing.Foreign(name)
}

// place gives a temporary file its name. With Keep, the kernel refuses a name that is taken; a
// file that may be replaced is compared right before.
func place(root *os.Root, temp, name string, opts *backing.PutOptions) error {
	if !opts.Keep {
		return root.Rename(temp, name)
	}
	err := renameNew(root, temp, name)
	switch {
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		// Taken; or a file system (NFS) that knows no such rename.
		if err := checkExisting(root, name, opts); err != nil {
			return err
		}
		return root.Rename(temp, name)
	}
	return err
}

// renameNew renames within a directory, and fails with EEXIST if the new name is taken.
func renameNew(root *os.Root, temp, name string) error {
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	return unix.Renameat2(fd, path.Base(temp), fd, path.Base(name), unix.RENAME_NOREPLACE)
}
