package client

import (
	"context"
	"io"
	"io/fs"
	"path"
	"time"

	"forebay/internal/bb"
)

// FS returns the buffer as a read-only file system. Its calls, and the files that it
// opens, use ctx. It implements fs.ReadDirFS, fs.ReadFileFS, fs.StatFS and fs.SubFS.
func (b *Buffer) FS(ctx context.Context) fs.FS { return &tree{b: b, ctx: ctx} }

// tree is a directory of a buffer as a file system.
type tree struct {
	b    *Buffer
	ctx  context.Context
	root string // "": the buffer's own
}

var _ interface {
	fs.ReadDirFS
	fs.ReadFileFS
	fs.StatFS
	fs.SubFS
} = (*tree)(nil)

// resolve returns the path in the buffer of a name in the tree.
func (t *tree) resolve(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return t.root, nil
	}
	return path.Join(t.root, name), nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open opens a file or directory.
func (t *tree) Open(name string) (fs.File, error) {
	p, err := t.resolve("open", name)
	if err != nil {
		return nil, err
	}
	if p != "" {
		f, err := t.b.Open(t.ctx, p)
		if err == nil {
			return treeFile{f}, nil
		}
		if bb.KindOf(err) != bb.IsDirectory {
			return nil, pathError("open", name, err)
		}
	}
	e, err := t.b.Stat(t.ctx, p)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	e.Name = path.Base(name)
	return &directory{t: t, entry: e}, nil
}

// Stat describes a file or directory.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	p, err := t.resolve("stat", name)
	if err != nil {
		return nil, err
	}
	e, err := t.b.Stat(t.ctx, p)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	e.Name = path.Base(name)
	return fileInfo{&e}, nil
}

// ReadFile returns a file's content.
func (t *tree) ReadFile(name string) ([]byte, error) {
	p, err := t.resolve("read", name)
	if err != nil {
		return nil, err
	}
	data, err := t.b.ReadFile(t.ctx, p)
	return data, pathError("read", name, err)
}

// ReadDir lists a directory by name.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	p, err := t.resolve("readdir", name)
	if err != nil {
		return nil, err
	}
	var list []fs.DirEntry
	for e, err := range t.b.ReadDir(t.ctx, p) {
		if err != nil {
			return list, pathError("readdir", name, err)
		}
		list = append(list, fs.FileInfoToDirEntry(fileInfo{&e}))
	}
	return list, nil
}

// Sub returns a directory below as a file system.
func (t *tree) Sub(name string) (fs.FS, error) {
	p, err := t.resolve("sub", name)
	if err != nil {
		return nil, err
	}
	return &tree{b: t.b, ctx: t.ctx, root: p}, nil
}

// treeFile is a file of a tree, for reading only, with the errors of package fs.
type treeFile struct{ *File }

// Close closes the file.
func (f treeFile) Close() error { return pathError("close", f.Name(), f.File.Close()) }

// directory is an open directory of a tree.
type directory struct {
	t      *tree
	entry  Entry
	after  string
	ended  bool
	closed bool
}

// Stat describes the directory.
func (d *directory) Stat() (fs.FileInfo, error) {
	if d.closed {
		return nil, pathError("stat", d.entry.Name, fs.ErrClosed)
	}
	return fileInfo{&d.entry}, nil
}

// Read fails, since a directory has no bytes.
func (d *directory) Read([]byte) (int, error) {
	return 0, pathError("read", d.entry.Name, bb.E(bb.IsDirectory, "read", d.entry.Path, "a directory has no bytes"))
}

// Close ends the listing.
func (d *directory) Close() error {
	if d.closed {
		return pathError("close", d.entry.Name, fs.ErrClosed)
	}
	d.closed = true
	return nil
}

// ReadDir returns the next n entries, or all that are left.
func (d *directory) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, pathError("readdir", d.entry.Name, fs.ErrClosed)
	}
	var list []fs.DirEntry
	for !d.ended && (n <= 0 || len(list) < n) {
		limit := 0
		if n > 0 {
			limit = min(n-len(list), bb.MaxPageSize)
		}
		page, more, err := d.t.b.List(d.t.ctx, d.entry.Path, d.after, limit)
		if err != nil {
			return list, pathError("readdir", d.entry.Name, err)
		}
		for i := range page {
			list = append(list, fs.FileInfoToDirEntry(fileInfo{&page[i]}))
			d.after = page[i].Name
		}
		d.ended = !more || len(page) == 0
	}
	if n > 0 && len(list) == 0 {
		return nil, io.EOF
	}
	return list, nil
}

// fileInfo is an entry in the form of package fs.
type fileInfo struct{ e *Entry }

// Name returns the last name of the path, or "." for the root.
func (i fileInfo) Name() string {
	if i.e.Name == "" {
		return "."
	}
	return i.e.Name
}

func (i fileInfo) Size() int64        { return i.e.Size }
func (i fileInfo) ModTime() time.Time { return i.e.ModTime }
func (i fileInfo) IsDir() bool        { return i.e.IsDir() }

// Sys returns the [*Entry].
func (i fileInfo) Sys() any { return i.e }

// Mode returns the permission bits and the type.
func (i fileInfo) Mode() fs.FileMode {
	return i.e.Mode | i.e.Type.Mode()
}
