package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client/internal/reader"
	"forebay/client/internal/session"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Buffer addresses one buffer: its files and directories. Paths are relative to its root. A leading
// slash is ignored, and ".." is refused. It may be used concurrently and needs no closing.
type Buffer struct {
	c    *Client
	name string
}

// OpenOptions are the options of opening a file.
type OpenOptions struct {
	Write     bool        // for writing (and reading); else for reading only
	Create    bool        // make the file if it is missing
	Exclusive bool        // with Create: fail with ErrExists if it is there
	Truncate  bool        // begin from nothing. The old content is visible until the first commit
	Append    bool        // every Write goes to the end of the file, as far as this File has read it
	Mode      fs.FileMode // permission bits of a new file; 0: 0o644
	ModTime   time.Time   // of the written content; zero: the time of the write
	Linear    bool        // for reading: have the daemon lay the bytes out for InPlace, if the file is large

	fence bool // others are done writing the file (see Recover)
}

// Attr are attributes to change. Nil fields stay as they are.
type Attr struct {
	Mode    *fs.FileMode // permission bits
	UID     *uint32
	GID     *uint32
	ModTime *time.Time
}

const (
	defaultFileMode = 0o644
	permissionBits  = fs.FileMode(0o777)
)

// Name returns the buffer's name.
func (b *Buffer) Name() string { return b.name }

// source is where readers find the buffer's files.
func (b *Buffer) source() reader.Source {
	return reader.Source{Conn: b.c.conn, Buffer: b.name, Regions: &b.c.regions, Staged: b.c.staged, VerifyAll: b.c.o.VerifyAll}
}

// address is bb://BUFFER/path, for messages.
func (b *Buffer) address(path string) string {
	return bb.Address{Buffer: b.name, Path: path}.String()
}

// ReturnLeases returns the memory that this client has leased for the buffer's files, that of files
// which are open as soon as they are closed. Otherwise it is kept for a second after the last write.
func (b *Buffer) ReturnLeases() { b.c.pools.End(b.name) }

// Open opens a file for reading. The File reads the content of this moment until it is
// closed, even if the name is replaced or removed meanwhile.
func (b *Buffer) Open(ctx context.Context, path string) (*File, error) {
	return b.OpenFile(ctx, path, OpenOptions{})
}

// Create opens a file for writing from nothing, making it if it is missing. It does not wait for
// the daemon. If the file cannot be made, the first operation that needs it fails, at the latest
// Sync or Close.
func (b *Buffer) Create(ctx context.Context, path string) (*File, error) {
	return b.OpenFile(ctx, path, OpenOptions{Write: true, Create: true, Truncate: true})
}

// OpenFile opens a file. Opening for reading, Exclusive and opening without Create
// wait for the daemon's answer.
func (b *Buffer) OpenFile(ctx context.Context, path string, o OpenOptions) (*File, error) {
	clean, err := bb.CheckPath("open", b.name, path)
	if err != nil {
		return nil, err
	}
	switch {
	case clean == "":
		return nil, bb.E(bb.IsDirectory, "open", b.address(""), "the root is a directory")
	case !o.Write && (o.Create || o.Exclusive || o.Truncate || o.Append):
		return nil, bb.E(bb.Invalid, "open", b.address(clean), "Create, Exclusive, Truncate and Append need Write")
	case o.Exclusive && !o.Create:
		return nil, bb.E(bb.Invalid, "open", b.address(clean), "Exclusive needs Create")
	case o.Mode&^permissionBits != 0:
		return nil, bb.E(bb.Invalid, "open", b.address(clean), fmt.Sprintf("the mode %v has more than permission bits", o.Mode))
	}
	if o.Mode == 0 {
		o.Mode = defaultFileMode
	}
	return openFile(ctx, b, clean, o)
}

// ReadFile returns a file's content.
func (b *Buffer) ReadFile(ctx context.Context, path string) ([]byte, error) {
	f, err := b.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Abort()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && (!errors.Is(err, io.EOF) || n < len(data)) {
		return nil, err
	}
	return data, nil
}

// WriteFile makes data the content of a file, in one commit.
func (b *Buffer) WriteFile(ctx context.Context, path string, data []byte, mode fs.FileMode) error {
	f, err := b.OpenFile(ctx, path, OpenOptions{Write: true, Create: true, Truncate: true, Mode: mode})
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Close()
}

