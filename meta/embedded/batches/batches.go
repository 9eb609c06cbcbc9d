// Package batches keeps the batches that are on their way into the streams of a NATS server in
// memory, or on the disk for as long as memory is full. It must never depend on what a batch holds.
//
// A server (nats-server 2.15) keeps the messages of a batch in a store of its own until it has all
// of them, and syncs that store before it carries the batch out. At its start it finishes from there
// a batch that it had half carried out, and removes the folder of the stores. A store is a folder
// with the hash of the batch's id as its name:
//
//	STREAMS/STREAM/batches/HASH/meta.inf, msgs/, obs/
//
// A Mover makes "batches" a link to one of two folders, as there is room in memory:
//
//	                  ┌─▶ MEMORY/STREAM
//	STREAM/batches ───┤
//	                  └─▶ STREAM/batches.disk
//
// A move is one step. Another link is renamed over that one. Stores of batches that are under way
// stay where they are, and the folder that the link leads to from then on has links to them:
//
//	STREAM/batches ──▶ STREAM/batches.disk
//	                   STREAM/batches.disk/HASH ──▶ MEMORY/STREAM/HASH
//
// So a path of the server's leads to the same files before and after, and its open files stay valid.
// Links are made before the move, and once more after it for stores that were made in between. Before
// a server starts Restore brings all stores to the disk.
//
// A store's meta.inf is the last file that the server makes in a new store, and the first that it
// deletes. A store without one gets no link. A store that is being made then fails, and its batch
// is refused and sent again. So no batch stays with a full tmpfs. A store that is being deleted is
// of no use. Where the server fails to delete a store because it is moved at that moment, the store
// stays until the server's next start.
package batches

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Options are the streams whose batches are moved, and the folders.
type Options struct {
	Streams string // the folder that has a folder for each stream
	// Memory is a folder on a tmpfs, which only this user may write to. A Mover locks it (flock(2)), and
	// makes it again if it is removed. Nothing is touched in another folder of its name.
	Memory string
	Log    *slog.Logger

	// For tests. Room, if not nil, is called in place of the file system of Memory. Step is called
	// between the steps of a move.
	Room func() Room
	Step func()

	exchange func(a, b string) error // nil: RENAME_EXCHANGE of renameat2(2)
}

// Mover moves the batches of all streams of a server that have one copy. It is for one goroutine.
type Mover struct {
	o       Options
	memory  *os.File // Memory, locked; nil: it is not this Mover's
	place   place
	streams map[string]*stream // by name
}

// New returns the mover of a server that does not run. It makes the folder in memory. It returns
// bb.Busy if another server has it. Close is to be called.
func New(o Options) (*Mover, error) {
	const op = "batches in memory"
	var err error
	if o.Streams, err = filepath.Abs(o.Streams); err != nil {
		return nil, bb.Wrap(op, o.Streams, err)
	}
	if o.Memory, err = filepath.Abs(o.Memory); err != nil {
		return nil, bb.Wrap(op, o.Memory, err)
	}
	if err := os.MkdirAll(o.Memory, 0o700); err != nil {
		return nil, bb.Wrap(op, o.Memory, err)
	}
	m := &Mover{o: o, streams: map[string]*stream{}}
	if m.o.Step == nil {
		m.o.Step = func() {}
	}
	if m.o.exchange == nil {
		m.o.exchange = func(a, b string) error {
			return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
		}
	}
	if m.memory, err = lock(o.Memory); err != nil {
		return nil, err
	}
	// The content may be of streams that are no more.
	found, err := os.ReadDir(o.Memory)
	for _, d := range found {
		m.streams[d.Name()] = m.newStream(d.Name())
	}
	return m, bb.Wrap(op, o.Memory, err)
}

// lockTime is how long a server that is ending is waited for.
const lockTime = 5 * time.Second

// lock opens a folder and locks it until that is closed.
func lock(dir string) (*os.File, error) {
	const op = "lock the batches in memory"
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, bb.Wrap(op, dir, err)
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return f, nil
		case errors.Is(err, unix.EWOULDBLOCK) && time.Since(began) < lockTime:
		case errors.Is(err, unix.EWOULDBLOCK):
			f.Close()
			return nil, bb.E(bb.Busy, op, dir, "another daemon has its batches there").WithRemedy("stop that daemon, or give each one a memory.dir of its own")
		case !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, bb.Wrap(op, dir, err)
		}
	}
}

