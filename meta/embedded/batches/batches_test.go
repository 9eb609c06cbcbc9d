package batches

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// server handles the stores of a stream's batches as nats-server does.
type server struct {
	t    *testing.T
	dir  string // of the stream
	live map[string]bool
	last *Mover
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, dir: filepath.Join(t.TempDir(), "KV_b"), live: map[string]bool{}}
	s.must(os.MkdirAll(s.dir, 0o700))
	s.must(os.WriteFile(filepath.Join(s.dir, meta), []byte(`{"name":"KV_b","num_replicas":1,"allow_atomic":true}`), 0o600))
	return s
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) store(id string) string { return filepath.Join(s.dir, "batches", id) }

// open makes a batch's store, and puts a message in it.
func (s *server) open(id string) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Join(s.store(id), "msgs"), 0o700))
	s.must(os.WriteFile(filepath.Join(s.store(id), meta), nil, 0o600))
	s.must(os.WriteFile(filepath.Join(s.store(id), "msgs", "1.blk"), []byte(id), 0o600))
	s.live[id] = true
}

// done deletes the store of a batch that was carried out.
func (s *server) done(id string) {
	s.t.Helper()
	hidden := filepath.Join(s.dir, "batches", "."+id)
	s.must(os.Remove(filepath.Join(s.store(id), meta)))
	s.must(os.Rename(s.store(id), hidden))
	s.must(os.RemoveAll(hidden))
	delete(s.live, id)
}

// want fails unless it finds each unfinished batch with its message.
func (s *server) want(what string, except ...string) {
	s.t.Helper()
	for id := range s.live {
		if slices.Contains(except, id) {
			continue
		}
		if text, err := os.ReadFile(filepath.Join(s.store(id), "msgs", "1.blk")); err != nil || string(text) != id {
			s.t.Errorf("%s: the store of %s: %q, %v", what, id, text, err)
		}
	}
}

// leads fails unless batches pass through a folder, which has these stores and links to stores, and
// the other folder has those.
func (s *server) leads(m *Mover, memory bool, here, there []string) {
	s.t.Helper()
	f := m.newStream("KV_b")
	to, other := f.disk, f.memory
	if memory {
		to, other = other, to
	}
	if at, err := os.Readlink(f.link); err != nil || at != to {
		s.t.Errorf("batches lead to %q (%v), want %q", at, err, to)
	}
	for dir, want := range map[string][]string{to: here, other: there} {
		var got []string
		found, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.t.Error(err)
		}
		for _, e := range found {
			got = append(got, e.Name())
		}
		if !slices.Equal(got, want) {
			s.t.Errorf("%s has %q, want %q", dir, got, want)
		}
	}
}

// room is how much there is in memory.
type room struct{ full bool }

func (r *room) now() Room {
	if r.full {
		return Room{}
	}
	return Room{Bytes: 1 << 30, Files: 1 << 20}
}

// mover returns a Mover of the server's streams, which has restored the folders. The one before has died.
func (s *server) mover(memory string, r *room, step func()) *Mover {
	s.t.Helper()
	if s.last != nil {
		s.last.memory.Close()
	}
	m, err := New(Options{Streams: filepath.Dir(s.dir), Memory: memory, Log: slog.New(slog.DiscardHandler), Room: r.now, Step: step})
	s.must(err)
	s.must(m.Restore())
	s.last = m
	return m
}

// looks has a mover look twice, so far apart that batches come back to memory.
func looks(m *Mover) {
	now := time.Now()
	m.Look(now)
	m.Look(now.Add(again))
}

// Batches that are under way continue while they are moved, there and back, and nothing is left of them.
func TestMove(t *testing.T) {
	s, r, memory := newServer(t), &room{}, filepath.Join(t.TempDir(), "memory")
	m := s.mover(memory, r, nil)
	m.Look(time.Now())
	s.open("a")
	s.open("b")
	f, err := os.OpenFile(filepath.Join(s.store("a"), "msgs", "1.blk"), os.O_RDWR, 0)
	s.must(err)
	defer f.Close()
	s.leads(m, true, []string{"a", "b"}, nil)
	r.full = true
	looks(m)
	s.want("on disk")
	s.leads(m, false, []string{"a", "b"}, []string{"a", "b"})
	_, err = f.WriteAt([]byte("A"), 0)
	s.must(err)
	if text, err := os.ReadFile(filepath.Join(s.store("a"), "msgs", "1.blk")); err != nil || string(text) != "A" {
		t.Errorf("what was written to an open file: %q, %v", text, err)
	}
	s.done("a")
	s.open("c")
	looks(m)
	s.leads(m, false, []string{"b", "c"}, []string{"b"})
	r.full = false
	looks(m)
	s.want("in memory again")
	s.leads(m, true, []string{"b", "c"}, []string{"c"})
	s.done("b")
	s.done("c")
	looks(m)
	s.leads(m, true, nil, nil)
	m.Close()
	if _, err := os.Stat(memory); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left in memory: %v", err)
	}
}