// Recover ends the writing of a file by all its writers. Their commits are its content, and their
// later operations on it fail, also those of writers that have not detected the end yet or cannot
// be reached.
func (b *Buffer) Recover(ctx context.Context, path string) error {
	f, err := b.OpenFile(ctx, path, OpenOptions{Write: true, fence: true})
	if err != nil {
		return err
	}
	defer f.Abort()
	// A commit of nothing begins a generation of another number, which the writers of
	// the one before cannot go on with.
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// Stat describes a file or directory.
func (b *Buffer) Stat(ctx context.Context, path string) (Entry, error) {
	clean, err := bb.CheckPath("stat", b.name, path)
	if err != nil {
		return Entry{}, err
	}
	var reply wire.Entry
	if err := b.c.conn.Ask(ctx, wire.Type_TYPE_STAT, &wire.PathRequest{Buffer: b.name, Path: clean}, &reply); err != nil {
		return Entry{}, bb.Wrap("stat", b.address(clean), err)
	}
	return asEntry(clean, &reply), nil
}

// List returns one page of a directory, by name: names greater than after, at most
// limit (0: the daemon's default). More reports whether further ones follow. The size
// of a file that is open for writing at another node is an older one: Stat asks that node.
func (b *Buffer) List(ctx context.Context, dir, after string, limit int) (entries []Entry, more bool, err error) {
	clean, err := bb.CheckPath("list", b.name, dir)
	if err != nil {
		return nil, false, err
	}
	if limit < 0 || limit > bb.MaxPageSize {
		return nil, false, bb.E(bb.Invalid, "list", b.address(clean), fmt.Sprintf("a page of %d entries, at most %d are allowed", limit, bb.MaxPageSize))
	}
	var reply wire.ListReply
	m := &wire.ListRequest{Buffer: b.name, Path: clean, After: after, Limit: uint32(limit)}
	if err := b.c.conn.Ask(ctx, wire.Type_TYPE_LIST, m, &reply); err != nil {
		return nil, false, bb.Wrap("list", b.address(clean), err)
	}
	entries = make([]Entry, 0, len(reply.Entries))
	for _, e := range reply.Entries {
		entries = append(entries, asEntry(path.Join(clean, e.Name), e))
	}
	return entries, reply.More, nil
}

// ReadDir yields a directory's entries by name, page by page. An error ends it.
func (b *Buffer) ReadDir(ctx context.Context, dir string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for after, more := "", true; more; {
			var (
				page []Entry
				err  error
			)
			if page, more, err = b.List(ctx, dir, after, 0); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
				after = e.Name
			}
			more = more && len(page) > 0
		}
	}
}

// Walk yields path itself and everything below it, each directory before its entries. An error is
// yielded beside the directory that it is about, whose entries are then left out. Entries that
// vanish meanwhile are left out silently. To prune, use fs.WalkDir over FS.
func (b *Buffer) Walk(ctx context.Context, path string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		e, err := b.Stat(ctx, path)
		if err != nil {
			yield(Entry{Path: path}, err)
			return
		}
		if yield(e, nil) && e.IsDir() {
			b.walk(ctx, e, yield)
		}
	}
}

// walk yields the entries below a directory. false means that the loop was left.
func (b *Buffer) walk(ctx context.Context, dir Entry, yield func(Entry, error) bool) bool {
	for e, err := range b.ReadDir(ctx, dir.Path) {
		if err != nil {
			return bb.KindOf(err) == bb.NotFound || yield(dir, err)
		}
		if !yield(e, nil) || e.IsDir() && !b.walk(ctx, e, yield) {
			return false
		}
	}
	return true
}

// Mkdir makes a directory in one that exists.
func (b *Buffer) Mkdir(ctx context.Context, path string, mode fs.FileMode) error {
	clean, err := b.checkMkdir(path, mode)
	if err != nil {
		return err
	}
	m := &wire.Mkdir{Buffer: b.name, Path: clean, Mode: uint32(mode)}
	return bb.Wrap("mkdir", b.address(clean), b.c.conn.Ask(ctx, wire.Type_TYPE_MKDIR, m, nil))
}

// MkdirAll makes a directory and those above it. It is no error if they exist.
func (b *Buffer) MkdirAll(ctx context.Context, path string, mode fs.FileMode) error {
	clean, err := b.checkMkdir(path, mode)
	if err != nil || clean == "" {
		return err
	}
	m := &wire.Mkdir{Buffer: b.name, Path: clean, Mode: uint32(mode), Parents: true}
	return bb.Wrap("mkdir", b.address(clean), b.c.conn.Ask(ctx, wire.Type_TYPE_MKDIR, m, nil))
}

