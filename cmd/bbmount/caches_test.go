package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbmount/attrcache"
	"forebay/internal/bbdtest"
	"forebay/internal/clusterkey"
)

// newCluster starts two daemons. The buffer is mounted at the first one. It returns the buffer as the other one has it.
func newCluster(t *testing.T) (*mounted, *client.Buffer) {
	t.Helper()
	if testing.Short() {
		t.Skip("what works here are processes of their own")
	}
	needRoot(t)
	key := filepath.Join(t.TempDir(), "key")
	check(t, os.WriteFile(key, append(clusterkey.New(), '\n'), 0o600))
	port := func() string { return bbdtest.FreePort(t, "127.0.0.1") }
	server, gossip := port(), []string{port(), port()}
	bbdtest.Start(t, "--name", "n0", "--memory", "64MiB", "--nats-embedded-listen", server)
	var nodes []*bbdtest.Daemon
	for i, at := range gossip {
		d := bbdtest.New(t, "--name", fmt.Sprint("n", i+1), "--memory", "128MiB", "--listen-tcp", "127.0.0.1:0", "--key-file", key,
			"--cluster-listen", at, "--cluster-join", strings.Join(gossip, ","))
		d.Env = []string{"FOREBAY_NATS_URL=nats://" + server}
		nodes = append(nodes, d)
	}
	bbdtest.StartAll(t, nodes...)
	m := &mounted{Daemon: nodes[0], dir: t.TempDir(), log: &log{}}
	var buffers []*client.Buffer
	for _, d := range nodes {
		c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
		check(t, err)
		t.Cleanup(func() { c.Close() })
		if len(buffers) == 0 {
			_, err = admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "b", Mode: 0o777})
			check(t, err)
		}
		buffers = append(buffers, c.Buffer("b"))
	}
	m.b = buffers[0]
	m.mount(t)
	return m, buffers[1]
}

// TestKernelCaches changes entries at another node. The kernel keeps attributes and names for long, and drops them when
// others change them.
func TestKernelCaches(t *testing.T) {
	t.Parallel()
	m, other := newCluster(t)
	f := filepath.Join(m.dir, "d", "f")
	check(t, os.Mkdir(filepath.Dir(f), 0o755))
	write(t, f, "one")
	keptLong(t, m, f)

	soon := func(what string, done func() bool) {
		t.Helper()
		began := time.Now()
		waitFor(t, what, done)
		if d := time.Since(began); d > attrcache.Long/2 {
			t.Errorf("%s: after %v, when the kernel asked by itself", what, d)
		}
	}
	stat(t, f)
	check(t, other.WriteFile(t.Context(), "d/f", []byte("longer"), 0))
	soon("the size of another's commit", func() bool { return stat(t, f).Size == 6 })
	holds(t, f, "longer")
	mode := fs.FileMode(0o604)
	_, err := other.SetAttr(t.Context(), "d/f", client.Attr{Mode: &mode})
	check(t, err)
	soon("another's chmod", func() bool { return stat(t, f).Mode&0o777 == 0o604 })
	w, err := other.OpenFile(t.Context(), "d/f", client.OpenOptions{Write: true})
	check(t, err)
	defer w.Abort()
	_, err = w.WriteAt([]byte("!"), 6)
	check(t, err)
	check(t, w.Sync())
	soon("the size of another's sync", func() bool { return stat(t, f).Size == 7 })
	check(t, w.Close())
	check(t, other.Rename(t.Context(), "d/f", "d/g"))
	soon("the old name is free", func() bool {
		created, err := os.OpenFile(f, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			err = created.Close()
		}
		return err == nil
	})
	was := stat(t, f).Ino
	check(t, other.Rename(t.Context(), "d/g", "d/f"))
	soon("the name is another file's", func() bool { st := stat(t, f); return st.Ino != was && st.Size == 7 })
	exchangedElsewhere(t, m, other, soon)
	check(t, other.Remove(t.Context(), "d/f"))
	soon("the name is gone", func() bool {
		var st unix.Stat_t
		return unix.Stat(f, &st) == syscall.ENOENT
	})
	holdsNo(t, filepath.Dir(f))
}

// exchangedElsewhere has another node exchange names that the kernel keeps.
func exchangedElsewhere(t *testing.T, m *mounted, other *client.Buffer, soon func(string, func() bool)) {
	t.Helper()
	at := func(name string) string { return filepath.Join(m.dir, name) }
	for _, dir := range []string{"x/sub", "y/sub"} {
		check(t, os.MkdirAll(at(dir), 0o755))
		write(t, at(dir+"/f"), "in "+dir)
		write(t, at(dir+"-file"), "beside "+dir)
		stat(t, at(dir+"/f"))
	}
	is := func(name, content string) func() bool {
		return func() bool {
			got, err := os.ReadFile(at(name))
			return err == nil && string(got) == content
		}
	}
	check(t, other.Exchange(t.Context(), "x/sub-file", "y/sub-file"))
	soon("files are exchanged", is("x/sub-file", "beside y/sub"))
	soon("so is the other one", is("y/sub-file", "beside x/sub"))
	check(t, other.Exchange(t.Context(), "x", "y"))
	soon("directories are exchanged", is("x/sub/f", "in y/sub"))
	soon("so is the other one", is("y/sub/f", "in x/sub"))
	check(t, other.Exchange(t.Context(), "x/sub", "y/sub-file"))
	soon("a directory became a file", is("x/sub", "beside y/sub"))
	soon("a file became a directory", is("y/sub-file/f", "in y/sub"))
}

