//go:build packages

package packaging

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"forebay/internal/netnstest"
)

// walkSystemctl replaces systemd for the daemon's unit. It makes its folders, runs the commands
// before it, starts it and waits until it is ready, and stops it.
const walkSystemctl = `#!/bin/bash
unit=/usr/lib/systemd/system/forebay-bbd.service
[ -f $unit ] || unit=/etc/systemd/system/forebay-bbd.service
line() { sed -n "s/^$1=//p" $unit; }
stop() {
	[ -f /run/bbd.pid ] || return 0
	kill -TERM $(cat /run/bbd.pid)
	while kill -0 $(cat /run/bbd.pid) 2>/dev/null; do sleep 0.05; done
	rm /run/bbd.pid
}
start() {
	mkdir -p /var/lib/$(line StateDirectory) /run/$(line RuntimeDirectory)
	while read -r command; do
		${command#+*-- } || exit 1
	done < <(line ExecStartPre)
	FOREBAY_MEMORY_SIZE=256MiB setsid $(line ExecStart) >>/run/bbd.log 2>&1 </dev/null &
	echo $! >/run/bbd.pid
	until curl -fsS http://127.0.0.1:7480/readyz >/dev/null 2>&1; do
		kill -0 $(cat /run/bbd.pid) 2>/dev/null || { cat /run/bbd.log; exit 1; }
		sleep 0.05
	done
}
case "$*" in
"enable --now forebay-bbd" | "start forebay-bbd") start ;;
"stop forebay-bbd") stop ;;
daemon-reload) ;;
*) echo "systemctl $*: not here" >&2; exit 1 ;;
esac
`

// walker is a machine with the programs of this one and an /etc, /var, /run and /usr of its own.
// Files written there go with it.
type walker struct{ *machine }

// newWalker returns a machine with a name, on a host. All of them see one folder as /lustre.
func newWalker(tb testing.TB, host *netnstest.Host, name, lustre string) walker {
	tb.Helper()
	root, err := os.MkdirTemp("", "root") // short: a socket's path has at most 107 bytes
	if err != nil {
		tb.Fatal(err)
	}
	m := walker{&machine{root: filepath.Join(root, "m"), host: host, tb: tb}}
	for _, dir := range []string{"m", "upper", "work"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			tb.Error(err)
		}
	})
	m.hold(`set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/../upper,workdir=$1/../work" "$1"
for dir in run tmp; do mount -t tmpfs tmpfs "$1/$dir"; done
mkdir -p "$1/run/systemd/system" "$1/lustre" "$1/release"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -t tmpfs -o size=1g tmpfs "$1/dev/shm"
mount --bind "$2" "$1/lustre"
hostname "$3"
echo ready
exec cat`, lustre, name)
	m.file("/usr/local/bin/systemctl", walkSystemctl)
	m.sh("chmod +x /usr/local/bin/systemctl; ip link set lo up; rm -rf /etc/forebay /var/lib/forebay")
	tb.Cleanup(func() {
		if text, err := run(m.command("bash", "-c", "/usr/local/bin/systemctl stop forebay-bbd; cat /run/bbd.log 2>/dev/null || true")); err != nil || tb.Failed() {
			tb.Logf("the daemon of %s: %v\n%s", name, err, text)
		}
	})
	return m
}

// file writes a file below the root.
func (m walker) file(name, text string) {
	m.tb.Helper()
	cmd := m.command("bash", "-c", `mkdir -p "$(dirname "$0")" && cat >"$0"`, name)
	cmd.Stdin = strings.NewReader(text)
	if _, err := run(cmd); err != nil {
		m.tb.Fatal(err)
	}
}

// sh pastes lines into a shell, which ends at the first that fails, and returns their output.
func (m walker) sh(lines string) string {
	m.tb.Helper()
	text, err := m.try(lines)
	if err != nil {
		m.tb.Fatal(err)
	}
	return text
}

func (m walker) try(lines string) (string, error) {
	cmd := m.command("bash", "-e", "-o", "pipefail", "-c", "cd /release\n"+lines)
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
	var all bytes.Buffer
	cmd.Stdout, cmd.Stderr = &all, &all
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("on %s: %w\n%s\n%s", m.host.Name, err, lines, &all)
	}
	return all.String(), nil
}

// says pastes lines, and checks for words in their output.
func (m walker) says(lines string, want ...string) {
	m.tb.Helper()
	text := m.sh(lines)
	for _, w := range want {
		if !strings.Contains(text, w) {
			m.tb.Errorf("%s\ndoes not say %q, but:\n%s", lines, w, text)
		}
	}
}

// page is one page of docs, of which a test takes the blocks in their order.
type page struct {
	tb   testing.TB
	name string
	text string
	rest string // text after the last block
}

func openPage(tb testing.TB, name string) *page {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join("../docs", name))
	if err != nil {
		tb.Fatal(err)
	}
	return &page{tb, name, string(text), string(text)}
}

