//go:build packages

package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/internal/netnstest"
)

// soon is how long anything here may take on a busy machine.
const soon = 2 * time.Minute

// machine is a bare root on a host of its own, with mounts of its own.
type machine struct {
	root   string
	host   *netnstest.Host
	holder int // the process that holds the mounts; 0: not mounted yet
	tb     testing.TB
}

// newMachine returns a machine whose root is empty.
func newMachine(tb testing.TB) *machine {
	tb.Helper()
	host := netnstest.New(tb, 1).Hosts[0]
	root, err := os.MkdirTemp("", "root") // short: a socket's path has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			tb.Error(err)
		}
	})
	return &machine{root: root, host: host, tb: tb}
}

// fakeSystemctl records its arguments: systemd runs nowhere in the tests.
const fakeSystemctl = "#!/bin/sh\necho \"$*\" >>/systemctl.log\n"

// bare gives the root the programs of packages' scripts, and nothing else: a shell, and a
// systemctl.
func (m *machine) bare(tree []string) {
	m.tb.Helper()
	for _, dir := range append([]string{"bin", "etc", "run/systemd/system", "tmp", "usr/bin"}, tree...) {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			m.tb.Fatal(err)
		}
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		m.tb.Fatal(err)
	}
	output(m.tb, "cp", "-L", busybox, filepath.Join(m.root, "bin/sh"))
	m.write("usr/bin/systemctl", fakeSystemctl, 0o755)
	m.write("etc/passwd", "root:x:0:0:root:/:/bin/sh\n", 0o644)
	m.write("etc/group", "root:x:0:\n", 0o644)
	if slices.Contains(tree, "var/lib/dpkg/info") {
		m.write("var/lib/dpkg/status", "", 0o644)
	}
	m.mount()
}

// mount makes the mount namespace, with /proc, /dev and a /dev/shm below the root. It is there
// until the test ends, as that of a real machine is there while daemons come and go.
func (m *machine) mount() {
	m.tb.Helper()
	const script = `set -e
mkdir -p "$1/proc" "$1/dev"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o size=1g tmpfs "$1/dev/shm"
echo ready
exec cat`
	m.hold(script)
}

// hold runs a script in new namespaces for mounts and the host's name, which are there until the
// test ends. Its first argument is the root. It prints a line once it is ready, and then reads its
// input.
func (m *machine) hold(script string, args ...string) {
	m.tb.Helper()
	cmd := m.host.Command("unshare", append([]string{"--mount", "--uts", "--propagation", "private", "sh", "-c", script, "sh", m.root}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		m.tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		m.tb.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			m.tb.Errorf("the mounts of %s: %v\n%s", m.root, err, &stderr)
		}
	})
	if n, err := out.Read(make([]byte, 16)); n == 0 {
		m.tb.Fatalf("the mounts of %s are not made: %v", m.root, err)
	}
	m.holder = cmd.Process.Pid
}

// command returns a command that runs below the root.
func (m *machine) command(args ...string) *exec.Cmd {
	chroot, err := exec.LookPath("chroot") // its PATH is not the command's
	if err != nil {
		m.tb.Fatal(err)
	}
	cmd := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(m.holder), "--mount", "--uts", "--net", chroot, m.root}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	return cmd
}

// run runs a command below the root, and returns its output.
func (m *machine) run(args ...string) string {
	m.tb.Helper()
	text, err := run(m.command(args...))
	if err != nil {
		m.tb.Fatal(err)
	}
	return text
}

func (m *machine) read(name string) string {
	m.tb.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.tb.Fatal(err)
	}
	return string(text)
}

func (m *machine) write(name, text string, mode os.FileMode) {
	m.tb.Helper()
	if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), mode); err != nil {
		m.tb.Fatal(err)
	}
}

// systemctl checks the scripts' calls of systemctl since the last check.
func (m *machine) systemctl(want string) {
	m.tb.Helper()
	if got := m.read("systemctl.log"); got != want {
		m.tb.Errorf("scripts asked systemd for %q, want %q", got, want)
	}
	m.write("systemctl.log", "", 0o644)
}

// configure makes the key and writes the configuration of docs/deploy.md, for a cluster of one,
// and returns it.
func (m *machine) configure() string {
	m.tb.Helper()
	page, err := os.ReadFile("../docs/deploy.md")
	if err != nil {
		m.tb.Fatal(err)
	}
	_, config, _ := strings.Cut(string(page), "```yaml\n")
	config, _, found := strings.Cut(config, "```")
	if !found || !strings.HasPrefix(config, "key_file: /etc/forebay/key\n") {
		m.tb.Fatalf("docs/deploy.md does not begin with the configuration of a node any more, but with:\n%s", config)
	}
	config = strings.NewReplacer("node1:7483,node2:7483", "node1:7483", "node1,node2,node3", "node1", "25%", "512MiB").Replace(config) + "name: node1\n"
	m.write("etc/forebay/key", strings.Repeat("5a", 32)+"\n", 0o600)
	m.write("etc/forebay/bbd.yaml", config, 0o644)
	m.write("etc/hosts", fmt.Sprintf("127.0.0.1 localhost\n%v node1\n", m.host.Addr), 0o644)
	return config
}