// A batch may begin or end between any two steps of a move, and the server may be killed there.
func TestMoveStepByStep(t *testing.T) {
	for _, back := range []bool{false, true} {
		for at := 1; at <= 3; at++ {
			for _, what := range []string{"begin", "end", "kill", "begin, kill", "end, kill", "begin, kill a step later"} {
				t.Run(fmt.Sprintf("back=%v/step=%d/%s", back, at, what), func(t *testing.T) { moveWith(t, back, at, what) })
			}
		}
	}
}

func moveWith(t *testing.T, back bool, at int, what string) {
	s, r, memory := newServer(t), &room{full: back}, filepath.Join(t.TempDir(), "memory")
	n := -1 // steps are not counted yet
	m := s.mover(memory, r, func() {
		if n < 0 {
			return
		}
		n++
		s.want("during the move", "between") // which has no link before the move is over
		if n == at && strings.HasPrefix(what, "begin") {
			s.open("between")
		}
		if n == at && strings.HasPrefix(what, "end") {
			s.done("ends")
		}
		if n == at && strings.HasSuffix(what, "kill") || n > at && strings.HasSuffix(what, "later") {
			panic("killed")
		}
	})
	looks(m)
	s.open("stays")
	s.open("ends")
	n, r.full = 0, !back
	func() {
		defer func() {
			if got := recover(); got != nil && got != "killed" {
				panic(got)
			}
		}()
		looks(m)
	}()
	if n < at {
		t.Fatalf("only %d steps", n)
	}
	if strings.Contains(what, "kill") {
		m = s.mover(memory, r, nil)
	}
	s.want("then")
	looks(m)
	s.want("later")
	for id := range s.live {
		s.done(id)
	}
	looks(m)
	s.leads(m, back, nil, nil)
	s.open("ends") // a batch that its sender tries again
	s.want("again")
}

// Files of no batch in the folders keep nothing from moving. Incomplete stores go.
func TestLeftovers(t *testing.T) {
	s, r := newServer(t), &room{}
	s.must(os.MkdirAll(filepath.Join(s.dir, "batches", "empty"), 0o700)) // the server was quicker than the mover
	s.open("stale")
	m := s.mover(filepath.Join(t.TempDir(), "memory"), r, nil)
	looks(m)
	s.want("adopted")
	s.leads(m, true, []string{"stale"}, []string{"stale"})
	s.must(os.Mkdir(s.store("refused"), 0o700)) // by a full tmpfs, while it was made
	for range 3 {
		r.full = !r.full
		looks(m)
	}
	s.want("moved")
	s.leads(m, false, []string{"stale"}, nil)
	s.open("refused")
	s.must(os.Mkdir(filepath.Join(m.o.Memory, "KV_b", "refused"), 0o700)) // could not be tidied up before
	r.full = false
	looks(m)
	s.want("sent again")
}

// Where a store could not be made whole in memory, it is made on the disk.
func TestRefusedInMemory(t *testing.T) {
	s, r := newServer(t), &room{}
	m := s.mover(filepath.Join(t.TempDir(), "memory"), r, nil)
	m.Look(time.Now())
	s.must(os.MkdirAll(filepath.Join(s.store("a"), "msgs"), 0o700))
	r.full = true
	m.Look(time.Now())
	s.open("a")
	if at, err := filepath.EvalSymlinks(s.store("a")); err != nil || at != filepath.Join(s.dir, "batches.disk", "a") {
		t.Errorf("it is made at %s (%v)", at, err)
	}
}

// Remains of an earlier run, or of a deleted stream, go.
func TestEarlierLife(t *testing.T) {
	s, r, memory := newServer(t), &room{}, filepath.Join(t.TempDir(), "memory")
	s.must(os.MkdirAll(filepath.Join(memory, "KV_gone", "h"), 0o700))
	m := s.mover(memory, r, nil)
	m.Look(time.Now())
	s.open("a")
	r.full = true
	looks(m)
	s.open("b")
	m = s.mover(memory, r, nil)
	s.want("before the server starts")
	s.must(os.RemoveAll(filepath.Join(s.dir, "batches"))) // by the server, at its start
	looks(m)
	s.leads(m, false, nil, nil)
	if found, err := os.ReadDir(memory); err != nil || len(found) != 0 {
		t.Errorf("in memory are %v (%v)", found, err)
	}
	r.full = false
	looks(m)
	s.must(os.RemoveAll(s.dir))
	looks(m)
	if found, err := os.ReadDir(memory); err != nil || len(found) != 0 {
		t.Errorf("of a stream that was deleted are in memory %v (%v)", found, err)
	}
}

// After a machine has lost its memory, stores on the disk are found.
func TestMemoryLost(t *testing.T) {
	s, r, memory := newServer(t), &room{full: true}, filepath.Join(t.TempDir(), "memory")
	m := s.mover(memory, r, nil)
	m.Look(time.Now())
	s.open("a")
	r.full = false
	looks(m)
	s.leads(m, true, []string{"a"}, []string{"a"})
	s.must(os.RemoveAll(memory))
	s.mover(memory, r, nil)
	s.want("before the server starts")
}

