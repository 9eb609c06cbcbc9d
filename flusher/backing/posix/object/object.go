// Package object describes and reads the files of a store as objects. It must never change one, nor depend on a store.
package object

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/fileattr"
	"forebay/internal/bb"
)

// Of describes a file. A POSIX file system's name for a content is the inode together with the
// time of its last change, which Put never makes in place.
func Of(name string, info fs.FileInfo) backing.Object {
	o := backing.Object{Name: name, Size: info.Size(), MTime: info.ModTime(), Mode: info.Mode() & (fs.ModePerm | fs.ModeSymlink), HasMode: true}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		o.ETag = fmt.Sprintf("%x:%x", st.Ino, info.ModTime().UnixNano())
	}
	return o
}

// Describe describes an open file, with its extended attributes.
func Describe(name string, f *os.File) (backing.Object, error) {
	info, err := f.Stat()
	if err != nil {
		return backing.Object{}, WrapRead(f, err)
	}
	o := Of(name, info)
	o.Xattrs, err = fileattr.Xattrs(f)
	return o, WrapRead(f, err)
}

// Reader reads a range of an open file, which it closes in the end.
type Reader struct {
	ctx  context.Context
	name string
	f    *os.File
	r    *io.SectionReader
	left int64 // bytes that must still come
	err  error // of Object
}

// NewReader returns a reader of n bytes of a file from an offset. A negative n means up to its end. Its Read fails when
// ctx has ended.
func NewReader(ctx context.Context, name string, f *os.File, off, n int64) *Reader {
	r := &Reader{ctx: ctx, name: name, f: f, left: max(n, 0)}
	if n < 0 {
		n = bb.MaxFileSize
	}
	r.r = io.NewSectionReader(f, off, n)
	return r
}

// Object is for backing.Described. If the file cannot be described, the next Read fails.
func (r *Reader) Object() (backing.Object, bool) {
	var o backing.Object
	o, r.err = Describe(r.name, r.f)
	return o, r.err == nil
}

func (r *Reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, bb.Wrap("get", r.f.Name(), err)
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.r.Read(p)
	r.left -= int64(n)
	switch {
	case err == io.EOF && r.left > 0:
		return n, io.ErrUnexpectedEOF
	case err != nil && err != io.EOF:
		return n, WrapRead(r.f, err)
	}
	return n, err
}

// Close closes the file.
func (r *Reader) Close() error { return WrapRead(r.f, r.f.Close()) }

// WrapRead returns an error of reading an open file in the form of Get's reader.
func WrapRead(f *os.File, err error) error { return cause.Wrap("get", f.Name(), err) }
