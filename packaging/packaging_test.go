//go:build packages

package packaging

import (
	"bytes"
	"context"
	"crypto/x509"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// output runs a command of this machine, and returns its output.
func output(tb testing.TB, name string, args ...string) string {
	tb.Helper()
	text, err := run(exec.CommandContext(tb.Context(), name, args...))
	if err != nil {
		tb.Fatal(err)
	}
	return text
}

func run(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// tools are the commands that these tests run besides.
var tools = []string{"dpkg", "dpkg-deb", "rpm", "busybox", "skopeo", "crun", "openssl", "curl", "nsenter", "unshare", "chroot", "systemd-analyze", "systemd-nspawn", "setpriv", "pgrep", "capsh"}

// require skips a test where a tool is missing. In CI, where nothing may be missing, it fails the test.
func require(tb testing.TB) {
	tb.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		const remedy = "the command %s is missing: scripts/package-tools.sh"
		if os.Getenv("CI") != "" {
			tb.Fatalf(remedy, tool)
		}
		tb.Skipf(remedy, tool)
	}
}

// release is one version of the packages.
type release struct{ version, deb, rpm, image string }

// releases are that of this tree, and a later one with the same content.
type releases struct{ now, next release }

// packages returns the packages, which it builds once per test process.
func packages(tb testing.TB) releases {
	tb.Helper()
	require(tb)
	r, err := build()
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

var build = sync.OnceValues(func() (r releases, err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return r, err
	}
	work := filepath.Join(root, ".cache", "packaging")
	bin, dist, later := filepath.Join(work, "bin"), filepath.Join(work, "dist"), filepath.Join(work, "next")
	if err := errors.Join(os.RemoveAll(dist), os.RemoveAll(later)); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", "-C", root, "packages", "BIN="+bin, "DIST="+dist)
	// Variables of a make above this one are not for this one.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") }), "LC_ALL=C")
	if _, err := run(cmd); err != nil {
		return r, err
	}
	if r.now, err = find(dist); err != nil {
		return r, err
	}
	cmd = exec.CommandContext(ctx, filepath.Join(root, "scripts", "packages.sh"), bin, later, r.now.version+".1", "deb", "rpm")
	cmd.Env = append(os.Environ(), "PACKAGE_FAST=1")
	if _, err := run(cmd); err != nil {
		return r, err
	}
	r.next, err = find(later)
	return r, err
})

// find returns the release in a folder, which may lack some formats.
func find(dist string) (r release, err error) {
	for pattern, file := range map[string]*string{"*.deb": &r.deb, "*.rpm": &r.rpm, "*.oci.tar": &r.image} {
		names, err := filepath.Glob(filepath.Join(dist, pattern))
		if err != nil || len(names) > 1 {
			return r, fmt.Errorf("%s in %s: %v, %v", pattern, dist, names, err)
		}
		*file = strings.Join(names, "")
	}
	text, err := run(exec.Command("dpkg-deb", "-f", r.deb, "Version"))
	r.version = strings.TrimSpace(text)
	return r, err
}

// format has the properties of one format of packages.
type format struct {
	name     string
	file     func(release) string
	list     func(file string) []string // a command that lists the owner and name of each file
	owner    string                     // beginning of each line, after the mode
	describe func(file string) []string
	tree     []string // folders that the package manager needs in a bare root
	install  func(root, file string) []string
	remove   func(root string) []string
	own      string // a file that only this format has
}

var formats = []format{
	{
		name: "deb", file: func(r release) string { return r.deb }, owner: "root/root",
		list:     func(file string) []string { return []string{"dpkg-deb", "-c", file} },
		describe: func(file string) []string { return []string{"dpkg-deb", "-I", file} },
		tree:     []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"},
		install: func(root, file string) []string {
			return []string{"dpkg", "--root=" + root, "--force-unsafe-io", "-i", file}
		},
		remove: func(root string) []string { return []string{"dpkg", "--root=" + root, "-r", "forebay"} },
		own:    "/usr/share/zsh/vendor-completions/_bbctl",
	},
	{
		// The bare root has a shell that no package brought, hence nodeps.
		name: "rpm", file: func(r release) string { return r.rpm }, owner: "root root",
		list: func(file string) []string {
			return []string{"rpm", "-qp", "--qf", "[- %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]", file}
		},
		describe: func(file string) []string { return []string{"rpm", "-qpi", file} },
		tree:     []string{"var/lib/rpm", "var/tmp"},
		install:  func(root, file string) []string { return []string{"rpm", "--root", root, "-U", "--nodeps", file} },
		remove:   func(root string) []string { return []string{"rpm", "--root", root, "-e", "--nodeps", "forebay"} },
		own:      "/usr/share/zsh/site-functions/_bbctl",
	},
}

// modes are the files of both formats.
var modes = map[string]fs.FileMode{
	"/usr/bin/bbd": 0o755, "/usr/bin/bbctl": 0o755, "/usr/bin/bbmount": 0o755,
	"/etc/forebay": fs.ModeDir | 0o755, "/etc/forebay/bbd.yaml": 0o644,
	"/usr/sbin/mount.forebay":                         fs.ModeSymlink | 0o777,
	"/usr/lib/systemd/system/forebay-bbd.service":     0o644,
	"/usr/lib/systemd/system/forebay-mount@.service":  0o644,
	"/usr/share/man/man1/bbctl.1.gz":                  0o644,
	"/usr/share/man/man1/bbctl-stage-in.1.gz":         0o644,
	"/usr/share/bash-completion/completions/bbctl":    0o644,
	"/usr/share/fish/vendor_completions.d/bbctl.fish": 0o644,
	"/usr/share/doc/forebay/bbd.yaml":                 0o644,
	"/usr/share/doc/forebay/alerts.yaml":              0o644,
	"/usr/share/doc/forebay/grafana.json":             0o644,
	"/usr/share/doc/forebay/copyright":                0o644,
}

// TestPackages: each format is installed, starts, is upgraded beside a running daemon, and is
// removed. The configuration that was changed, and bytes in memory, outlive the upgrade.
func TestPackages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	built := packages(t)
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.bare(f.tree)
			listed(t, f, f.file(built.now), built.now.version)
			do := func(command []string) { output(t, command[0], command[1:]...) }

			do(f.install(m.root, f.file(built.now)))
			m.systemctl("daemon-reload\n")
			installed(t, m, f)
			m.run("/usr/bin/bbd", "config", "check", "--config", "/etc/forebay/bbd.yaml")
			config := m.configure()

			unit := readUnit(t, filepath.Join(m.root, "usr/lib/systemd/system/forebay-bbd.service"))
			d := unit.start(m)
			m.use("before")
			do(f.install(m.root, f.file(built.next)))
			m.systemctl("daemon-reload\n")
			if now := m.read("etc/forebay/bbd.yaml"); now != config {
				t.Errorf("the configuration after an upgrade:\n%s\nbefore it:\n%s", now, config)
			}
			m.run("/usr/bin/bbctl", "put", "/etc/forebay/bbd.yaml", "bb://ckpt/dirty")
			d.stop()
			d = unit.start(m)
			if got := m.run("/usr/bin/bbctl", "cat", "bb://ckpt/dirty"); got != config {
				t.Errorf("a file that was in memory is %q after the restart, want %q", got, config)
			}
			m.run("/usr/bin/bbctl", "drain", "ckpt")
			d.stop()

			do(f.remove(m.root))
			m.systemctl("stop forebay-mount@*.service\ndisable --now forebay-bbd.service\ndaemon-reload\n")
			for name, mode := range modes {
				if _, err := os.Lstat(filepath.Join(m.root, name)); err == nil && mode.IsRegular() && name != "/etc/forebay/bbd.yaml" {
					t.Errorf("%s is left after a removal", name)
				}
			}
			if _, err := os.Stat(filepath.Join(m.root, "var/lib/forebay")); err != nil {
				t.Errorf("the daemon's state after a removal: %v", err)
			}
		})
	}
}