// hold reports whether Memory is this Mover's folder, which it makes again if it was removed.
func (m *Mover) hold() bool {
	now, err := os.Lstat(m.o.Memory)
	if m.memory != nil {
		if own, oerr := m.memory.Stat(); err == nil && oerr == nil && os.SameFile(own, now) {
			return true
		}
		m.memory.Close()
		m.memory = nil
	}
	if !errors.Is(err, fs.ErrNotExist) || os.Mkdir(m.o.Memory, 0o700) != nil {
		return false
	}
	m.memory, err = lock(m.o.Memory)
	return err == nil
}

// Restore is called before the server starts. The server then finds every store that it left. All are
// brought to the disk, since memory may be full by now, and may lie elsewhere than it did.
func (m *Mover) Restore() error {
	var errs []error
	found, err := os.ReadDir(m.o.Streams)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, d := range found {
		s := m.newStream(d.Name())
		if at, err := os.Readlink(s.link); err == nil {
			errs = append(errs, s.restore(at))
		}
	}
	err = bb.Wrap("restore batches", m.o.Streams, errors.Join(errs...))
	var e *bb.Error
	if errors.As(err, &e) && e.Remedy == "" {
		return e.WithRemedy("make room there, and start the daemon again")
	}
	return err
}

// restore brings the stores of a stream whose link leads somewhere to the disk, and then the link.
func (s *stream) restore(at string) error {
	if err := mkdir(s.disk); err != nil {
		return err
	}
	for _, from := range []string{s.memory, at} {
		if from == s.disk {
			continue
		}
		if err := copyStores(from, s.disk); err != nil {
			return err
		}
	}
	if at != s.disk {
		return s.lead(s.disk)
	}
	return nil
}

// copyStores copies all whole stores of a folder into another one, in the place of links to them.
func copyStores(from, to string) error {
	found, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range found {
		store, at := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if !e.IsDir() || !isWhole(store) {
			continue
		}
		if is, err := os.Lstat(at); err == nil && is.IsDir() {
			continue // of a later attempt at that batch
		}
		half := filepath.Join(to, ".copy-"+e.Name())
		if err := errors.Join(os.RemoveAll(half), os.CopyFS(half, os.DirFS(store)), os.RemoveAll(at)); err != nil {
			return err
		}
		if err := os.Rename(half, at); err != nil {
			return err
		}
	}
	return err
}

// every is how often the room is looked at. A batch that meets a full tmpfs in between is refused, and
// its sender tries again.
const every = 250 * time.Millisecond

// Run calls Look every now and then until ctx ends. Look has been called, which is when the server has
// started, since it has finished older batches then.
func (m *Mover) Run(ctx context.Context) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			m.Look(now)
		}
	}
}

// Look moves the batches of all streams to the right place. Failures are logged, once, and the move
// is repeated by the next call, since batches are as right where they are.
func (m *Mover) Look(now time.Time) {
	was, held := m.place, m.hold()
	room := Room{}
	if held {
		room = m.room()
	}
	m.place = was.next(room, now)
	switch {
	case m.place.onDisk && !was.onDisk && !held:
		m.o.Log.Warn("the folder in memory is gone: atomic changes pass through the disk, and are slow", "folder", m.o.Memory, "remedy", "remove the entry in its place")
	case m.place.onDisk && !was.onDisk:
		m.o.Log.Warn("memory is full: atomic changes pass through the disk, and are slow", "folder", m.o.Memory, "remedy", "make room there")
	case was.onDisk && !m.place.onDisk:
		m.o.Log.Info("there is room in memory: atomic changes pass through it again", "folder", m.o.Memory)
	}
	found, err := os.ReadDir(m.o.Streams)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	there := map[string]*stream{}
	for _, d := range found {
		if strings.HasPrefix(d.Name(), ".") { // it is being deleted
			continue
		}
		s := m.streams[d.Name()]
		if s == nil {
			s = m.newStream(d.Name())
		}
		there[d.Name()] = s
		s.lost, s.pending = !held, s.pending || s.lost
		m.failed(s, s.settle(m.place.onDisk))
	}
	for name, s := range m.streams {
		if there[name] == nil && held && isGone(s.folder) {
			_ = os.RemoveAll(s.memory)
		}
	}
	m.streams = there
}

