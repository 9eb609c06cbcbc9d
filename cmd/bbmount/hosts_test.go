package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbmount/attrcache"
	"forebay/internal/bbdtest"
	"forebay/internal/netnstest"
)

// hostConfig is that of each daemon. At the pace of wan a daemon that was killed is dead for the others after two minutes, so that
// it is back before that on a busy machine, too.
const hostConfig = `
listen: {tcp: "{{.Host.Addr}}:7481", admin: "127.0.0.1:7480"}
cluster: {listen: "{{.Host.Addr}}:7483", advertise: "{{.Host.Addr}}", join: "%[1]v:7483", wan: true}
nats: {servers: "%[1]v"}
key_file: {{.Dir}}/key
memory: {size: 256MiB, region_size: 64MiB}
flush: {dirty_age: 1s}
`

// newMounts starts a cluster of hosts of their own, each with a daemon and a mount of the same buffer.
func newMounts(t *testing.T, n int) []*mounted {
	t.Helper()
	return newMountsOf(t, n, admin.BufferSpec{Name: "b", Mode: 0o777, Backing: "file://" + t.TempDir()})
}

func newMountsOf(t *testing.T, n int, spec admin.BufferSpec, args ...string) []*mounted {
	t.Helper()
	if testing.Short() {
		t.Skip("what works here are processes of their own")
	}
	needRoot(t)
	hosts := netnstest.New(t, n).Hosts
	mounts, daemons := make([]*mounted, n), make([]*bbdtest.Daemon, n)
	for i, h := range hosts {
		dir, err := os.MkdirTemp("", "bbmount")
		check(t, err)
		t.Cleanup(func() { os.Remove(dir) })
		check(t, os.Chmod(dir, 0o755))
		daemons[i] = bbdtest.On(t, h, fmt.Sprintf(hostConfig, hosts[0].Addr))
		check(t, os.WriteFile(filepath.Join(daemons[i].Dir, "key"), []byte(strings.Repeat("0123456789abcdef", 4)), 0o600))
		mounts[i] = &mounted{Daemon: daemons[i], dir: dir, log: &log{}}
	}
	bbdtest.StartAll(t, daemons...)
	for i, m := range mounts {
		c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + m.Socket})
		check(t, err)
		t.Cleanup(func() { c.Close() })
		waitFor(t, "all nodes are ready", func() bool {
			nodes, err := admin.Nodes(t.Context(), c)
			return err == nil && len(nodes) == n && !slices.ContainsFunc(nodes, func(n admin.Node) bool { return n.State != "ready" })
		})
		if i == 0 {
			_, err = admin.CreateBuffer(t.Context(), c, spec)
			check(t, err)
		}
		m.b = c.Buffer("b")
		m.mount(t, args...)
	}
	return mounts
}

func (m *mounted) at(name string) string { return filepath.Join(m.dir, name) }