func holdsNo(t *testing.T, dir string) {
	t.Helper()
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("the directory has %v: %v", names, err)
	}
}

// keptLong checks that attributes are answered without the daemon when the short time is over. The stream of changes may
// not hold at first.
func keptLong(t *testing.T, m *mounted, path string) {
	t.Helper()
	waitFor(t, "attributes are kept without a daemon", func() bool {
		stat(t, path)
		time.Sleep(3 * attrcache.Short / 2) // the time itself is what is tested
		m.Pause()
		defer m.Resume()
		answered := make(chan error, 1)
		go func() {
			var st unix.Stat_t
			answered <- unix.Stat(path, &st)
		}()
		select {
		case err := <-answered:
			check(t, err)
			return true
		case <-time.After(2 * time.Second):
			return false
		}
	})
}

// TestReadAhead checks that the kernel reads further ahead than by itself.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	st := stat(t, m.dir)
	text, err := os.ReadFile(fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev)))
	check(t, err)
	if got, want := strings.TrimSpace(string(text)), fmt.Sprint(aheadOf>>10); got != want {
		t.Errorf("the kernel reads %s KiB ahead, not %s", got, want)
	}
	large := strings.Repeat("large", 1<<20)
	check(t, m.b.WriteFile(t.Context(), "large", []byte(large), 0))
	holds(t, filepath.Join(m.dir, "large"), large)
	if said := m.log.String(); said != "" {
		t.Errorf("the mount says: %.200s", said)
	}
}

// TestOwnPages reads files that the mount has written. The kernel has their whole pages still, unless others have written
// too.
func TestOwnPages(t *testing.T) {
	t.Parallel()
	m := newMount(t)
	path := filepath.Join(m.dir, "f")
	text := func(begin string) string { return begin + strings.Repeat(".", 64<<10-len(begin)) }
	writeAt := func(begin string, off int64) *os.File {
		f := open(t, path, os.O_WRONLY)
		_, err := f.WriteAt([]byte(begin), off)
		check(t, err)
		return f
	}
	write(t, path, text("one"))
	keptPages(t, m, path, text("one"))
	write(t, path, text("two"))
	keptPages(t, m, path, text("two"))
	check(t, writeAt("six", 0).Close())
	keptPages(t, m, path, text("six"))

	check(t, m.b.WriteFile(t.Context(), "f", []byte(text("ten")), 0))
	holds(t, path, text("ten"))
	keptPages(t, m, path, text("ten"))

	f := writeAt("here ", 0)
	w, err := m.b.OpenFile(t.Context(), "f", client.OpenOptions{Write: true})
	check(t, err)
	_, err = w.WriteAt([]byte("there"), 5)
	check(t, err)
	check(t, w.Close())
	check(t, f.Close())
	holds(t, path, text("here there"))

	// What is opened here is the content that another client makes meanwhile.
	f = open(t, path, os.O_RDWR)
	check(t, m.b.WriteFile(t.Context(), "f", []byte(text("others' long words")), 0))
	_, err = f.WriteAt([]byte("mine"), 0)
	check(t, err)
	check(t, f.Close())
	holds(t, path, text("miners' long words"))
}

// keptPages checks that the bytes of a file are read without the daemon once the file is open.
func keptPages(t *testing.T, m *mounted, path, want string) {
	t.Helper()
	f := open(t, path, os.O_RDONLY)
	defer f.Close()
	m.Pause()
	defer m.Resume()
	got := make(chan string, 1)
	go func() {
		p := make([]byte, len(want))
		n, _ := f.ReadAt(p, 0)
		got <- string(p[:n])
	}()
	select {
	case text := <-got:
		if text != want {
			t.Errorf("%d bytes are read, beginning with %.20q, not %d with %.20q", len(text), text, len(want), want)
		}
	case <-time.After(5 * time.Second):
		t.Errorf("the kernel has requested %.20q", want)
	}
}

// TestWrittenAgain: a program finds the size of a file that it has closed twice, also before the event of the second commit comes.
func TestWrittenAgain(t *testing.T) {
	m := newMount(t)
	for i := range 200 {
		name := m.at(fmt.Sprint(i))
		write(t, name, "")
		if st, err := os.Stat(name); err != nil || st.Size() != 0 { // the entry is kept
			t.Fatalf("file %d is made: %v", i, err)
		}
		f := open(t, name, os.O_WRONLY)
		_, err := f.WriteString("text")
		check(t, err)
		check(t, f.Close())
		if st, err := os.Stat(name); err != nil || st.Size() != 4 {
			t.Fatalf("file %d has %d bytes: %v", i, st.Size(), err)
		}
	}
}
