//go:build packages

package packaging

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// maxExposure is the most that systemd-analyze may find in the unit, in tenths.
const maxExposure = 35

// TestUnitExposure: the unit has no unknown setting, and does not get laxer.
func TestUnitExposure(t *testing.T) {
	require(t)
	const unit = "../docs/forebay-bbd.service"
	output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", fmt.Sprintf("--threshold=%d", maxExposure), unit)
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit)
	text, _ := cmd.CombinedOutput() // it fails where there is no /usr/local/bin/bbd
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "forebay-bbd.service:") && !strings.Contains(line, "/usr/local/bin/bbd is not executable") {
			t.Error(line)
		}
	}
}

// TestMountUnit: the unit of a mount has no unknown setting.
func TestMountUnit(t *testing.T) {
	require(t)
	unit, err := os.ReadFile("../docs/forebay-mount@.service")
	if err != nil {
		t.Fatal(err)
	}
	instance := filepath.Join(t.TempDir(), "forebay-mount@scratch.service")
	if err := os.WriteFile(instance, unit, 0o644); err != nil {
		t.Fatal(err)
	}
	text, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", instance).CombinedOutput()
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "forebay-mount@scratch.service:") && !strings.Contains(line, "is not executable") {
			t.Error(line)
		}
	}
}

// booted is a machine with the programs of this one, an /etc, /usr and /var of its own, and systemd.
type booted struct {
	*machine
	nspawn *exec.Cmd
	pid1   int // as seen from here
}

// boot boots systemd in a container, as far as the basic target.
func boot(t *testing.T) *booted {
	t.Helper()
	top, err := os.MkdirTemp("", "root") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(top); err != nil {
			t.Error(err)
		}
	})
	m := newMachine(t)
	m.root = filepath.Join(top, "m")
	for _, dir := range []string{"m", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.hold(`set -e
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/../upper,workdir=$1/../work" "$1"
echo 00000000000000000000000000000001 >"$1/etc/machine-id"
rm -rf "$1/etc/forebay" "$1/var/lib/forebay" "$1/run/systemd"
echo ready
exec cat`)
	b := &booted{machine: m}
	log, err := os.Create(filepath.Join(top, "boot.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b.nspawn = exec.Command("nsenter", "-t", fmt.Sprint(m.holder), "--mount", "--net", "systemd-nspawn", "--directory="+m.root, "--boot",
		"--register=no", "--keep-unit", "--private-network", "--link-journal=no", "--uuid=00000000000000000000000000000001",
		// A machine has these, and a container has not.
		"--capability=CAP_IPC_LOCK", "--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self",
		"--machine="+filepath.Base(top), "--", "--unit=basic.target")
	b.nspawn.Stdout, b.nspawn.Stderr = log, log
	b.nspawn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.nspawn.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the boot:\n%s", text)
		}
		b.nspawn.Process.Signal(syscall.SIGTERM)
		b.nspawn.Wait()
	})
	b.await("systemd", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", b.nspawn.Process.Pid))
		if b.pid1, _ = strconv.Atoi(strings.TrimSpace(string(text))); err != nil || b.pid1 == 0 {
			return false
		}
		_, err = run(b.command("systemctl", "is-active", "--quiet", "basic.target"))
		return err == nil
	})
	return b
}

func (b *booted) await(what string, is func() bool) {
	b.tb.Helper()
	for end := time.Now().Add(soon); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.tb.Fatalf("%s: not within %v", what, soon)
		}
	}
}

// command is a command in the container.
func (b *booted) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", fmt.Sprint(b.pid1), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LC_ALL=C"}
	return cmd
}

// do runs a line of a shell in the container, and returns its output.
func (b *booted) do(format string, args ...any) string {
	b.tb.Helper()
	text, err := run(b.command("bash", "-e", "-o", "pipefail", "-c", fmt.Sprintf(format, args...)))
	if err != nil {
		journal, _ := run(b.command("journalctl", "--no-pager", "-n", "40", "-u", "forebay-bbd"))
		b.tb.Fatalf("%v\n%s", err, journal)
	}
	return strings.TrimSpace(text)
}

// fails runs a line that has to fail, and say why.
func (b *booted) fails(why, format string, args ...any) {
	b.tb.Helper()
	line := fmt.Sprintf(format, args...)
	if text, err := run(b.command("bash", "-c", line)); err == nil || !strings.Contains(err.Error(), why) {
		b.tb.Errorf("%s: %s, %v; want %q", line, text, err, why)
	}
}