// TestCloseToOpen: bytes and names that a program on one host has closed are those that a later open on
// another host finds, whatever its kernel has cached.
func TestCloseToOpen(t *testing.T) {
	hosts := newMounts(t, 2)
	a, b := hosts[0], hosts[1]
	for round := range 5 {
		from, to := a, b
		if round%2 == 1 {
			from, to = b, a
		}
		text := strings.Repeat(fmt.Sprint(round), 10_000)
		write(t, from.at("f"), text)
		holds(t, to.at("f"), text)
		holds(t, from.at("f"), text)
	}

	// A mapping of the old bytes, then an open that must not find them.
	r, err := os.Open(b.at("f"))
	check(t, err)
	old, err := unix.Mmap(int(r.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	check(t, err)
	_ = bytes.Clone(old)
	write(t, a.at("f"), "replaced")
	holds(t, b.at("f"), "replaced")
	check(t, unix.Munmap(old))
	check(t, r.Close())

	// A write in the middle, and one at the end, through a file that is there.
	w, err := os.OpenFile(a.at("f"), os.O_WRONLY, 0)
	check(t, err)
	for _, off := range []int64{2, 8} {
		_, err = w.WriteAt([]byte("XY"), off)
		check(t, err)
	}
	check(t, w.Sync())
	holds(t, b.at("f"), "reXYacedXY")
	check(t, w.Close())

	// Names: openers see a new name at once, and an old one until its event has come.
	began := time.Now()
	check(t, os.Rename(a.at("f"), a.at("g")))
	holds(t, b.at("g"), "reXYacedXY")
	waitFor(t, "the old name is gone", func() bool {
		_, err := os.Stat(b.at("f"))
		return os.IsNotExist(err)
	})
	check(t, os.Mkdir(b.at("d"), 0o755))
	write(t, b.at("d/new"), "one")
	check(t, os.Rename(b.at("d/new"), b.at("g")))
	holds(t, a.at("g"), "one")
	check(t, os.Remove(a.at("g")))
	_, err = os.Open(b.at("g"))
	refused(t, "open of a removed name", err, syscall.ENOENT)

	// An exclusive create has one winner.
	for i := range 20 {
		name := fmt.Sprint("lock", i)
		var wins [2]bool
		var all sync.WaitGroup
		for k, m := range hosts {
			all.Go(func() {
				f, err := os.OpenFile(m.at(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
				if err == nil {
					wins[k] = true
					err = f.Close()
				} else if os.IsExist(err) {
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if wins[0] == wins[1] {
			t.Errorf("%s: the hosts' exclusive creates succeeded: %v", name, wins)
		}
	}

	// Attributes that are not opened may be old until their event has come.
	write(t, a.at("h"), "12345")
	_, err = os.Stat(b.at("h"))
	check(t, err)
	write(t, a.at("h"), "123456789")
	waitFor(t, "stat shows the new size", func() bool {
		s, err := os.Stat(b.at("h"))
		return err == nil && s.Size() == 9
	})
	if took := time.Since(began); took > attrcache.Long/2 {
		t.Errorf("names and attributes were old until the kernel dropped them by itself, or nearly: %v", took)
	}
}

// TestSharedFile: programs on several hosts write records of one file that interleave, as checkpoints of
// parallel programs do, and extend it, with and without an fsync. Afterwards each host reads all of them.
func TestSharedFile(t *testing.T) {
	hosts := newMounts(t, 2)
	const ranks, records, size = 6, 40, 4_700 // a record is no multiple of a page
	record := func(rank, i int) []byte {
		return bytes.Repeat([]byte{byte(1 + rank), byte(i), byte(rank * i)}, size/3+1)[:size]
	}
	whole := make([]byte, 0, ranks*records*size)
	for i := range records {
		for rank := range ranks {
			whole = append(whole, record(rank, i)...)
		}
	}
	t.Run("truncate by another host", func(t *testing.T) { truncateShared(t, hosts) })
	for _, c := range []struct {
		name  string
		write func(f *os.File, rank, i int) error
	}{
		{"close", func(f *os.File, rank, i int) error {
			_, err := f.WriteAt(record(rank, i), int64(i*ranks+rank)*size)
			return err
		}},
		{"fsync", func(f *os.File, rank, i int) error {
			_, err := f.WriteAt(record(rank, i), int64(i*ranks+rank)*size)
			if err == nil && i%10 == rank {
				err = f.Sync()
			}
			return err
		}},
		{"truncate", func(f *os.File, rank, i int) error {
			_, err := f.WriteAt(record(rank, i), int64(i*ranks+rank)*size)
			if err == nil && i == records/2 && rank%2 == 0 { // to the size that the file will have, as MPI_File_set_size
				err = f.Truncate(ranks * records * size)
			}
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, hosts[0].at(c.name), "")
			var all sync.WaitGroup
			for rank := range ranks {
				all.Go(func() {
					f, err := os.OpenFile(hosts[rank%len(hosts)].at(c.name), os.O_RDWR, 0)
					for i := 0; i < records && err == nil; i++ {
						err = c.write(f, rank, i)
						time.Sleep(time.Millisecond) // so that the ranks' writes interleave in time too
					}
					if err == nil {
						err = f.Close()
					}
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
					}
				})
			}
			all.Wait()
			for k, m := range hosts {
				got, err := os.ReadFile(m.at(c.name))
				check(t, err)
				if len(got) != len(whole) {
					t.Errorf("host %d reads %d bytes, want %d", k, len(got), len(whole))
				}
				wrong := 0
				for i := 0; i+size <= min(len(got), len(whole)); i += size {
					if !bytes.Equal(got[i:i+size], whole[i:i+size]) {
						wrong++
					}
				}
				if wrong > 0 {
					t.Errorf("host %d: %d of %d records differ", k, wrong, ranks*records)
				}
			}
		})
	}
}

// truncateShared: ftruncate sets the size of a file that another host is writing, as MPI_File_set_size
// does at the end of a parallel program. It must not touch the other's bytes, committed or not.
func truncateShared(t *testing.T, hosts []*mounted) {
	const size = 10_000
	text := strings.Repeat("0123456789", size/10)
	for _, c := range []struct {
		name         string
		synced       bool // the other host's bytes are committed before the truncate, else after it
		to           int64
		want         string
		firstToClose int
	}{
		{"synced-exact", true, size, text, 0},
		{"synced-exact-reverse", true, size, text, 1},
		{"synced-larger", true, size + 3, text + "\x00\x00\x00", 0},
		{"synced-shorter", true, size - 3, text, 0}, // refused
		{"unsynced-exact", false, size, text, 0},
		{"unsynced-exact-reverse", false, size, text, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, hosts[0].at(c.name), "")
			var files [2]*os.File
			for k, m := range hosts {
				f, err := os.OpenFile(m.at(c.name), os.O_RDWR, 0)
				check(t, err)
				files[k] = f
			}
			_, err := files[0].WriteAt([]byte(text), 0)
			check(t, err)
			_, err = files[1].WriteAt([]byte(text[:10]), 0) // a writer, too, of bytes that agree
			check(t, err)
			if c.synced {
				check(t, files[0].Sync())
			}
			if err = files[1].Truncate(c.to); c.to < size {
				refused(t, "a shorter file beside a writer of another host", err, syscall.EBUSY)
			} else {
				check(t, err)
			}
			check(t, files[c.firstToClose].Close())
			check(t, files[1-c.firstToClose].Close())
			for _, m := range hosts {
				holds(t, m.at(c.name), c.want)
			}
		})
	}
}

// TestOpenOfGrowing: programs open a file that another host grows and commits all the while. No open fails.
func TestOpenOfGrowing(t *testing.T) {
	hosts := newMounts(t, 2)
	const opens, size = 40, 1000
	write(t, hosts[0].at("f"), "")
	w, err := os.OpenFile(hosts[0].at("f"), os.O_WRONLY, 0)
	check(t, err)
	var committed atomic.Int64
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := int64(0); ; i++ {
			_, err := w.WriteAt(bytes.Repeat([]byte{byte(i)}, size), i*size)
			if err == nil {
				err = w.Sync()
			}
			if err != nil {
				ended <- fmt.Errorf("record %d: %w", i, err)
				return
			}
			committed.Store((i + 1) * size)
			select {
			case <-stop:
				ended <- w.Close()
				return
			default:
			}
		}
	}()
	waitFor(t, "the file grows", func() bool { return committed.Load() > 0 })
	var all sync.WaitGroup
	for k, flag := range []int{os.O_RDONLY, os.O_RDONLY | os.O_CREATE, os.O_RDWR | os.O_APPEND} { // beside each other
		all.Go(func() {
			for i := range opens {
				f, err := os.OpenFile(hosts[1].at("f"), flag, 0)
				if err != nil {
					t.Errorf("opener %d: open %d: %v", k, i, err)
					continue
				}
				if err := f.Close(); err != nil {
					t.Errorf("opener %d: close %d: %v", k, i, err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	check(t, <-ended)
	t.Logf("%d records were committed", committed.Load()/size)
}

// TestPeerRestarts: programs of one host read and write files of another one whose daemon is killed and starts again
// meanwhile. They wait, and see no error and no wrong byte.
func TestPeerRestarts(t *testing.T) {
	hosts := newMountsOf(t, 2, admin.BufferSpec{Name: "b", Mode: 0o777}) // without a store that could answer in its place
	const files, size = 8, 100_000
	text := func(i, round int) string { return strings.Repeat(fmt.Sprintf("%03d", i*31+round), size/3) }
	name := func(m *mounted, i int) string { return m.at(fmt.Sprint("f", i)) }
	for i := range files {
		write(t, name(hosts[0], i), text(i, 0))
	}
	var rounds atomic.Int64
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for !t.Failed() {
			round := int(rounds.Load())
			for i := range files {
				got, err := os.ReadFile(name(hosts[1], i))
				if err != nil || string(got) != text(i, round) {
					t.Errorf("round %d: reading %d: %d bytes, %v", round, i, len(got), err)
				}
				if err := os.WriteFile(name(hosts[1], i), []byte(text(i, round+1)), 0o644); err != nil {
					t.Errorf("round %d: writing %d: %v", round, i, err)
				}
				if err := os.Chmod(name(hosts[1], i), fs.FileMode(0o600+round%2*0o44)); err != nil {
					t.Errorf("round %d: changing %d: %v", round, i, err)
				}
			}
			rounds.Add(1)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for range 4 {
		before := rounds.Load()
		hosts[0].Kill()
		hosts[0].Start()
		waitFor(t, "they go on", func() bool { return rounds.Load() > before+1 || t.Failed() })
	}
	close(stop)
	all.Wait()
	for i := range files {
		holds(t, name(hosts[1], i), text(i, int(rounds.Load())))
		holds(t, name(hosts[0], i), text(i, int(rounds.Load())))
	}
	t.Logf("%d rounds", rounds.Load())
}

// requests returns how many requests of the kernel a mount has not answered.
func (m *mounted) requests(t *testing.T) func() int {
	t.Helper()
	var st unix.Stat_t
	check(t, unix.Stat(m.dir, &st))
	control := t.TempDir()
	check(t, unix.Mount("fusectl", control, "fusectl", 0, ""))
	t.Cleanup(func() { check(t, unix.Unmount(control, unix.MNT_DETACH)) })
	name := filepath.Join(control, fmt.Sprint(unix.Minor(st.Dev)), "waiting")
	return func() int {
		text, err := os.ReadFile(name)
		check(t, err)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		check(t, err)
		return n
	}
}

// TestPeerAway: while a host's daemon is away that programs of another host wait for, names elsewhere are looked up and
// listed. A file that is open there is not empty here: its size is waited for.
func TestPeerAway(t *testing.T) {
	hosts := newMountsOf(t, 2, admin.BufferSpec{Name: "b", Mode: 0o777}) // without a store that could answer in its place
	here, there := hosts[0], hosts[1]                                    // the first has the namespace's server
	for _, dir := range []string{"a", "d", "d/from", "open", "x"} {
		check(t, os.Mkdir(there.at(dir), 0o777))
	}
	write(t, there.at("a/from"), "text")
	keepOpen(t, there, "open/f", "some text")
	for i := range 10 {
		check(t, here.b.WriteFile(t.Context(), fmt.Sprint("x/", i), []byte("text"), 0o666))
	}
	for _, dir := range []string{"a", "d", "d/from", "open", "x"} {
		_, err := os.Stat(here.at(dir))
		check(t, err)
	}
	requests := here.requests(t)

	there.Kill()
	back := sync.OnceFunc(there.Start)
	defer back() // programs wait for it for good
	var all sync.WaitGroup
	begin := func(what string, do func() error) {
		before := requests()
		all.Go(func() {
			if err := do(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		})
		waitFor(t, what+" waits", func() bool { return requests() > before })
	}
	begin("the rename of a file", func() error { return os.Rename(here.at("a/from"), here.at("a/to")) })
	begin("the size of a file that is open", func() error {
		st, err := os.Stat(here.at("open/f"))
		if err == nil && st.Size() != int64(len("some text")) {
			err = fmt.Errorf("it is %d", st.Size())
		}
		return err
	})
	elsewhere := make(chan error, 1)
	go func() {
		failed := os.Rename(here.at("d/from"), here.at("d/to"))
		for i := range 10 {
			_, err := os.Stat(here.at(fmt.Sprint("x/", i)))
			failed = cmp.Or(failed, err)
		}
		names, err := os.ReadDir(here.at("open"))
		if err == nil && len(names) != 1 {
			err = fmt.Errorf("%d names are listed", len(names))
		}
		elsewhere <- cmp.Or(failed, err)
	}()
	select {
	case err := <-elsewhere:
		if err != nil {
			t.Errorf("names elsewhere: %v", err)
		}
	case <-time.After(40 * time.Second): // a wait for the peer lasts until it is back, or for a minute
		t.Error("names elsewhere wait, too")
	}
	back()
	all.Wait()
	holds(t, here.at("a/to"), "text")
	if _, err := os.Stat(here.at("d/to")); err != nil {
		t.Error(err)
	}
}

// keepOpen makes a file that is open for writing at a host until the test ends. Its size is known there alone.
func keepOpen(t *testing.T, m *mounted, name, text string) {
	t.Helper()
	f, err := m.b.Create(t.Context(), name)
	check(t, err)
	t.Cleanup(func() { f.Abort() })
	_, err = f.Write([]byte(text))
	check(t, err)
	check(t, f.Sync())
}

// TestNamesBesideWait: while a look-up waits for a host whose daemon is stopped, and with it the removal of another name of
// its directory from the kernel, names elsewhere vanish at once that were removed.
func TestNamesBesideWait(t *testing.T) {
	hosts := newMountsOf(t, 2, admin.BufferSpec{Name: "b", Mode: 0o777})
	here, there := hosts[0], hosts[1] // the first has the namespace's server
	for _, dir := range []string{"open", "x"} {
		check(t, os.Mkdir(here.at(dir), 0o777))
	}
	keepOpen(t, there, "open/f", "text")
	for _, name := range []string{"open/g", "x/gone"} {
		check(t, here.b.WriteFile(t.Context(), name, []byte("text"), 0o666))
	}
	requests := here.requests(t)
	keptLong(t, here, here.at("x/gone"))
	began := time.Now()
	stat(t, here.at("open/g"))
	there.Pause()
	resume := sync.OnceFunc(there.Resume)
	defer resume()
	waits := make(chan error, 1)
	go func() {
		_, err := os.Stat(here.at("open/f"))
		waits <- err
	}()
	waitFor(t, "the look-up waits", func() bool { return requests() > 0 })
	check(t, here.b.Remove(t.Context(), "open/g"))
	check(t, here.b.Remove(t.Context(), "x/gone"))
	waitFor(t, "the name has vanished", func() bool {
		_, err := os.Stat(here.at("x/gone"))
		return errors.Is(err, fs.ErrNotExist)
	})
	if d := time.Since(began); d > attrcache.Long/2 {
		t.Errorf("a name elsewhere has vanished after %v, when the kernel asked by itself", d)
	}
	select {
	case err := <-waits:
		t.Errorf("the look-up did not wait: %v", err)
	default:
	}
	resume()
	check(t, <-waits)
	refused(t, "the removal of a name beside the look-up", os.Remove(here.at("open/g")), syscall.ENOENT)
}

// TestCoherent: on coherent mounts, a read on any host finds each write that has returned on another one, and sizes, while
// both have the file open.
func TestCoherent(t *testing.T) {
	hosts := newMountsOf(t, 2, admin.BufferSpec{Name: "b", Mode: 0o777}, "--coherent")
	var files [2]*os.File
	for k, m := range hosts {
		files[k] = open(t, m.at("f"), os.O_RDWR|os.O_CREATE)
	}
	content := make([]byte, 0, 1<<20)
	random := rand.New(rand.NewPCG(7, 0))
	for i := range 300 {
		from, to := files[i%2], files[(i+1)%2]
		p, off := bytes.Repeat([]byte{byte(1 + i)}, 1+random.IntN(9000)), random.IntN(len(content)+1) // over others' bytes, and at the end
		_, err := from.WriteAt(p, int64(off))
		check(t, err)
		content = append(content[:max(len(content), off+len(p))][:off], append(p, content[min(len(content), off+len(p)):]...)...)
		if s, err := to.Stat(); err != nil || s.Size() != int64(len(content)) {
			t.Fatalf("write %d: %d bytes, not %d: %v", i, s.Size(), len(content), err)
		}
		got := make([]byte, len(content))
		if _, err := to.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("write %d of %d bytes at %d is not read: %v", i, len(p), off, err)
		}
	}
	check(t, files[0].Truncate(int64(len(content)+10)))
	if s, err := files[1].Stat(); err != nil || s.Size() != int64(len(content)+10) {
		t.Errorf("after truncate: %d bytes, not %d: %v", s.Size(), len(content)+10, err)
	}
}
