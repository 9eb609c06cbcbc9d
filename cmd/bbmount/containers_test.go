package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bbdtest"
)

// TestContainers mounts a buffer below a folder that containers of an OCI runtime have from the host. One that was started before sees the
// mount with the propagation rslave alone. One that is started afterwards sees it with any.
func TestContainers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	needPrograms(t, "crun", "busybox", "unshare")
	containers(t, func(*testing.T) starter { return newContainer })
}

// starter starts a container with the host's folder on /bb, until the test ends.
type starter func(t *testing.T, folder, propagation string) *container

// containers runs the test with a runtime, which starts when the folder is there.
func containers(t *testing.T, runtime func(*testing.T) starter) {
	t.Helper()
	m := newBuffer(t)
	folder, err := os.MkdirTemp("", "bb")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	check(t, unix.Mount(folder, folder, "", unix.MS_BIND, ""))
	t.Cleanup(func() { unix.Unmount(folder, unix.MNT_DETACH) })
	check(t, unix.Mount("", folder, "", unix.MS_SHARED, "")) // as systemd makes /
	m.dir = filepath.Join(folder, "scratch")
	check(t, os.Mkdir(m.dir, 0o755))

	newContainer := runtime(t)
	slave, private := newContainer(t, folder, "rslave"), newContainer(t, folder, "rprivate")
	m.mount(t)
	write(t, filepath.Join(m.dir, "f"), "hello")
	says(t, slave.run(t, "cat /bb/scratch/f"), "hello")
	says(t, private.run(t, "cat /bb/scratch/f"), "No such file")
	later := newContainer(t, folder, "rprivate")
	says(t, later.run(t, "cat /bb/scratch/f; printf there >/bb/scratch/g"), "hello")
	m.inBuffer(t, filepath.Join(m.dir, "g"), "there")
	says(t, slave.run(t, "cat /bb/scratch/g"), "there")

	exits(t, 0, bbdtest.Bbctl(t), "umount", m.dir)
	says(t, slave.run(t, "cat /bb/scratch/f"), "No such file")
	says(t, later.run(t, "cat /bb/scratch/f"), "hello") // its copy lasts as long as it does
	m.mount(t)
	says(t, slave.run(t, "cat /bb/scratch/f"), "hello")
}

// container is a shell in a container.
type container struct {
	in  io.Writer
	out *bufio.Reader
	log *log
}

// newContainer starts a container by crun.
func newContainer(t *testing.T, folder, propagation string) *container {
	t.Helper()
	bundle := t.TempDir()
	for _, dir := range []string{"bin", "bb", "dev", "proc"} {
		check(t, os.MkdirAll(filepath.Join(bundle, "root", dir), 0o755))
	}
	busybox, err := exec.LookPath("busybox")
	check(t, err)
	text, err := os.ReadFile(busybox)
	check(t, err)
	check(t, os.WriteFile(filepath.Join(bundle, "root/bin/busybox"), text, 0o755))
	type object = map[string]any
	text, err = json.Marshal(object{ // OCI runtime specification, config.md
		"ociVersion": "1.0.0",
		"root":       object{"path": "root"},
		"process":    object{"user": object{"uid": 0, "gid": 0}, "cwd": "/", "args": []string{"/bin/busybox", "sh"}, "env": []string{"PATH=/bin"}},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/bb", "type": "bind", "source": folder, "options": []string{"rbind", propagation}},
		},
		"linux": object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}}, "rootfsPropagation": propagation}, // as docker does for a volume
	})
	check(t, err)
	check(t, os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644))
	// The runtime wants a cgroup, for which a test may lack the right, unless there are none.
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", `mount -t tmpfs tmpfs /sys/fs/cgroup && exec crun --cgroup-manager=disabled --root "$0/state" run --bundle "$0" "${0##*/}-$1"`,
		bundle, filepath.Base(folder))
	return shell(t, cmd)
}

// shell starts a shell in a container, which has busybox, until the test ends.
func shell(t *testing.T, cmd *exec.Cmd) *container {
	t.Helper()
	c := &container{log: &log{}}
	cmd.Stderr = c.log
	var err error
	c.in, err = cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	c.out = bufio.NewReader(out)
	check(t, cmd.Start())
	t.Cleanup(func() {
		io.WriteString(c.in, "exit\n")
		cmd.Wait()
	})
	says(t, c.run(t, "/bin/busybox --install -s /bin; echo up"), "up")
	return c
}

// run returns the output of commands in the container.
func (c *container) run(t *testing.T, commands string) string {
	t.Helper()
	_, err := io.WriteString(c.in, "{ "+commands+"; } 2>&1; echo; echo END\n")
	check(t, err)
	var all strings.Builder
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the container has ended: %v\n%s", err, c.log)
		}
		if line == "END\n" {
			return all.String()
		}
		all.WriteString(line)
	}
}