// Symlink makes a symbolic link. Target may be anything. Neither the daemon nor this package follows
// links, a mount of the buffer does.
func (b *Buffer) Symlink(ctx context.Context, target, path string) error {
	return b.mknod(ctx, "symlink", &wire.Mknod{Path: path, Type: uint32(bb.TypeSymlink), Target: []byte(target), Mode: uint32(permissionBits)})
}

// Mknod makes a FIFO or a socket, which programs on one mount of the buffer can use.
func (b *Buffer) Mknod(ctx context.Context, path string, t bb.EntryType, mode fs.FileMode) error {
	if t != bb.TypeFIFO && t != bb.TypeSocket {
		return bb.E(bb.Invalid, "mknod", b.address(path), "Mknod makes FIFOs and sockets: this is "+t.Noun())
	}
	return b.mknod(ctx, "mknod", &wire.Mknod{Path: path, Type: uint32(t), Mode: uint32(mode)})
}

func (b *Buffer) mknod(ctx context.Context, op string, m *wire.Mknod) error {
	clean, err := bb.CheckPath(op, b.name, m.Path)
	switch {
	case err != nil:
		return err
	case fs.FileMode(m.Mode)&^permissionBits != 0:
		return bb.E(bb.Invalid, op, b.address(clean), fmt.Sprintf("the mode %v has more than permission bits", fs.FileMode(m.Mode)))
	}
	m.Buffer, m.Path = b.name, clean
	return bb.Wrap(op, b.address(clean), b.c.conn.Ask(ctx, wire.Type_TYPE_MKNOD, m, nil))
}

// Readlink returns the target of a symbolic link.
func (b *Buffer) Readlink(ctx context.Context, path string) (string, error) {
	e, err := b.Stat(ctx, path)
	if err == nil && e.Type != bb.TypeSymlink {
		err = bb.E(bb.Invalid, "readlink", b.address(e.Path), "it is "+e.Type.Noun())
	}
	return e.Target, err
}

func (b *Buffer) checkMkdir(path string, mode fs.FileMode) (string, error) {
	clean, err := bb.CheckPath("mkdir", b.name, path)
	if err == nil && mode&^permissionBits != 0 {
		err = bb.E(bb.Invalid, "mkdir", b.address(clean), fmt.Sprintf("the mode %v has more than permission bits", mode))
	}
	return clean, err
}

// Rename moves a file or directory, atomically, replacing a file that is at the new name.
func (b *Buffer) Rename(ctx context.Context, from, to string) error {
	return b.rename(ctx, &wire.Rename{From: from, To: to})
}

// RenameNoReplace is Rename that fails with ErrExists if the new name is taken.
func (b *Buffer) RenameNoReplace(ctx context.Context, from, to string) error {
	return b.rename(ctx, &wire.Rename{From: from, To: to, NoReplace: true})
}

func (b *Buffer) rename(ctx context.Context, m *wire.Rename) (err error) {
	m.Buffer = b.name
	if m.From, err = bb.CheckPath("rename", b.name, m.From); err != nil {
		return err
	}
	if m.To, err = bb.CheckPath("rename", b.name, m.To); err != nil {
		return err
	}
	return bb.Wrap("rename", b.address(m.From), b.c.conn.Ask(ctx, wire.Type_TYPE_RENAME, m, nil))
}

// Exchange swaps the names of two files or directories, atomically. Neither may lie below the other (ErrInvalid).
func (b *Buffer) Exchange(ctx context.Context, from, to string) error {
	var err error
	for pause := time.Millisecond; pause < time.Second; pause *= 2 {
		var pair [2]Entry
		for i, path := range []string{from, to} {
			if pair[i], err = b.Stat(ctx, path); err != nil {
				return err
			}
		}
		// Busy: one of them was replaced since.
		if err = b.ExchangeEntries(ctx, &pair[0], &pair[1]); KindOf(err) != ErrBusy || errors.Is(err, ErrUnknownOutcome) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return bb.Wrap("exchange", b.address(from), ctx.Err())
		}
	}
	return err
}

// ExchangeEntries is Exchange of two entries that Stat has returned. If one of their names has another file or
// directory by now, it is ErrBusy. If both have each other's names already, it is nil, so that an exchange
// of unknown outcome can be repeated.
func (b *Buffer) ExchangeEntries(ctx context.Context, from, to *Entry) error {
	m := &wire.ExchangeNames{Buffer: b.name, From: from.Path, To: to.Path, FromId: from.id(), ToId: to.id()}
	return bb.Wrap("exchange", b.address(from.Path), b.c.conn.Ask(ctx, wire.Type_TYPE_EXCHANGE, m, nil))
}

