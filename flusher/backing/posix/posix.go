// Package posix keeps objects as files below a directory of any POSIX file system, and gives large
// files a stripe layout where that is Lustre. It handles files. It must never depend on their content.
package posix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"forebay/flusher/backing"
	"forebay/flusher/backing/posix/cause"
	"forebay/flusher/backing/posix/identity"
	"forebay/flusher/backing/posix/link"
	"forebay/flusher/backing/posix/lustre"
	"forebay/flusher/backing/posix/object"
	"forebay/flusher/backing/posix/opendir"
	"forebay/flusher/backing/posix/syncgroup"
	"forebay/internal/bb"
)

// Options configures a store.
type Options struct {
	Owner backing.Owner
	// Root is the result of Identify for the directory when it was chosen. While another one lies
	// there, the store is unavailable. "": the identity at the time when it is opened.
	Root string
	// PartSize is how many bytes one worker writes at a time. 0 means 16 MiB.
	PartSize int64
	// Parallel is how many workers write one large file. 0 means 4.
	Parallel int
	// Layouts is the stripe table used on Lustre. nil means that each file has the layout of its directory.
	Layouts []lustre.Rule
	// Mark is set on directories that the store makes, where the file system has attributes of
	// users (xattr(7)). DirOptions.Keep then concerns those without it. "": none is set.
	Mark string
	// Group makes a process that is not root's set the group of files, where its user is in it.
	Group bool
	// Logger takes warnings. If it is nil, none are written.
	Logger *slog.Logger

	identify func(dir *os.File) (identity.Identity, error) // nil: of the kernel
	// Of tests: replacements of the kernel's rename and link, and a function that runs between the check
	// of a name and the change that depends on it.
	rename2 func(root *os.Root, old, newName string, flags uint) error // nil: the kernel
	link    func(root *os.Root, old, newName string) error
	between func(name string)
	room    func(root *os.Root) (int64, error) // the result of statfs
	sync    syncgroup.Options
}

func (o Options) withDefaults() Options {
	if o.PartSize <= 0 {
		o.PartSize = 16 << 20
	}
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.identify == nil {
		o.identify = identity.Of
	}
	if o.link == nil {
		o.link = (*os.Root).Link
	}
	if o.room == nil {
		o.room = lustre.Room
	}
	if o.between == nil {
		o.between = func(string) {}
	}
	return o
}

// Store is a directory. Its root is opened for each call, through os.Root. So a file system that
// was mounted again is found again, and no symbolic link below the root leads out of it.
type Store struct {
	dir      string
	opts     Options
	identity identity.Identity

	buffered atomic.Bool // the file system refuses O_DIRECT
	full     lustre.FullTargets
	told     lustre.Told
	files    *syncgroup.Files
	dirs     syncgroup.Dirs
	open     opendir.Cache

	// durable holds the directories whose own entry is certainly on disk, so that a million small
	// files do not sync their parents' parents each time.
	durable struct {
		sync.Mutex
		dirs map[string]struct{}
	}
}

var _ backing.Store = (*Store)(nil)

const maxDurable = 4096 // recorded directories

// Open returns the store of an existing directory.
func Open(dir string, opts Options) (*Store, error) {
	s := &Store{dir: dir, opts: opts.withDefaults(), files: syncgroup.NewFiles(opts.sync)}
	s.durable.dirs = map[string]struct{}{}
	known := false
	s.identity, known = identity.Parse(opts.Root)
	f, err := os.Open(dir)
	if err != nil && known {
		return nil, s.rootGone(err)
	}
	if err != nil {
		return nil, rootError(dir, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, rootError(dir, err)
	}
	if !info.IsDir() {
		return nil, bb.E(bb.NotDirectory, "open backing", dir, "is a file").WithRemedy("name a directory")
	}
	if known {
		if err := s.checkRoot(f); err != nil {
			return nil, err
		}
		return s, nil
	}
	if s.identity, err = s.opts.identify(f); err != nil {
		return nil, rootError(dir, err)
	}
	s.identity.Mount = identity.MountOf(f)
	return s, nil
}

func rootError(dir string, err error) error {
	e := &bb.Error{Kind: bb.KindOf(cause.Wrap("open backing", dir, err)), Op: "open backing", Path: dir, Err: err}
	switch {
	case errors.Is(err, syscall.EROFS):
		return e.WithRemedy(cause.MountForWriting)
	case e.Kind == bb.NotFound:
		return e.WithRemedy("create the directory, or mount the file system it is on")
	case e.Kind == bb.Permission:
		return e.WithRemedy("let the daemon's user read and write the directory")
	default:
		return e
	}
}

// root opens the directory and makes sure that it is still the same. Writing "durably" below the
// mount point of a file system that is gone would put the bytes on the node's own disk. Later
// operations are done in that directory, even if another comes to lie under its path.
func (s *Store) root(ctx context.Context) (*os.Root, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, s.rootGone(err)
	}
	dir, err := root.Open(".")
	if err != nil {
		root.Close()
		return nil, s.rootGone(err)
	}
	defer dir.Close()
	if err := s.checkRoot(dir); err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// stillThere is called before a file gets its name. It makes sure that the path still leads to the
// directory that was opened. To hand a file over to a file system that has been unmounted, or
// covered by another, is no success.
func (s *Store) stillThere(root *os.Root) error {
	opened, err := root.Stat(".")
	if err != nil {
		return s.rootGone(err)
	}
	now, err := os.Stat(s.dir)
	if err != nil {
		return s.rootGone(err)
	}
	if !os.SameFile(opened, now) {
		return bb.E(bb.Unavailable, "open backing", s.dir, "was unmounted, or covered by another mount, meanwhile").
			WithRemedy("mount the file system again")
	}
	return nil
}

// rootGone reports a root that once was there as unavailable, since it may come back.
func (s *Store) rootGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOTCONN) {
		return (&bb.Error{Kind: bb.Unavailable, Op: "open backing", Path: s.dir, Err: err}).
			WithRemedy("create the directory, or mount the file system it is on")
	}
	return rootError(s.dir, err)
}

