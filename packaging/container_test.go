//go:build packages

package packaging

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// dockerCapabilities are those that a container of docker has unless it is asked for others
// (docs.docker.com, "Runtime privilege and Linux capabilities"): no SYS_ADMIN, so the daemon
// mounts nothing.
var dockerCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
}

// TestContainer runs the image by an OCI runtime, with the options of the command in docs/deploy.md: the
// host's network and shared memory, and its folders. A client outside of the container maps the daemon's
// memory. Not tried: docker's own options, and --ulimit, which needs a right that tests may lack.
func TestContainer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	built, m := packages(t), newMachine(t)
	p := openPage(t, "deploy.md")
	_, p.rest, _ = strings.Cut(p.rest, "## In a container")
	command := strings.Fields(strings.ReplaceAll(p.block("sh", "docker run"), "\\\n", " "))
	var mounts []string
	for i, word := range command {
		if word == "-v" {
			mounts = append(mounts, command[i+1])
		}
	}
	want := []string{"/run/forebay:/run/forebay", "/var/lib/forebay:/var/lib/forebay", "/etc/forebay:/etc/forebay:ro", "/lustre:/lustre"}
	if !slices.Equal(mounts, want) || !slices.Contains(command, "--ipc") || !slices.Contains(command, "--network") {
		t.Fatalf("docs/deploy.md runs the image otherwise than this test: %v", command)
	}

	image := unpack(t, built.now.image, filepath.Join(m.root, "image"))
	for _, dir := range []string{"run/forebay", "var/lib/forebay", "etc/forebay", "lustre/ckpt", "state", "shm"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.write("etc/forebay/bbd.yaml", "memory: {size: 256MiB}\n", 0o644)
	m.write("config.json", runtimeConfig(t, m.root, &image, mounts), 0o644)
	// A cgroup of its own needs rights on the machine's, since it has none. The machine's /dev/shm
	// is replaced, on both sides, by one that goes with the test.
	m.hold(`set -e
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t tmpfs -o size=1g tmpfs /dev/shm
crun --cgroup-manager=disabled --root "$1/state" run --bundle "$1" `+m.container()+` >"$1/log" 2>&1 </dev/null &
echo ready
cat
crun --root "$1/state" kill `+m.container()+` TERM
wait`, "")
	outside := func(args ...string) string {
		t.Helper()
		cmd := m.command()
		cmd.Args = append(cmd.Args[:slices.Index(cmd.Args, m.root)-1], filepath.Join(m.root, "image/usr/bin/bbctl"))
		cmd.Args = append(cmd.Args, args...)
		cmd.Env = append(cmd.Env, "FOREBAY_SOCKET="+filepath.Join(m.root, "run/forebay/bbd.sock"))
		text, err := run(cmd)
		if err != nil {
			t.Fatalf("%v\n%s", err, m.read("log"))
		}
		return text
	}
	for end := time.Now().Add(soon); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(m.root, "run/forebay/bbd.sock")); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the container has no socket:\n%s", m.read("log"))
		}
	}
	outside("buffer", "create", "ckpt", "--backing", "file:///lustre/ckpt")
	m.write("content", strings.Repeat("from outside", 1<<20), 0o644)
	outside("put", filepath.Join(m.root, "content"), "bb://ckpt/content")
	if text := outside("status"); !strings.Contains(text, " shm\n") {
		t.Errorf("a client outside of the container does not map its memory:\n%s", text)
	}
	outside("drain", "ckpt")
	if m.read("lustre/ckpt/content") != m.read("content") {
		t.Error("the store has other bytes than the client wrote")
	}
}

// container names the machine's container.
func (m *machine) container() string { return filepath.Base(m.root) }

// runtimeConfig tells a runtime how to run the image (OCI runtime specification, config.md).
// Folders of the machine are taken from below its root, but for the system's own.
func runtimeConfig(t *testing.T, root string, image *imageConfig, mounts []string) string {
	t.Helper()
	type object = map[string]any
	all := []object{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		{"destination": "/dev/shm", "type": "bind", "source": "/dev/shm", "options": []string{"rbind"}}, // --ipc host
	}
	for _, m := range mounts {
		part := strings.Split(m, ":")
		options := append([]string{"rbind"}, part[2:]...)
		all = append(all, object{"destination": part[1], "type": "bind", "source": filepath.Join(root, part[0]), "options": options})
	}
	caps := object{}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		caps[set] = dockerCapabilities
	}
	text, err := json.Marshal(object{
		"ociVersion": "1.0.0",
		"root":       object{"path": "image"},
		"process": object{
			"user": object{"uid": 0, "gid": 0}, "cwd": "/", "capabilities": caps,
			"args": append(image.Config.Entrypoint, image.Config.Cmd...), "env": image.Config.Env,
		},
		"mounts": all,
		"linux":  object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}}}, // --network host, --ipc host
	})
	if err != nil {
		t.Fatal(fmt.Errorf("the runtime's configuration: %w", err))
	}
	return string(text)
}
