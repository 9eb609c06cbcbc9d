package client

import (
	"context"
	"slices"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/internal/xattr"
)

// Xattr is an extended attribute of a file or directory (see Buffer.Xattrs).
type Xattr struct {
	Name   string // begins with "user."
	Value  []byte
	Stored bool // the backing store has this value with the file, as of its last flush
}

// SetXattr sets an extended attribute of a file or directory that the user may write. Its name begins with "user." and
// has at most 255 bytes. Another name fails with ErrUnsupported. All attributes of a file together take at most 8 KiB.
// More of them fail with ErrNoSpace. Attributes belong to the file. Renames and new content keep them. They come to
// the store with the next flush of the file's content.
func (b *Buffer) SetXattr(ctx context.Context, path, name string, value []byte) error {
	return b.setXattr(ctx, "setxattr", path, xattr.Set, name, value)
}

// CreateXattr is SetXattr that fails with ErrExists if there is an attribute of that name.
func (b *Buffer) CreateXattr(ctx context.Context, path, name string, value []byte) error {
	return b.setXattr(ctx, "setxattr", path, xattr.Create, name, value)
}

// ReplaceXattr is SetXattr that fails with ErrNotFound if there is no attribute of that name.
func (b *Buffer) ReplaceXattr(ctx context.Context, path, name string, value []byte) error {
	return b.setXattr(ctx, "setxattr", path, xattr.Replace, name, value)
}

// RemoveXattr removes an extended attribute. ErrNotFound: there is no such file, or no such attribute.
func (b *Buffer) RemoveXattr(ctx context.Context, path, name string) error {
	return b.setXattr(ctx, "removexattr", path, xattr.Remove, name, nil)
}

func (b *Buffer) setXattr(ctx context.Context, op, path string, change xattr.Op, name string, value []byte) error {
	clean, err := bb.CheckPath(op, b.name, path)
	if err != nil {
		return err
	}
	if err := xattr.CheckName(name); err != nil {
		return bb.Wrap(op, b.address(clean), err)
	}
	if len(value) > xattr.MaxTotal {
		return bb.Wrap(op, b.address(clean), xattr.TooLarge(name, len(value)))
	}
	m := &wire.SetXattr{Buffer: b.name, Path: clean, Name: []byte(name), Value: value, Op: uint32(change)}
	return bb.Wrap(op, b.address(clean), b.c.conn.Ask(ctx, wire.Type_TYPE_SET_XATTR, m, nil))
}

// Xattrs returns the extended attributes of a file or directory by name. ErrPermission: the user may not read it.
func (b *Buffer) Xattrs(ctx context.Context, path string) ([]Xattr, error) {
	clean, m, err := b.xattrs(ctx, "getxattr", path)
	if err != nil {
		return nil, err
	}
	if m.Unreadable {
		return nil, bb.E(bb.Permission, "getxattr", b.address(clean), "the user may not read it")
	}
	all := make([]Xattr, len(m.Xattrs))
	for i, x := range m.Xattrs {
		all[i] = Xattr{string(x.Name), x.Value, x.Stored}
	}
	return all, nil
}

// XattrNames returns the names of the extended attributes of a file or directory. The right to find it is enough.
func (b *Buffer) XattrNames(ctx context.Context, path string) ([]string, error) {
	_, m, err := b.xattrs(ctx, "listxattr", path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(m.Xattrs))
	for i, x := range m.Xattrs {
		names[i] = string(x.Name)
	}
	return names, nil
}

func (b *Buffer) xattrs(ctx context.Context, op, path string) (clean string, m *wire.Xattrs, err error) {
	if clean, err = bb.CheckPath(op, b.name, path); err != nil {
		return "", nil, err
	}
	m = new(wire.Xattrs)
	err = b.c.conn.Ask(ctx, wire.Type_TYPE_XATTRS, &wire.PathRequest{Buffer: b.name, Path: clean}, m)
	return clean, m, bb.Wrap(op, b.address(clean), err)
}

// Xattr returns the value of an extended attribute. ErrNotFound: there is no such file, or no such attribute.
func (b *Buffer) Xattr(ctx context.Context, path, name string) ([]byte, error) {
	all, err := b.Xattrs(ctx, path)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(x Xattr) bool { return x.Name == name })
	if i < 0 {
		return nil, bb.E(bb.NotFound, "getxattr", b.address(path), "it has no attribute "+bb.Printable(name))
	}
	return all[i].Value, nil
}