// Get opens a file at an offset.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := backing.CheckRange("get", name, off); err != nil {
		return nil, err
	}
	f, err := s.Object(ctx, name)
	if err != nil {
		return nil, err
	}
	return object.NewReader(ctx, name, f, off, n), nil
}

// Object opens a file for reading. All but files are refused. The open of a pipe would wait for its
// writer.
func (s *Store) Object(ctx context.Context, name string) (*os.File, error) {
	if err := backing.CheckName("get", name); err != nil {
		return nil, err
	}
	root, err := s.root(ctx)
	if err != nil {
		return nil, cause.Wrap("get", name, err)
	}
	defer root.Close()
	f, isLink, err := link.Open(root, name)
	if isLink || err != nil {
		return f, cause.Wrap("get", name, err)
	}
	if err := isObject(f, "get", name); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func isObject(f *os.File, op, name string) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return cause.Wrap(op, name, err)
	case info.IsDir():
		return bb.E(bb.NotFound, op, name, "is a directory, not an object")
	case !info.Mode().IsRegular():
		return bb.E(bb.Invalid, op, name, "is no file").WithRemedy("remove the entry there")
	}
	return nil
}

// openDir opens a directory, and nothing else that may lie there by now.
func openDir(root *os.Root, dir string) (*os.File, error) {
	return root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
}

// Stat describes a file.
func (s *Store) Stat(ctx context.Context, name string) (backing.Object, error) {
	if err := backing.CheckName("stat", name); err != nil {
		return backing.Object{}, err
	}
	root, err := s.root(ctx)
	if err != nil {
		return backing.Object{}, cause.Wrap("stat", name, err)
	}
	defer root.Close()
	info, err := root.Lstat(name)
	if err != nil {
		return backing.Object{}, cause.Wrap("stat", name, err)
	}
	if info.IsDir() {
		return backing.Object{}, bb.E(bb.NotFound, "stat", name, "is a directory, not an object")
	}
	return object.Of(name, info), nil
}

// List walks the directory in which the prefix ends.
func (s *Store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	dir := strings.TrimSuffix(prefix, "/")
	if dir == prefix { // not a directory's name, so its parent has the names that begin with it
		dir = path.Dir(prefix)
	}
	if dir == "" {
		dir = "."
	}
	root, err := s.root(ctx)
	if err != nil {
		return cause.Wrap("list", prefix, err)
	}
	defer root.Close()
	var stopped error
	err = fs.WalkDir(root.FS(), dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && d.IsDir() {
			if !strings.HasPrefix(name+"/", prefix) && !strings.HasPrefix(prefix, name+"/") && name != "." {
				return fs.SkipDir
			}
			return unlisted(name, d)
		}
		if err == nil && strings.HasPrefix(name, prefix) && !backing.IsTemp(name) {
			info, infoErr := root.Lstat(name)
			if infoErr == nil && link.OrFile(info.Mode()) {
				stopped = fn(object.Of(name, info))
				return stopped
			}
			err = infoErr
		}
		if errors.Is(err, fs.ErrNotExist) || err != nil && name == dir && link.Is(root, dir) {
			return nil // removed while we walked, or a link to nothing, or out of the root
		}
		return err
	})
	if stopped != nil {
		return stopped
	}
	return cause.Wrap("list", prefix, err)
}

// Close has no connection to close. It does not wait for a syncfs(2) for which no file waits any more
// (syncgroup.Files.Wait). Nothing interrupts the kernel's call, and it may last for minutes.
func (s *Store) Close() error { return nil }

// Check writes, syncs, reads back and removes a small file.
func (s *Store) Check(ctx context.Context) error {
	root, err := s.root(ctx)
	if err != nil {
		return err
	}
	defer root.Close()
	name := s.opts.Owner.TempName()
	err = s.probe(root, name)
	removeErr := root.Remove(name)
	switch {
	case err != nil:
		return rootError(s.dir, fmt.Errorf("cannot write: %w", err))
	case removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist):
		return rootError(s.dir, fmt.Errorf("cannot remove: %w", removeErr))
	}
	return nil
}

func (s *Store) probe(root *os.Root, name string) error {
	const content = "forebay"
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	got, err := root.ReadFile(name)
	if err == nil && string(got) != content {
		err = bb.E(bb.Checksum, "check", name, "reads back other bytes than were written")
	}
	return err
}