// block returns the page's next block, which must be of a language and have some words.
func (p *page) block(language string, with ...string) string {
	p.tb.Helper()
	_, rest, found := strings.Cut(p.rest, "\n```")
	head, rest, _ := strings.Cut(rest, "\n")
	block, rest, ends := strings.Cut(rest, "\n```\n")
	if !found || !ends || head != language {
		p.tb.Fatalf("the next block of docs/%s is not of %s, but of %q: %s", p.name, language, head, block)
	}
	p.rest = rest
	for _, w := range with {
		if !strings.Contains(block, w) {
			p.tb.Fatalf("the next block of docs/%s does not have %q: %s", p.name, w, block)
		}
	}
	return block
}

// done checks that the test has taken all blocks.
func (p *page) done() {
	p.tb.Helper()
	if _, more, found := strings.Cut(p.rest, "\n```"); found {
		p.tb.Errorf("docs/%s has a block that no test runs: %.200s", p.name, more)
	}
}

// code checks that the page has a command in its text, and returns it.
func (p *page) code(command string) string {
	p.tb.Helper()
	if !strings.Contains(p.text, "`"+command+"`") {
		p.tb.Errorf("docs/%s does not have the command %q any more", p.name, command)
	}
	return command
}

// TestGuides deploys a cluster of three as docs/deploy.md says, then follows docs/operations.md,
// with a fourth machine for steps of a daemon alone. Every block is pasted as it stands. Not run:
// systemd, an rpm, and commands for others' programs.
func TestGuides(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	built, hosts, lustre := packages(t), netnstest.New(t, 4).Hosts, t.TempDir()
	var all []walker
	var names strings.Builder
	names.WriteString("127.0.0.1 localhost\n")
	for i, host := range hosts {
		fmt.Fprintf(&names, "%v node%d\n", host.Addr, i+1)
		all = append(all, newWalker(t, host, fmt.Sprintf("node%d", i+1), lustre))
	}
	for _, m := range all {
		m.file("/etc/hosts", names.String())
	}
	deploy, operations := openPage(t, "deploy.md"), openPage(t, "operations.md")
	deployed(t, deploy, built, all[:3], all[3])
	looked(t, operations, all[0])
	takenOut(deploy, all[:3])
	upgraded(operations, built, all[:3])
	remote(t, operations, all[3])
	deploy.done()
	operations.done()
}

// each does something on all machines at a time.
func each(machines []walker, do func(walker) error) {
	var group sync.WaitGroup
	errs := make([]error, len(machines))
	for i, m := range machines {
		group.Go(func() { errs[i] = do(m) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		machines[0].tb.Fatal(err)
	}
}

// give puts a package into the folder where the reader stands.
func (m walker) give(file string) {
	m.tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		m.tb.Fatal(err)
	}
	m.sh("rm -f forebay_*")
	m.file("/release/"+filepath.Base(file), string(text))
}

// deployed follows docs/deploy.md to a cluster that runs.
func deployed(t *testing.T, p *page, built releases, nodes []walker, other walker) {
	t.Helper()
	install := p.block("sh", "dpkg -i forebay_*.deb")
	for _, m := range nodes {
		m.give(built.now.deb)
	}
	each(nodes, func(m walker) error { _, err := m.try(install); return err })
	// Without packages: `make build` has been done.
	for _, name := range []string{"bbd", "bbctl", "bbmount"} {
		other.copy(filepath.Join(filepath.Dir(filepath.Dir(built.now.deb)), "bin", name), "bin/"+name)
	}
	other.copy("../docs/forebay-bbd.service", "docs/forebay-bbd.service")
	other.sh("make() { :; }\n" + p.block("sh", "make build", "install bin/bbd bin/bbctl bin/bbmount"))
	other.says("bbd --version; bbmount --version; ls /usr/local/share/man/man1/bbctl.1 /usr/local/share/bash-completion/completions/bbctl", "bbd", "bbmount")

	nodes[0].sh(p.block("sh", "openssl rand -hex 32 > /etc/forebay/key"))
	key := nodes[0].sh("cat /etc/forebay/key")
	for _, m := range nodes[1:] { // by ssh
		m.file("/etc/forebay/key", key)
		m.sh("chmod 600 /etc/forebay/key")
	}
	config := p.block("yaml", "key_file: /etc/forebay/key", `servers: "node1,node2,node3"`)
	for _, m := range nodes {
		m.file("/etc/forebay/bbd.yaml", config)
		m.says(p.code("bbd config check"), "")
	}
	nodes[0].sh("mkdir -p /lustre/ckpt")
	start, rest, _ := strings.Cut(p.block("sh", "systemctl enable --now forebay-bbd", "bbctl nodes", "bbctl buffer create ckpt"), "\n")
	each(nodes, func(m walker) error { _, err := m.try(start); return err })
	nodes[0].until(rest, "node1", "node2", "node3", "created bb://ckpt/")
	nodes[2].says(p.code("curl http://127.0.0.1:7480/readyz"), "ready")
	nodes[0].sh("! bbctl nodes | grep -F '[::]'") // each line has an address that others can use
	p.block("sh", "skopeo copy", "docker run")    // TestContainer
}

// copy copies a file of this machine to the folder where the reader stands.
func (m walker) copy(file, name string) {
	m.tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		m.tb.Fatal(err)
	}
	m.file("/release/"+name, string(text))
	m.sh("chmod 755 " + name)
}