// listed checks a package's description.
func listed(t *testing.T, f format, file, version string) {
	list, describe := f.list(file), f.describe(file)
	for line := range strings.Lines(output(t, list[0], list[1:]...)) {
		if _, rest, _ := strings.Cut(line, " "); !strings.HasPrefix(rest, f.owner+" ") {
			t.Errorf("not root's: %s", line)
		}
	}
	about := output(t, describe[0], describe[1:]...)
	if !strings.Contains(about, version) || !strings.Contains(about, "burst buffer for checkpoints and results") {
		t.Errorf("version %s or its summary is not in:\n%s", version, about)
	}
}

// installed checks the files in the root.
func installed(t *testing.T, m *machine, f format) {
	want := map[string]fs.FileMode{f.own: 0o644}
	for name, mode := range modes {
		want[name] = mode
	}
	for name, mode := range want {
		info, err := os.Lstat(filepath.Join(m.root, name))
		if err != nil {
			t.Error(err)
		} else if info.Mode() != mode {
			t.Errorf("%s: mode %v, want %v", name, info.Mode(), mode)
		}
	}
	for _, name := range []string{"bbd", "bbctl", "bbmount"} {
		file, err := elf.Open(filepath.Join(m.root, "usr/bin", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range file.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("%s is not static", name)
			}
		}
		file.Close()
	}
}

