package powertest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// mapEnv names the file system in which a process is to write through a mapping.
const mapEnv = "FOREBAY_TEST_MAP"

func TestMain(m *testing.M) {
	if dir := os.Getenv(mapEnv); dir != "" {
		mapped(dir)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// fill returns bytes that are not zero.
func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

// do panics with an error. The steps of a case cannot fail.
func do(err error) {
	if err != nil {
		panic(err)
	}
}

func write(name string, p []byte, sync bool) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
	do(err)
	_, err = f.Write(p)
	do(err)
	if sync {
		do(f.Sync())
	}
	do(f.Close())
}

func syncDir(name string) {
	d, err := os.Open(name)
	do(err)
	do(d.Sync())
	do(d.Close())
}

// survivals are the possible states after a cut. Each seed has one of the trees, each of them for
// some seed. A tree is "name=content" in order. A content is a letter and its count, and "-" is
// zeros.
var survivals = []struct {
	name  string
	steps func(dir string)
	trees []string
}{
	{"nothing was synced", func(d string) { write(d+"/f", fill('a', 3), false) }, []string{"", "f=", "f=a3", "f=-3"}},
	{"the file was synced, its name was not", func(d string) { write(d+"/f", fill('a', 3), true) }, []string{"", "f=a3"}},
	{
		"file and name were synced", func(d string) { write(d+"/f", fill('a', 3), true); syncDir(d) },
		[]string{"f=a3"},
	},
	{
		"written again, by sectors", func(d string) {
			write(d+"/f", fill('a', 1024), true)
			syncDir(d)
			write(d+"/f", fill('b', 1024), false)
		},
		[]string{"f=a1024", "f=b1024", "f=a512b512", "f=b512a512"},
	},
	{
		"lengthened", func(d string) {
			write(d+"/f", fill('a', 512), true)
			syncDir(d)
			write(d+"/f", append(fill('a', 512), fill('b', 512)...), false)
		},
		[]string{"f=a512", "f=a512b512", "f=a512-512"},
	},
	{
		"a rename over a name", func(d string) {
			write(d+"/f", fill('a', 1), true)
			write(d+"/g", fill('b', 1), true)
			syncDir(d)
			do(os.Rename(d+"/g", d+"/f"))
		},
		[]string{"f=a1 g=b1", "f=b1"},
	},
	{
		"a rename over a name, of a file that was not synced", func(d string) {
			write(d+"/f", fill('a', 1), true)
			syncDir(d)
			write(d+"/g", fill('b', 1), false)
			do(os.Rename(d+"/g", d+"/f"))
			syncDir(d)
		},
		[]string{"f=", "f=b1", "f=-1"},
	},
	{
		"a rename between directories", func(d string) {
			do(os.Mkdir(d+"/x", 0o755))
			do(os.Mkdir(d+"/y", 0o755))
			write(d+"/x/f", fill('a', 1), true)
			for _, dir := range []string{"", "/x", "/y"} {
				syncDir(d + dir)
			}
			do(os.Rename(d+"/x/f", d+"/y/f"))
		},
		[]string{"x/f=a1", "y/f=a1", "x/f=a1 y/f=a1"},
	},
	{
		"a rename between directories, the old one synced first", func(d string) {
			do(os.Mkdir(d+"/x", 0o755))
			do(os.Mkdir(d+"/y", 0o755))
			write(d+"/x/f", fill('a', 1), true)
			for _, dir := range []string{"", "/x", "/y"} {
				syncDir(d + dir)
			}
			do(os.Rename(d+"/x/f", d+"/y/f"))
			syncDir(d + "/x")
		},
		[]string{"", "y/f=a1"},
	},
	{
		"a removal", func(d string) {
			write(d+"/f", fill('a', 1), true)
			syncDir(d)
			do(os.Remove(d + "/f"))
		},
		[]string{"f=a1", ""},
	},
	{
		"a removal that was synced", func(d string) {
			write(d+"/f", fill('a', 1), true)
			syncDir(d)
			do(os.Remove(d + "/f"))
			syncDir(d)
		},
		[]string{""},
	},
	{
		"a directory whose name was not synced", func(d string) {
			do(os.Mkdir(d+"/x", 0o755))
			write(d+"/x/f", fill('a', 1), true)
			syncDir(d + "/x")
		},
		[]string{"", "x/f=a1"},
	},
	{
		"truncated", func(d string) {
			write(d+"/f", fill('a', 4), true)
			syncDir(d)
			do(os.Truncate(d+"/f", 2))
		},
		[]string{"f=a4", "f=a2"},
	},
	{
		"O_SYNC", func(d string) {
			f, err := os.OpenFile(d+"/f", os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o644)
			do(err)
			_, err = f.Write(fill('a', 2))
			do(err)
			do(f.Close())
			syncDir(d)
		},
		[]string{"f=a2"},
	},
	{
		"O_DIRECT is no sync", func(d string) {
			write(d+"/f", nil, true)
			syncDir(d)
			f, err := os.OpenFile(d+"/f", os.O_WRONLY|unix.O_DIRECT, 0o644)
			do(err)
			p, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
			do(err)
			copy(p, fill('a', 512))
			_, err = f.Write(p[:512])
			do(err)
			do(f.Close())
			do(unix.Munmap(p))
		},
		[]string{"f=", "f=a512", "f=-512"},
	},
	{
		"a mapping that was synced", func(d string) {
			write(d+"/f", fill('a', 4096), true)
			syncDir(d)
			self, err := os.Executable()
			do(err)
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), mapEnv+"="+d)
			cmd.Stderr = os.Stderr
			do(cmd.Run())
		},
		[]string{"f=b4096"},
	},
}