// status reads a process's status, as it is seen in the container.
func (b *booted) status(pid string) map[string]string {
	b.tb.Helper()
	fields := make(map[string]string)
	for line := range strings.Lines(b.do("cat /proc/%s/status", pid)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

// TestUnit: real systemd starts the unit with all its settings. The daemon serves, writes and flushes as a
// user, sees mounts and unmounts after its start, and loses nothing when it is restarted or killed.
func TestUnit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	built, b := packages(t), boot(t)
	output(t, "nsenter", "-t", fmt.Sprint(b.holder), "--mount", "dpkg-deb", "-x", built.now.deb, b.root)
	b.do(`echo 'memory: {size: 256MiB, region_size: 64MiB}' >/etc/forebay/bbd.yaml
cat >/as <<'END'
#!/bin/sh
exec setpriv --reuid=50001 --regid=50001 --clear-groups "$@"
END
chmod +x /as
mkdir -p /home/alice/store /lustre
chmod 755 /home/alice; chmod 700 /home/alice/store
chown -R 50001:50001 /home/alice
systemctl daemon-reload
systemctl start forebay-bbd`)
	main := b.do("systemctl show -P MainPID forebay-bbd")

	b.rights(main)
	b.mounts(main)
	b.stores()
	b.lives()
}

// rights checks the rights of the daemon and its workers.
func (b *booted) rights(main string) {
	b.tb.Helper()
	named := b.do("systemctl show -P CapabilityBoundingSet forebay-bbd")
	daemon := b.status(main)
	names := strings.Fields(strings.ToUpper(named))
	if decoded := b.do("capsh --decode=%s | sed 's/.*=//; s/,/ /g'", daemon["CapEff"]); strings.ToUpper(decoded) != strings.Join(names, " ") {
		b.tb.Errorf("the daemon has the capabilities %s, and the unit %s", decoded, named)
	}
	for _, set := range []string{"CapPrm", "CapBnd"} {
		if daemon[set] != daemon["CapEff"] {
			b.tb.Errorf("%s: %s, want %s", set, daemon[set], daemon["CapEff"])
		}
	}
	if daemon["NoNewPrivs"] != "1" || daemon["Seccomp"] != "2" {
		b.tb.Errorf("no new privileges: %s, seccomp: %s", daemon["NoNewPrivs"], daemon["Seccomp"])
	}
	b.do(`cd /; echo once >/tmp/once; chmod 644 /tmp/once
/as bbctl buffer create home --backing file:///home/alice/store
/as bbctl put /tmp/once bb://home/dir/once
/as bbctl drain home`)
	if at := b.do("stat -c '%%u %%g %%s' /home/alice/store/dir/once"); at != "50001 50001 5" {
		b.tb.Errorf("the user's file: %s", at)
	}
	worker := b.do("pgrep -P %s -u 50001 | head -1", main)
	if w := b.status(worker); w["CapEff"] != "0000000000000000" || w["Uid"] != "50001\t50001\t50001\t50001" || w["Seccomp_filters"] <= daemon["Seccomp_filters"] {
		b.tb.Errorf("the worker: %v; filters of the daemon: %s", w, daemon["Seccomp_filters"])
	}
	if journal := b.do("journalctl --no-pager -u forebay-bbd"); strings.Contains(journal, "not confined") || strings.Contains(journal, "not filtered") || strings.Contains(journal, "level=ERROR") {
		b.tb.Errorf("the daemon says:\n%s", journal)
	}
}

// mounts checks that the memory tier is the host's, and the system read-only for the daemon.
func (b *booted) mounts(main string) {
	b.tb.Helper()
	if own, host := b.do("readlink /proc/%s/ns/mnt", main), b.do("readlink /proc/1/ns/mnt"); own == host {
		b.tb.Errorf("the daemon has the mounts of the host")
	}
	if fs := b.do("findmnt -n -o FSTYPE,SOURCE /var/lib/forebay/mem"); strings.Join(strings.Fields(fs), " ") != "tmpfs forebay" {
		b.tb.Errorf("the memory tier: %s", fs)
	}
	b.do("ls /var/lib/forebay/mem/region-* >/dev/null")
	for _, dir := range []string{"/usr", "/etc", "/boot"} {
		b.fails("Read-only file system", "nsenter -t %s --mount touch %s/file", main, dir)
	}
	b.fails("read-only file system", "cd /; mkdir -p /usr/store; bbctl buffer create usr --backing file:///usr/store; bbctl put /tmp/once bb://usr/once; bbctl drain --timeout 5s usr")
}

// stores checks that a store that is mounted after the start is reached, and gone when it is unmounted.
func (b *booted) stores() {
	b.tb.Helper()
	b.do(`mount -t tmpfs tmpfs /lustre; mkdir -m 700 /lustre/alice; chown 50001:50001 /lustre/alice; cd /
/as bbctl buffer create lustre --backing file:///lustre/alice
/as bbctl put /tmp/once bb://lustre/once
/as bbctl drain lustre
cmp /tmp/once /lustre/alice/once
umount --lazy /lustre`)
	if left := b.do("grep -c ' /lustre ' /proc/$(systemctl show -P MainPID forebay-bbd)/mountinfo || true"); left != "0" {
		b.tb.Errorf("%s mounts are left in the daemon after an umount", left)
	}
	b.do(`mount -t tmpfs tmpfs /lustre; mkdir -m 700 /lustre/again; chown 50001:50001 /lustre/again; cd /
/as bbctl buffer create again --backing file:///lustre/again
/as bbctl put /tmp/once bb://again/once
/as bbctl drain again
cmp /tmp/once /lustre/again/once`)
}

// lives checks that files in memory outlive a restart, and a kill.
func (b *booted) lives() {
	b.tb.Helper()
	b.do("cd /; echo dirty >/tmp/dirty; chmod 644 /tmp/dirty; /as bbctl put /tmp/dirty bb://home/dirty; systemctl restart forebay-bbd; /as bbctl get bb://home/dirty /tmp/got-1; cmp /tmp/dirty /tmp/got-1")
	killed := b.do("cd /; /as bbctl put /tmp/dirty bb://home/dirtier; systemctl show -P MainPID forebay-bbd; systemctl kill -s KILL --kill-whom=main forebay-bbd")
	b.await("another daemon", func() bool {
		now, err := run(b.command("systemctl", "show", "-P", "MainPID", "-P", "SubState", "forebay-bbd"))
		return err == nil && strings.Contains(now, "running") && !strings.Contains(now, killed+"\n")
	})
	b.do("cd /; /as bbctl get bb://home/dirtier /tmp/got-2; cmp /tmp/dirty /tmp/got-2; systemctl stop forebay-bbd")
	if state := b.do("systemctl show -P Result forebay-bbd"); state != "success" {
		b.tb.Errorf("the daemon's end: %s", state)
	}
}