// TestImage: skopeo reads the archive and checks its digests. The root has certificates. The entry
// point serves in it.
func TestImage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("daemons are processes that the race detector does not see")
	}
	built, m := packages(t), newMachine(t)
	config := unpack(t, built.now.image, m.root)
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != built.now.version {
		t.Errorf("the image's version is %s, want %s", got, built.now.version)
	}
	m.mount()
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(m.read("etc/ssl/certs/ca-certificates.crt"))) {
		t.Error("the image has no certificate authorities")
	}
	d := m.start(append(config.Config.Entrypoint, config.Config.Cmd...), config.Config.Env)
	m.use("image")
	d.stop()
	m.run("/usr/bin/bbmount", "--version")
}

// imageConfig is the part of an image's configuration that the tests read.
type imageConfig struct {
	Config struct {
		Entrypoint, Cmd, Env []string
		Labels               map[string]string
	}
}

// unpack unpacks an image archive into a folder, and returns its configuration.
func unpack(t *testing.T, archive, dir string) (config imageConfig) {
	t.Helper()
	unpacked := t.TempDir()
	output(t, "skopeo", "copy", "--quiet", "--insecure-policy", "oci-archive:"+archive, "dir:"+unpacked)
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	decode(t, filepath.Join(unpacked, "manifest.json"), &manifest)
	decode(t, filepath.Join(unpacked, strings.TrimPrefix(manifest.Config.Digest, "sha256:")), &config)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, layer := range manifest.Layers {
		output(t, "tar", "-C", dir, "-xzpf", filepath.Join(unpacked, strings.TrimPrefix(layer.Digest, "sha256:")))
	}
	return config
}

func decode(t *testing.T, file string, v any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSameBytes: the packages of one commit are the same whenever they are built. Small scripts
// stand for the binaries, which are the compiler's matter.
func TestSameBytes(t *testing.T) {
	t.Parallel()
	require(t)
	bin := t.TempDir()
	const script = `#!/bin/sh
case "$1" in
man) mkdir -p "$2" && echo "$SOURCE_DATE_EPOCH" >"$2/bbctl.1" ;;
*) echo "$@" ;;
esac
`
	for _, name := range []string{"bbd", "bbctl", "bbmount"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pack := func() release {
		dist := t.TempDir()
		output(t, "../scripts/packages.sh", bin, dist, "1.2.3~rc.1+4.gabcdef")
		r, err := find(dist)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, other := pack(), pack()
	for a, b := range map[string]string{one.deb: other.deb, one.rpm: other.rpm, one.image: other.image} {
		if a, b := output(t, "sha256sum", a), output(t, "sha256sum", b); a[:64] != b[:64] {
			t.Errorf("these differ:\n%s%s", a, b)
		}
	}
}

// TestVersions: both package managers put versions in the order of commits.
func TestVersions(t *testing.T) {
	t.Parallel()
	require(t)
	var versions []string
	for _, described := range [][2]string{
		{"abc1234", "99"},
		{"0123456", "100"},
		{"v0.9.0-rc.1", "101"},
		{"v0.9.0-rc.1-2-gabc1234", "103"},
		{"v0.9.0", "104"},
		{"v0.9.0-9-gabc1234", "113"},
		{"v0.9.0-10-g0123456", "114"},
		{"v0.9.0-10-g0123456-dirty", "114"},
		{"v0.10.0", "115"},
		{"v1.0.0", "116"},
	} {
		versions = append(versions, strings.TrimSpace(output(t, "../scripts/package-version.sh", described[0], described[1])))
	}
	for i, v := range versions[1:] {
		output(t, "dpkg", "--compare-versions", versions[i], "lt", v)
		if got := output(t, "rpm", "--eval", fmt.Sprintf(`%%{lua:print(rpm.vercmp("%s", "%s"))}`, versions[i], v)); strings.TrimSpace(got) != "-1" {
			t.Errorf("rpm compares %s with %s as %s", versions[i], v, got)
		}
	}
}
