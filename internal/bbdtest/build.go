package bbdtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"forebay/internal/sourcetest"
	"forebay/internal/wire"
)

// binary is one build of bbd.
type binary struct {
	sync.Once
	path string
	err  error
}

func (b *binary) get(tb testing.TB, compile func() (string, error)) string {
	tb.Helper()
	b.Do(func() { b.path, b.err = compile() })
	if b.err != nil {
		tb.Fatal(b.err)
	}
	return b.path
}

var plain, bbctl, bbmount binary

// Binary returns the path of the bbd binary, which it builds once per test process.
func Binary(tb testing.TB) string {
	tb.Helper()
	return plain.get(tb, func() (string, error) { return compile("bbd") })
}

// Bbctl returns the path of the bbctl binary, which it builds once per test process.
func Bbctl(tb testing.TB) string {
	tb.Helper()
	return bbctl.get(tb, func() (string, error) { return compilePackage("bbctl", "./cmd/bbctl") })
}

// Bbmount returns the path of the bbmount binary, which it builds once per test process.
func Bbmount(tb testing.TB) string {
	tb.Helper()
	return bbmount.get(tb, func() (string, error) { return compilePackage("bbmount", "./cmd/bbmount") })
}

var (
	clockedMu sync.Mutex
	clocked   = map[int64]*binary{} // by seconds
)

// clockBinary is bbd with a package time whose time.Now is ahead. No kernel gives a process another
// wall clock (time namespaces, time_namespaces(7), leave CLOCK_REALTIME out), and a static binary
// loads no library that could replace it. So everything in the process has the wrong time, the
// libraries too, and the product has no switch for it.
//
// The other packages are those of bbd. The changed package takes the place of the library's when
// all are linked. A build with an overlay would compile everything again that imports time, which
// is nearly everything.
func clockBinary(tb testing.TB, ahead time.Duration) string {
	tb.Helper()
	seconds := int64(ahead / time.Second)
	clockedMu.Lock()
	b := clocked[seconds]
	if b == nil {
		b = new(binary)
		clocked[seconds] = b
	}
	clockedMu.Unlock()
	return b.get(tb, func() (string, error) {
		changed, err := clockOverlay(seconds)
		if err != nil {
			return "", err
		}
		return compileLinked(fmt.Sprintf("bbd-clock%+d", seconds), "time", changed)
	})
}

// readClock is where time.Now of the standard library reads the clock.
const readClock = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()"

// clockOverlay returns the new text of a file of package time. The package's exports have to stay,
// its functions' lines and the number of its objects, too. The other packages were compiled with it.
func clockOverlay(seconds int64) (map[string]string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(string(bytes.TrimSpace(out)), "src", "time", "time.go")
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	head, rest, found := strings.Cut(string(source), readClock)
	if !found {
		return nil, fmt.Errorf("%s has no %q any more: clockOverlay has to learn how time.Now reads the clock", file, readClock)
	}
	return map[string]string{file: fmt.Sprintf("%s%s; sec += %d%s", head, readClock, seconds, rest)}, nil
}

var (
	otherMu sync.Mutex
	other   = map[wire.Versions]*binary{}
)

// versionBinary is bbd built to support other versions of the control protocol, and with no newer
// records than a release of that time. So its whole behaviour is tested beside others, and the
// product has no switch for it.
func versionBinary(tb testing.TB, v wire.Versions) string {
	tb.Helper()
	otherMu.Lock()
	b := other[v]
	if b == nil {
		b = new(binary)
		other[v] = b
	}
	otherMu.Unlock()
	return b.get(tb, func() (string, error) {
		changed, err := versionOverlay(v)
		if err != nil {
			return "", err
		}
		return compileChanged(fmt.Sprintf("bbd-speaks-%d-%d", v.Min, v.Max), changed)
	})
}

// versionOverlay returns the new text of the files that declare versions.
func versionOverlay(v wire.Versions) (map[string]string, error) {
	root, err := sourcetest.Root()
	if err != nil {
		return nil, err
	}
	type edit struct{ file, name, value string }
	edits := []edit{
		{"internal/wire/version.go", "MinVersion", fmt.Sprint(v.Min)},
		{"internal/wire/version.go", "MaxVersion", fmt.Sprint(v.Max)},
	}
	if v.Max < wire.VersionReplicas {
		edits = append(edits, edit{"meta/kv/codec.go", "NewestFormat", "FormatFirst"})
	}
	changed := map[string]string{}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		source := changed[path]
		if source == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			source = string(text)
		}
		declared := regexp.MustCompile(`(?m)^(\t` + e.name + ` +=) .*$`)
		if len(declared.FindAllString(source, -1)) != 1 {
			return nil, fmt.Errorf("%s does not declare %s any more: versionOverlay has to learn who does", path, e.name)
		}
		changed[path] = declared.ReplaceAllString(source, "$1 "+e.value)
	}
	return changed, nil
}

// compileChanged is compile with other texts of some files (go build -overlay).
func compileChanged(name string, changed map[string]string) (string, error) {
	dir, err := os.MkdirTemp("", "bbdtest-"+name)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, changed)
	if err != nil {
		return "", err
	}
	return compile(name, "-overlay", overlay)
}