// use makes a buffer, writes a file to it, flushes it, and reads it.
func (m *machine) use(name string) {
	m.tb.Helper()
	if err := os.MkdirAll(filepath.Join(m.root, "store"), 0o755); err != nil {
		m.tb.Fatal(err)
	}
	content := strings.Repeat(name, 1<<16)
	m.write("tmp/content", content, 0o644)
	m.run("/usr/bin/bbctl", "buffer", "create", "ckpt", "--backing", "file:///store")
	m.run("/usr/bin/bbctl", "put", "/tmp/content", "bb://ckpt/"+name)
	m.run("/usr/bin/bbctl", "drain", "ckpt")
	if m.read("store/"+name) != content {
		m.tb.Errorf("the store has other bytes in %s after the drain", name)
	}
	m.run("/usr/bin/bbctl", "get", "bb://ckpt/"+name, "/tmp/got")
	if m.read("tmp/got") != content {
		m.tb.Errorf("%s is read back with other bytes", name)
	}
}

// unit is the section Service of a systemd unit: its values by key, in order.
type unit map[string][]string

func readUnit(tb testing.TB, file string) unit {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	u := unit{}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(key, "#") {
			u[key] = append(u[key], value)
		}
	}
	if len(u["ExecStart"]) != 1 || !slices.Equal(u["Type"], []string{"notify"}) {
		tb.Fatalf("%s: %v", file, u)
	}
	return u
}

// amongTheHosts goes before a command that mounts where all see it. The host of a machine is no process 1.
const amongTheHosts = "+/usr/bin/nsenter --target 1 --mount -- "

// start starts the daemon as systemd would: folders, earlier commands, the daemon.
func (u unit) start(m *machine) *daemon {
	m.tb.Helper()
	for key, parent := range map[string]string{"StateDirectory": "var/lib", "RuntimeDirectory": "run", "ConfigurationDirectory": "etc"} {
		for _, name := range u[key] {
			if err := os.MkdirAll(filepath.Join(m.root, parent, name), 0o755); err != nil {
				m.tb.Fatal(err)
			}
		}
	}
	for _, line := range u["ExecStartPre"] {
		m.run(strings.Fields(strings.TrimPrefix(line, amongTheHosts))...)
	}
	return m.start(strings.Fields(u["ExecStart"][0]), nil)
}

// daemon is a daemon's process.
type daemon struct {
	m     *machine
	cmd   *exec.Cmd
	log   *os.File
	ended chan error
}

// start starts a daemon below the root and waits until it reports that it is ready (sd_notify(3)).
func (m *machine) start(args, env []string) *daemon {
	m.tb.Helper()
	if err := os.MkdirAll(filepath.Join(m.root, "run"), 0o755); err != nil {
		m.tb.Fatal(err)
	}
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(m.root, "run/notify"), Net: "unixgram"})
	if err != nil {
		m.tb.Fatal(err)
	}
	defer os.Remove(filepath.Join(m.root, "run/notify"))
	defer notify.Close()
	d := &daemon{m: m, cmd: m.command(args...), ended: make(chan error, 1)}
	if d.log, err = os.CreateTemp(m.root, "log"); err != nil {
		m.tb.Fatal(err)
	}
	d.cmd.Env = append(append(d.cmd.Env, env...), "NOTIFY_SOCKET=/run/notify", "FOREBAY_MEMORY_SIZE=512MiB")
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	if err := d.cmd.Start(); err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(d.kill)
	go func() {
		d.ended <- d.cmd.Wait()
		notify.SetReadDeadline(time.Now()) // nobody notifies any more
	}()
	if err := notify.SetReadDeadline(time.Now().Add(soon)); err != nil {
		m.tb.Fatal(err)
	}
	message := make([]byte, 4096)
	for {
		n, err := notify.Read(message)
		if err != nil {
			m.tb.Fatalf("%v is not ready: %v\n%s", args, err, d.text())
		}
		if slices.Contains(strings.Split(string(message[:n]), "\n"), "READY=1") {
			return d
		}
	}
}

func (d *daemon) text() string {
	text, err := os.ReadFile(d.log.Name())
	return fmt.Sprintf("%s%v", text, errors.Join(err))
}

// stop ends the daemon with SIGTERM, as systemd does.
func (d *daemon) stop() {
	d.m.tb.Helper()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.m.tb.Fatalf("the daemon: %v\n%s", err, d.text())
	}
	select {
	case err := <-d.ended:
		if err != nil {
			d.m.tb.Errorf("the daemon's end: %v\n%s", err, d.text())
		}
		d.ended <- err
	case <-time.After(soon):
		d.m.tb.Fatalf("the daemon does not end\n%s", d.text())
	}
}

// kill ends a daemon that the test left behind.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.ended
	d.log.Close()
}