// mapped writes to a file through memory, and syncs that. It is for a process of its own. The
// garbage collector waits for a thread in a page fault, and the one that would answer it waits for
// the garbage collector.
func mapped(d string) {
	f, err := os.OpenFile(d+"/f", os.O_RDWR, 0o644)
	do(err)
	p, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	do(err)
	copy(p, fill('b', 4096))
	do(unix.Msync(p, unix.MS_SYNC))
	do(unix.Munmap(p))
	do(f.Close())
}

// tree writes down all files below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		p, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		var text strings.Builder
		text.WriteString(rel + "=")
		for i := 0; i < len(p); {
			n := len(p[i:]) - len(bytes.TrimLeft(p[i:], string(p[i])))
			text.WriteString(strings.ReplaceAll(string(p[i]), "\x00", "-") + fmt.Sprint(n))
			i += n
		}
		all = append(all, text.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, " ")
}

func TestSurvivals(t *testing.T) {
	for _, c := range survivals {
		t.Run(c.name, func(t *testing.T) {
			may := map[string]int{}
			for _, text := range c.trees {
				may[text] = 0
			}
			for seed := range uint64(100) {
				if seed >= 20 && all(may) {
					break
				}
				dir := t.TempDir()
				f := Mount(t, dir)
				c.steps(dir)
				f.Restart(seed)
				got := tree(t, dir)
				if _, is := may[got]; !is {
					t.Fatalf("seed %d leaves %q, want one of %q; steps %q", seed, got, c.trees, f.Steps())
				}
				may[got]++
				if seed > Corners {
					continue
				}
				f.Restart(seed + 1)
				if again := tree(t, dir); again != got {
					t.Errorf("what survived once, %q, is %q after another cut", got, again)
				}
				f.Instead(1)
				if again := tree(t, dir); again != got {
					t.Errorf("what survived once, %q, is %q after another cut and with another seed", got, again)
				}
			}
			if !all(may) {
				t.Errorf("some never happened: %v", may)
			}
		})
	}
}