// writeOverlay writes the other texts of some files into a folder, and returns the file that names
// them to go build.
func writeOverlay(dir string, changed map[string]string) (string, error) {
	replace := map[string]string{}
	for path, text := range changed {
		file := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[path] = file
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// linkTool runs a tool of Go's, and the linker with another archive of one package. It names
// itself as another linker, or Go would find the binary linked before the archive changed.
const linkTool = `#!/bin/sh
tool=$1
shift
case $tool in
*/link)
	case $1 in
	-V=full) exec printf '%%s changed=%[3]s\n' "$("$tool" "$1")" ;;
	esac
	for arg; do
		case $arg in
		*/importcfg.link) sed -i 's|^packagefile %[1]s=.*|packagefile %[1]s=%[2]s|' "$arg" ;;
		esac
	done
	;;
esac
exec "$tool" "$@"
`

// compileLinked is compileChanged of one package alone. All others are linked as they are. The
// package's exports must be unchanged, which the linker checks. The names of its files are part of
// that, so the overlay's are trimmed.
func compileLinked(name, pkg string, changed map[string]string) (string, error) {
	root, err := sourcetest.Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "bbdtest-"+name)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, changed)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "changed.a")
	build := exec.Command("go", "build", "-trimpath", "-overlay", overlay, "-o", archive, pkg)
	build.Dir = root
	build.Env = append(os.Environ(), buildEnv)
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building package %s: %w\n%s", pkg, err, text)
	}
	tool := filepath.Join(dir, "tool")
	id := fmt.Sprintf("%016x", crc64.Checksum(fmt.Append(nil, changed), crc64.MakeTable(crc64.ECMA)))
	if err := os.WriteFile(tool, fmt.Appendf(nil, linkTool, pkg, archive, id), 0o700); err != nil {
		return "", err
	}
	return compile(name, "-trimpath", "-toolexec", tool)
}

func compile(name string, args ...string) (string, error) {
	return compilePackage(name, "./cmd/bbd", args...)
}

func compilePackage(name, pkg string, args ...string) (string, error) {
	root, err := sourcetest.Root()
	if err != nil {
		return "", err
	}
	return compileAt(root, root, name, pkg, args...)
}

// buildTimeout is for a build of everything, with an empty cache, on a busy machine of two cores.
const buildTimeout = 20 * time.Minute

// compileAt is compilePackage of the source in a folder, for the tests of the module at root.
func compileAt(source, root, name, pkg string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	path := filepath.Join(root, ".cache", "test", name+suffix)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	// Packages are tested in parallel. One of them builds, the others find it built.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	// Without the debugger's data, which is half of the linker's work.
	build := []string{"build", "-ldflags", "-s -w", "-o", path}
	cmd := exec.CommandContext(ctx, "go", slices.Concat(build, buildArgs, args, []string{pkg})...)
	cmd.Dir = source
	cmd.Env = append(os.Environ(), buildEnv)
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, text)
	}
	return path, nil
}

var (
	releaseMu sync.Mutex
	releases  = map[string]*binary{}
)

// releaseBinary is bbd as it was at a commit of this repository's history. The test fails where the
// history is not there. Files of an older release cannot be made up.
func releaseBinary(tb testing.TB, commit string) string {
	tb.Helper()
	releaseMu.Lock()
	b := releases[commit]
	if b == nil {
		b = new(binary)
		releases[commit] = b
	}
	releaseMu.Unlock()
	return b.get(tb, func() (string, error) {
		root, err := sourcetest.Root()
		if err != nil {
			return "", err
		}
		dir, err := os.MkdirTemp("", "bbdtest-release")
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(dir)
		unpack := exec.Command("sh", "-c", `set -e; git -C "$1" archive --format=tar -o "$2/source.tar" "$3"; tar -C "$2" -xf "$2/source.tar"`, "sh", root, dir, commit)
		if text, err := unpack.CombinedOutput(); err != nil {
			return "", fmt.Errorf("the source of commit %s: %w\n%s", commit, err, text)
		}
		return compileAt(dir, root, "bbd-"+commit, "./cmd/bbd")
	})
}

// Edit is a change of this release's source, for a daemon without one of its guards.
type Edit struct {
	File     string // in the repository
	Old, New string // Old is there once
}

var (
	editedMu sync.Mutex
	edited   = map[string]*binary{}
)

// editedBinary is bbd built with changes of its source.
func editedBinary(tb testing.TB, edits []Edit) string {
	tb.Helper()
	name := fmt.Sprintf("bbd-edited-%016x", crc64.Checksum(fmt.Append(nil, edits), crc64.MakeTable(crc64.ECMA)))
	editedMu.Lock()
	b := edited[name]
	if b == nil {
		b = new(binary)
		edited[name] = b
	}
	editedMu.Unlock()
	return b.get(tb, func() (string, error) {
		root, err := sourcetest.Root()
		if err != nil {
			return "", err
		}
		changed := map[string]string{}
		for _, e := range edits {
			path := filepath.Join(root, e.File)
			source := changed[path]
			if source == "" {
				text, err := os.ReadFile(path)
				if err != nil {
					return "", err
				}
				source = string(text)
			}
			if strings.Count(source, e.Old) != 1 {
				return "", fmt.Errorf("%s has %q %d times: the edit needs another place", path, e.Old, strings.Count(source, e.Old))
			}
			changed[path] = strings.Replace(source, e.Old, e.New, 1)
		}
		return compileChanged(name, changed)
	})
}