// A file system that cannot exchange a folder for a link. The first moment without a batch is waited for.
func TestNoExchange(t *testing.T) {
	s, r := newServer(t), &room{}
	m := s.mover(filepath.Join(t.TempDir(), "memory"), r, nil)
	m.o.exchange = func(a, b string) error { return unix.EINVAL }
	s.open("a")
	looks(m)
	s.want("on disk")
	s.done("a")
	looks(m)
	s.leads(m, true, nil, nil)
}

// Streams with copies, those without batches, and other folders are left alone.
func TestOtherStreams(t *testing.T) {
	for _, config := range []string{`{"num_replicas":3,"allow_atomic":true}`, `{"num_replicas":1}`, ``} {
		s := newServer(t)
		s.must(os.WriteFile(filepath.Join(s.dir, meta), []byte(config), 0o600))
		looks(s.mover(filepath.Join(t.TempDir(), "memory"), &room{}, nil))
		if found, err := os.ReadDir(s.dir); err != nil || len(found) != 1 {
			t.Errorf("%s: %v (%v)", config, found, err)
		}
	}
}

// The removal of the folder in memory moves batches to the disk. Another user's folder of its name
// is not used or touched, and the folder is made again where there is none.
func TestMemoryRemoved(t *testing.T) {
	s, memory, elsewhere := newServer(t), filepath.Join(t.TempDir(), "memory"), t.TempDir()
	m := s.mover(memory, &room{}, nil)
	m.o.Room = nil
	m.Look(time.Now())
	s.open("lost")
	delete(s.live, "lost")
	s.must(os.Rename(memory, memory+".removed")) // so that its inode's number is not used again
	s.must(os.Mkdir(memory, 0o777))
	s.must(os.Symlink(elsewhere, filepath.Join(memory, "KV_b")))
	for _, name := range []string{filepath.Join(elsewhere, "h", "file"), filepath.Join(memory, "KV_gone", "file")} {
		s.must(os.MkdirAll(filepath.Dir(name), 0o700))
		s.must(os.WriteFile(name, []byte("another user's"), 0o600))
	}
	s.must(os.Symlink("/nowhere", filepath.Join(elsewhere, "link")))
	for range 3 {
		looks(m)
		s.open("a")
		s.want("beside another's folder")
		s.done("a")
	}
	m.Close()
	for _, name := range []string{filepath.Join(elsewhere, "h", "file"), filepath.Join(elsewhere, "link"), filepath.Join(memory, "KV_gone", "file")} {
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("another user's file: %v", err)
		}
	}
	s.must(os.RemoveAll(memory))
	m.o.Room = (&room{}).now
	looks(m)
	s.leads(m, true, nil, nil)
}

// A folder in memory that refuses files has no room, even if its file system reports some.
func TestMemoryRefuses(t *testing.T) {
	s, memory := newServer(t), filepath.Join(t.TempDir(), "memory")
	m := s.mover(memory, &room{}, nil)
	m.o.Room = nil
	m.Look(time.Now())
	if m.place.onDisk {
		t.Fatal("the disk of this machine is all but full")
	}
	s.must(os.MkdirAll(filepath.Join(memory, ".room", "x"), 0o700))
	m.Look(time.Now())
	if !m.place.onDisk {
		t.Error("batches stay where a file is refused")
	}
}

// Two servers cannot have their batches in one folder.
func TestMemoryIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, memory := newServer(t), filepath.Join(t.TempDir(), "memory")
		m := s.mover(memory, &room{}, nil)
		o := Options{Streams: t.TempDir(), Memory: memory, Log: slog.New(slog.DiscardHandler)}
		if _, err := New(o); bb.KindOf(err) != bb.Busy {
			t.Errorf("a second server: %v", err)
		}
		m.Close()
		m.Close()
		second, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		second.Close()
	})
}

// Before a server starts, all stores are on the disk, for each target of the link and each link in
// the folders.
func TestRestore(t *testing.T) {
	for _, at := range []string{"memory", "disk", "elsewhere"} {
		s, memory, elsewhere := newServer(t), filepath.Join(t.TempDir(), "memory"), t.TempDir()
		f := (&Mover{o: Options{Streams: filepath.Dir(s.dir), Memory: memory}}).newStream("KV_b")
		to := map[string]string{"memory": f.memory, "disk": f.disk, "elsewhere": elsewhere}[at]
		for _, dir := range []string{f.memory, f.disk} {
			s.must(os.MkdirAll(dir, 0o700))
		}
		for id, dir := range map[string]string{"a": f.memory, "b": f.memory, "c": f.disk, "d": to} {
			s.must(os.Symlink(dir, f.link))
			s.open(id)
			s.must(os.Remove(f.link))
		}
		s.must(os.Symlink(filepath.Join(f.memory, "b"), filepath.Join(f.disk, "b"))) // a has no link yet
		s.must(os.Symlink(to, f.link))
		s.must(os.Mkdir(filepath.Join(f.memory, "half"), 0o700))
		s.mover(memory, &room{full: true}, nil)
		s.want(at)
		s.must(os.RemoveAll(memory))
		s.want(at + ", without memory")
		if found, err := os.ReadDir(f.disk); err != nil || len(found) != 4 {
			t.Errorf("%s: on the disk are %v (%v)", at, found, err)
		}
	}
}