func all(may map[string]int) bool {
	for _, n := range may {
		if n == 0 {
			return false
		}
	}
	return true
}

// The same seed leaves the same.
func TestSeed(t *testing.T) {
	for seed := range uint64(12) {
		var left [2]string
		for i := range left {
			dir := t.TempDir()
			f := Mount(t, dir)
			for n := range 20 {
				write(fmt.Sprintf("%s/f%d", dir, n), fill('a', 700*n), n%2 == 0)
			}
			f.Restart(seed)
			left[i] = tree(t, dir)
		}
		if left[0] != left[1] {
			t.Errorf("seed %d leaves %q, and %q", seed, left[0], left[1])
		}
	}
}

// A cut after so many steps. Those are done, and everything after them fails.
func TestCutAfter(t *testing.T) {
	dir := t.TempDir()
	f := Mount(t, dir)
	f.CutAfter(3)
	file, err := os.Create(dir + "/f")
	do(err)
	_, err = file.Write(fill('a', 1))
	do(err)
	do(file.Sync())
	if _, err := file.Write(fill('b', 1)); !errors.Is(err, syscall.EIO) {
		t.Errorf("the write after the cut: %v", err)
	}
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the sync after the cut: %v", err)
	}
	file.Close()
	if _, err := os.ReadDir(dir); !errors.Is(err, syscall.EIO) {
		t.Errorf("reading the directory after the cut: %v", err)
	}
	if steps := f.Steps(); len(steps) != 3 {
		t.Errorf("steps %q, want 3", steps)
	}
	f.Restart(1)
	if got := tree(t, dir); got != "f=a1" {
		t.Errorf("it leaves %q", got)
	}
}

// The other requests to a file system.
func TestFileSystem(t *testing.T) {
	dir := t.TempDir()
	Mount(t, dir)
	do(os.MkdirAll(dir+"/a/b", 0o755))
	write(dir+"/a/b/f", fill('x', 3<<20), false)
	do(os.Link(dir+"/a/b/f", dir+"/a/g"))
	do(os.Symlink("a/g", dir+"/l"))
	if p, err := os.ReadFile(dir + "/l"); err != nil || !bytes.Equal(p, fill('x', 3<<20)) {
		t.Errorf("through both links: %d bytes, %v", len(p), err)
	}
	for what, err := range map[string]error{
		"removing a directory with files": os.Remove(dir + "/a"),
		"a directory over a file":         os.Rename(dir+"/a/b", dir+"/a/g"),
		"a file over a directory":         os.Rename(dir+"/a/g", dir+"/a/b"),
		"a directory twice":               os.Mkdir(dir+"/a", 0o755),
		"replacing nothing": unix.Renameat2(unix.AT_FDCWD, dir+"/a/g", unix.AT_FDCWD, dir+"/l",
			unix.RENAME_NOREPLACE),
	} {
		if err == nil {
			t.Errorf("%s succeeded", what)
		}
	}
	info, err := os.Stat(dir + "/a/g")
	if err != nil || info.Sys().(*syscall.Stat_t).Nlink != 2 {
		t.Errorf("a file with two names: %+v, %v", info, err)
	}
	do(os.Remove(dir + "/a/g"))
	do(os.Chmod(dir+"/a/b/f", 0o600))
	if info, err := os.Stat(dir + "/a/b/f"); err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
		t.Errorf("a file with one name: %+v, %v", info, err)
	}
	const many = 3000
	do(os.Mkdir(dir+"/many", 0o755))
	for i := range many {
		write(fmt.Sprintf("%s/many/%d", dir, i), nil, false)
	}
	if all, err := os.ReadDir(dir + "/many"); err != nil || len(all) != many {
		t.Errorf("a directory of %d files lists %d (%v)", many, len(all), err)
	}
	do(os.RemoveAll(dir + "/many"))
	do(os.RemoveAll(dir + "/a"))
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left are %v (%v)", all, err)
	}
}