// failed logs the error that keeps a stream's batches where they are. It is not logged twice in a
// row.
func (m *Mover) failed(s *stream, err error) {
	if err == nil {
		s.failed = ""
	} else if text := err.Error(); text != s.failed {
		s.failed = text
		m.o.Log.Warn("atomic changes cannot be moved between memory and disk", "error", err)
	}
}

// room returns the free bytes of the file system of Memory, zero where it refuses a small file. A quota,
// or the limit of committed memory, may do so.
func (m *Mover) room() Room {
	if m.o.Room != nil {
		return m.o.Room()
	}
	var r unix.Statfs_t
	try := filepath.Join(m.o.Memory, ".room")
	if unix.Fstatfs(int(m.memory.Fd()), &r) != nil || errors.Join(os.WriteFile(try, make([]byte, 4096), 0o600), os.Remove(try)) != nil {
		_ = os.Remove(try)
		return Room{}
	}
	return roomOf(&r)
}

// Close is called when the server has ended. It leaves nothing in memory where no batch was under way. It may
// be called again.
func (m *Mover) Close() {
	if m.memory == nil || !m.hold() {
		return
	}
	found, _ := os.ReadDir(m.o.Memory)
	for _, d := range found {
		_ = os.Remove(filepath.Join(m.o.Memory, d.Name()))
	}
	_ = os.Remove(m.o.Memory)
	m.memory.Close()
	m.memory = nil
}

// stream is the folders of one stream.
type stream struct {
	o                          *Options
	folder, link, disk, memory string

	known   bool   // set once it is certain whether batches of the stream lie in stores
	stores  bool   // they do
	pending bool   // the folder to which the link does not lead may have something
	lost    bool   // the folder in memory is not the Mover's
	failed  string // the last logged failure
}

func (m *Mover) newStream(name string) *stream {
	folder := filepath.Join(m.o.Streams, name)
	link := filepath.Join(folder, "batches") // of nats-server
	return &stream{o: &m.o, folder: folder, link: link, disk: link + ".disk", memory: filepath.Join(m.o.Memory, name), pending: true}
}

// settle has the stream's batches pass through one of the folders.
func (s *stream) settle(onDisk bool) error {
	if !s.known {
		s.find()
	}
	if !s.stores {
		return nil
	}
	to, other := s.memory, s.disk
	if onDisk {
		to, other = s.disk, s.memory
	}
	at, err := os.Readlink(s.link)
	if errors.Is(err, unix.EINVAL) { // it is a folder, which the server has made
		at, err = s.adopt()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = s.begin(to)
	case err != nil:
	case s.lost && at != s.disk: // the folder in memory is gone
		if err = mkdir(s.disk); err == nil {
			err = s.lead(s.disk)
		}
	case s.lost:
	case at == other:
		err = s.move(other, to)
	case at == to:
		if err = mkdir(to); err == nil && s.pending { // /dev/shm may have been tidied
			s.pending, err = tend(to, other)
		}
	}
	if err != nil && isGone(s.folder) {
		return nil // the stream was deleted at this moment
	}
	return bb.Wrap("move batches", s.link, err)
}

// find finds out whether batches of the stream lie in stores, which they do if it accepts them and
// has one copy. With more copies the server has them in its memory.
func (s *stream) find() {
	var config struct {
		Atomic   bool `json:"allow_atomic"`
		Replicas int  `json:"num_replicas"`
	}
	text, err := os.ReadFile(filepath.Join(s.folder, meta))
	s.known = err == nil && json.Unmarshal(text, &config) == nil // else the stream is being made
	s.stores = s.known && config.Atomic && config.Replicas == 1
}

// begin makes the link. The content of the folders is unreachable, since it is of an earlier life
// of the server or of a stream of that name.
func (s *stream) begin(to string) error {
	if err := errors.Join(s.clear(), mkdir(to)); err != nil {
		return err
	}
	s.pending = false
	err := os.Symlink(to, s.link)
	if errors.Is(err, fs.ErrExist) {
		return nil // a batch was quicker, and the next call adopts its folder
	}
	return err
}