// Remove removes a file or an empty directory.
func (b *Buffer) Remove(ctx context.Context, path string) error {
	clean, err := bb.CheckPath("remove", b.name, path)
	if err != nil {
		return err
	}
	m := &wire.Remove{Buffer: b.name, Path: clean}
	return bb.Wrap("remove", b.address(clean), b.c.conn.Ask(ctx, wire.Type_TYPE_REMOVE, m, nil))
}

// RemoveAll removes a file or directory and everything below it. It is no error if
// there is nothing.
func (b *Buffer) RemoveAll(ctx context.Context, path string) error {
	clean, err := bb.CheckPath("remove", b.name, path)
	if err != nil {
		return err
	}
	m := &wire.Remove{Buffer: b.name, Path: clean, Recursive: true}
	err = b.c.conn.Ask(ctx, wire.Type_TYPE_REMOVE, m, nil)
	return bb.Wrap("remove", b.address(clean), b.removed(ctx, err))
}

// removed is the error of a tree's removal: none if there is no such tree, but a buffer.
func (b *Buffer) removed(ctx context.Context, err error) error {
	if bb.KindOf(err) == bb.NotFound {
		var reply wire.Buffer
		if b.c.conn.Ask(ctx, wire.Type_TYPE_BUFFER_GET, &wire.BufferName{Name: b.name}, &reply) == nil {
			return nil
		}
	}
	return err
}

// Removed counts the removed parts of a tree.
type Removed struct{ Files, Directories int64 }

// removePage is how many entries RemoveTree has removed at a time, and removeGrace how long the
// page that it is at may take after ctx has ended.
const (
	removePage  = 1000
	removeGrace = 5 * time.Second
)

// RemoveTree is RemoveAll that reports progress from time to time, and returns the total, also with
// an error. When ctx ends, it stops after the page in progress, if that ends within
// a few seconds. A daemon of an older release removes everything at once, and counts nothing.
func (b *Buffer) RemoveTree(ctx context.Context, path string, tell func(Removed)) (Removed, error) {
	var gone Removed
	clean, err := bb.CheckPath("remove", b.name, path)
	if err != nil {
		return gone, err
	}
	page, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(removeGrace, func() { cancel(context.Cause(ctx)) })
	})()
	m := &wire.Remove{Buffer: b.name, Path: clean, Recursive: true, Page: removePage}
	for ctx.Err() == nil {
		var now wire.Removed
		err := b.c.conn.Ask(page, wire.Type_TYPE_REMOVE, m, &now)
		if err != nil {
			return gone, bb.Wrap("remove", b.address(clean), b.removed(page, err))
		}
		gone.Files, gone.Directories = gone.Files+now.Files, gone.Directories+now.Directories
		if tell != nil {
			tell(gone)
		}
		if !now.More {
			return gone, nil
		}
	}
	return gone, bb.Wrap("remove", b.address(clean), session.Cancelled(ctx))
}

// SetAttr changes attributes and returns the entry as it is then.
func (b *Buffer) SetAttr(ctx context.Context, path string, a Attr) (Entry, error) {
	clean, err := bb.CheckPath("setattr", b.name, path)
	if err != nil {
		return Entry{}, err
	}
	m := &wire.SetAttr{Buffer: b.name, Path: clean, Uid: a.UID, Gid: a.GID}
	if a.Mode != nil {
		mode := uint32(*a.Mode)
		if *a.Mode&^permissionBits != 0 {
			return Entry{}, bb.E(bb.Invalid, "setattr", b.address(clean), fmt.Sprintf("the mode %v has more than permission bits", *a.Mode))
		}
		m.Mode = &mode
	}
	if a.ModTime != nil {
		ns := a.ModTime.UnixNano()
		m.MtimeNs = &ns
	}
	var reply wire.Entry
	if err := b.c.conn.Ask(ctx, wire.Type_TYPE_SETATTR, m, &reply); err != nil {
		return Entry{}, bb.Wrap("setattr", b.address(clean), err)
	}
	return asEntry(clean, &reply), nil
}

// Lost lists the files of the buffer whose bytes are lost, with reasons.
func (b *Buffer) Lost(ctx context.Context) ([]Entry, error) {
	if err := bb.CheckBufferName(b.name); err != nil {
		return nil, err
	}
	var list []Entry
	err := b.c.conn.Repeat(ctx, func() error {
		list = nil
		return b.c.conn.Stream(ctx, wire.Type_TYPE_LOST, &wire.BufferName{Name: b.name}, nil, func(message, _ []byte) error {
			var m wire.Entries
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			for _, e := range m.Entries {
				list = append(list, asEntry(e.Path, e))
			}
			return nil
		})
	})
	return list, bb.Wrap("lost", b.name, err)
}
