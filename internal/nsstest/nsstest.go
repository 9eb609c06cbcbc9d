// Package nsstest gives a test users and groups that are not in /etc/passwd. They come from a real source of
// nsswitch.conf(5), libnss-extrausers, whose files are the test's. It must never change the machine's own
// users. Needs root.
package nsstest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside is set in the environment of a test that runs with mounts of its own.
const inside = "FOREBAY_TEST_NSS"

// dir is where libnss-extrausers reads passwd and group.
const dir = "/var/lib/extrausers"

// Source is the source of users and groups. Its files are in the format of passwd(5) and group(5).
type Source struct{ t *testing.T }

// Run runs a test again, in a process whose user database has a source besides its files, which is empty.
func Run(t *testing.T, test func(t *testing.T, s *Source)) {
	t.Helper()
	if os.Getenv(inside) != "" {
		test(t, mount(t))
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private",
		os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("with a user database of its own: %v\n%s", err, out)
	}
}

func mount(t *testing.T) *Source {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("%v: install libnss-extrausers (scripts/nss-tools.sh)", err)
	}
	conf := filepath.Join(t.TempDir(), "nsswitch.conf")
	if err := os.WriteFile(conf, []byte("passwd: files extrausers\ngroup: files extrausers\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(conf, "/etc/nsswitch.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("extrausers", dir, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	s := &Source{t}
	s.Users("")
	s.Groups("")
	return s
}

// Users replaces the users.
func (s *Source) Users(text string) { s.replace("passwd", text) }

// Groups replaces the groups.
func (s *Source) Groups(text string) { s.replace("group", text) }

func (s *Source) replace(name, text string) {
	s.t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

// Hang makes the source answer nothing about users until they are replaced again. Each request waits
// for the other end of a FIFO.
func (s *Source) Hang() {
	s.t.Helper()
	file := filepath.Join(dir, "passwd")
	if err := syscall.Mkfifo(file+".new", 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}