// clear removes both folders.
func (s *stream) clear() error {
	if s.lost {
		return os.RemoveAll(s.disk)
	}
	return errors.Join(os.RemoveAll(s.disk), os.RemoveAll(s.memory))
}

// adopt puts the link in the place of the server's folder, in one step. A link that leads to itself
// is exchanged with the folder, to which the link leads from then on. If there is neither, it is
// fs.ErrNotExist.
//
//	batches/, batches.disk ──▶ batches.disk    becomes    batches ──▶ batches.disk/
func (s *stream) adopt() (at string, err error) {
	if err := errors.Join(s.clear(), os.Symlink(s.disk, s.disk)); err != nil {
		return "", err
	}
	if err = s.o.exchange(s.disk, s.link); err == nil {
		return s.disk, nil
	}
	// Not every file system can exchange. In a moment without a batch the folder is empty.
	if os.Remove(s.link) == nil {
		return "", fs.ErrNotExist
	}
	return "", err
}

// move moves the link. Unlinked stores in the folder to which it will lead are of no batch.
func (s *stream) move(from, to string) error {
	if err := mkdir(to); err != nil {
		return err
	}
	if _, err := tend(from, to); err != nil {
		return err
	}
	s.o.Step()
	if err := link(from, to); err != nil {
		return err
	}
	s.o.Step()
	if err := s.lead(to); err != nil {
		return err
	}
	s.pending = true
	s.o.Step()
	var err error
	s.pending, err = tend(to, from)
	return err
}

// lead replaces the link by one to a folder, in one step.
func (s *stream) lead(to string) error {
	fresh := s.link + ".new"
	if err := ignore(os.Remove(fresh), fs.ErrNotExist); err != nil {
		return err
	}
	if err := os.Symlink(to, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, s.link)
}

// meta is there as long as a store, or a stream, is whole.
const meta = "meta.inf"

func isWhole(store string) bool { return !isGone(filepath.Join(store, meta)) }

func isGone(name string) bool {
	_, err := os.Stat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// link makes links in a folder to all stores of another one.
func link(from, to string) error {
	found, err := os.ReadDir(from)
	errs := []error{ignore(err, fs.ErrNotExist)}
	for _, e := range found {
		store := filepath.Join(from, e.Name())
		if e.IsDir() && isWhole(store) {
			errs = append(errs, ignore(os.Symlink(store, filepath.Join(to, e.Name())), fs.ErrExist))
		}
	}
	return errors.Join(errs...)
}

// tend brings the folder to which the stream's link leads, and the other one, in order. The first has links
// to all whole stores of the other one, which has nothing else. If both have a store of a batch, that in
// the other one is of an attempt that was refused. pending. The other one may have something yet.
//
// The link to a store that is not whole is removed first. If the store has become whole meanwhile,
// it is made again. Nothing becomes whole without a link, so that no store is removed that a batch
// is in.
func tend(active, other string) (pending bool, err error) {
	here, err := os.ReadDir(active)
	errs := []error{ignore(err, fs.ErrNotExist)}
	for _, e := range here {
		if at := filepath.Join(active, e.Name()); isLink(e) && !isWhole(at) {
			errs = append(errs, ignore(os.Remove(at), fs.ErrNotExist))
		}
	}
	there, err := os.ReadDir(other)
	errs = append(errs, ignore(err, fs.ErrNotExist))
	for _, e := range there {
		at, store := filepath.Join(active, e.Name()), filepath.Join(other, e.Name())
		if e.IsDir() && isWhole(store) {
			err := os.Symlink(store, at)
			if now, lerr := os.Readlink(at); lerr == nil && now == store {
				pending = true
				continue
			}
			if !errors.Is(err, fs.ErrExist) {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, os.RemoveAll(store))
	}
	err = errors.Join(errs...)
	return pending || err != nil, err
}

func isLink(e fs.DirEntry) bool { return e.Type()&fs.ModeSymlink != 0 }

// mkdir makes a folder in one that is there, unless it is there itself.
func mkdir(name string) error { return ignore(os.Mkdir(name, 0o700), fs.ErrExist) }

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}