// until repeats lines until their output has some words: gossip takes a moment to spread.
func (m walker) until(lines string, want ...string) {
	m.tb.Helper()
	m.sh(`all() { ` + lines + "\n}\n" + `for i in $(seq 600); do
	text=$(bbctl nodes)
	[ "$(grep -c ' ready ' <<<"$text")" = 3 ] && break
	sleep 0.1
done`)
	m.says(lines, want...)
}

// looked runs the commands of docs/operations.md that only look.
func looked(t *testing.T, p *page, m walker) {
	t.Helper()
	m.sh("echo 'a checkpoint' | bbctl put - bb://ckpt/step-1")
	m.says(p.code("bbctl status"), "node1", "node2", "node3", "ckpt")
	m.says("bbctl status --node node2", "node2")
	m.says(p.code("bbctl status --json"), `"cluster"`, `"socket"`)
	profile := p.code("curl --unix-socket /run/forebay/bbd-admin.sock http://bbd/debug/pprof/profile >cpu")
	m.sh(strings.Replace(profile, "/profile", "'/profile?seconds=1'", 1) + "\ntest -s cpu")
	for _, path := range []string{"metrics", "healthz", "readyz"} {
		m.sh("curl -fsS http://127.0.0.1:7480/" + path)
	}
	m.sh("timeout 2 " + p.code("bbctl events -f") + " || [ $? = 124 ]")
	m.file("/release/open.yaml", p.block("yaml", `admin: "0.0.0.0:7480"`))
	m.sh("bbd --config open.yaml config check")
	p.block("yaml", "rule_files: [alerts.yaml]") // TestAlerts and TestDashboard of cmd/bbd
	m.sh("bbctl drain ckpt")
	m.says(p.code("bbctl jobs"), "drain")
	m.says("bbctl jobs show $(bbctl jobs --json | grep -o '\"id\":\"[^\"]*' | head -1 | cut -d'\"' -f4)", "done")
	m.says("cat /lustre/ckpt/step-1", "a checkpoint")
	m.sh("bbctl doctor --clean --store file:///lustre/ckpt --dry-run")
	m.sh("bbctl lost ckpt")
}

// takenOut drains a node and takes it in again.
func takenOut(p *page, nodes []walker) {
	m := nodes[0]
	m.sh("echo more | bbctl put - bb://ckpt/step-2")
	m.sh(strings.ReplaceAll(p.code("bbctl node drain NODE"), "NODE", "node1"))
	m.sh("timeout 120 bash -c 'until bbctl nodes | grep -q \"node1 *draining\"; do sleep 0.1; done'") // by gossip
	m.sh(strings.ReplaceAll(p.code("bbctl node undrain NODE"), "NODE", "node1"))
	if _, err := m.try(strings.ReplaceAll(p.code("bbctl node forget NODE"), "NODE", "node2") + " --yes"); err == nil || !strings.Contains(err.Error(), "exit status 9") {
		m.tb.Errorf("a node that serves is forgotten: %v", err)
	}
}

// upgraded upgrades the second node by docs/operations.md.
func upgraded(p *page, built releases, nodes []walker) {
	m := nodes[1]
	m.sh("echo stays | bbctl put - bb://ckpt/stays")
	m.until(p.code("bbctl nodes"), "PROTOCOL")
	m.sh(p.code("systemctl stop forebay-bbd"))
	m.give(built.next.deb)
	m.sh(p.code("dpkg -i forebay_*.deb"))
	m.sh(p.code("systemctl start forebay-bbd"))
	m.until("bbctl nodes", "node2")
	m.says("bbctl cat bb://ckpt/stays; bbctl status --node node2", "stays")
	m.says("dpkg-query -W forebay", built.next.version)
}

// remote serves clients over TLS from a daemon alone, which was installed without packages.
func remote(t *testing.T, p *page, m walker) {
	t.Helper()
	m.sh("mkdir -p /etc/forebay\n" + p.code("bbd config defaults > /etc/forebay/bbd.yaml") + "\n" + p.code("bbd config check"))
	said := m.sh(p.block("sh", "bbctl cluster init cluster"))
	_, config, _ := strings.Cut(said, "in its /etc/forebay/bbd.yaml:\n")
	config, _, found := strings.Cut(config, "\nto nodes")
	if !found {
		t.Fatalf("bbctl cluster init does not say what to write:\n%s", said)
	}
	m.file("/etc/forebay/bbd.yaml", strings.ReplaceAll(config, "  key_file", "key_file")+"\n"+`listen: {tcp: "0.0.0.0:7481"}`+"\n")
	m.sh("sed -i 's/^  tls:/tls:/' /etc/forebay/bbd.yaml; cd cluster; install -m 600 cluster.key daemon.key daemon.pem ca.pem /etc/forebay/")
	m.sh("systemctl start forebay-bbd")
	client := strings.ReplaceAll(p.block("sh", "bbctl --socket tcp://node1:7481 status"), "node1", "node4")
	m.says("cd cluster\n"+client, "node4", "answered over tcp://node4:7481")
}
