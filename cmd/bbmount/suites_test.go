//go:build suites

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The programs of scripts/mount-suites.sh, on a mount and on a directory of the local file system. They run one after
// the other. `make test-mount` prints their results, which docs/mount.md has. killed_suites_test.go runs them, and more, while the daemon is
// killed.

// place is a directory of a file system where a user runs programs.
type place struct {
	dir  string
	user int // 0: root
}

// in is a directory in the place.
func (at place) in(name string) place { return place{filepath.Join(at.dir, name), at.user} }

// run runs a program there, and fails the test if it fails.
func (at place) run(t *testing.T, args ...string) string {
	t.Helper()
	text, err := at.try(args...)
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return text
}

func (at place) try(args ...string) (string, error) {
	cmd := as(at.user, inDir(at.dir, args...).Args...) // the user enters, since root may not enter another user's mount
	cmd.Env = slices.Concat(os.Environ(), gitEnv)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// apart returns a folder of the place's user on the local file system.
func (at place) apart(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Chmod(filepath.Dir(dir), 0o755))
	check(t, os.Chown(dir, at.user, at.user))
	return place{dir, at.user}
}

// tree is tree, of the place's user.
func (at place) tree(t *testing.T, dirs, files int) place {
	t.Helper()
	root := tree(t, dirs, files)
	check(t, os.Chmod(filepath.Dir(root), 0o755))
	if at.user != 0 {
		id := fmt.Sprint(at.user)
		place{dir: root}.run(t, "chown", "-R", id+":"+id, ".")
	}
	return place{root, at.user}
}

// both runs a suite on the local file system, where it shows what the suite itself fails here, and on a mount.
func both(t *testing.T, run func(t *testing.T, at place)) {
	t.Run("local", func(t *testing.T) { run(t, local(t)) })
	t.Run("mount", func(t *testing.T) { run(t, place{dir: newMount(t, "--memory", "512MiB").dir}) })
}

// local returns a folder of the local file system that all users may reach.
func local(t *testing.T) place {
	t.Helper()
	dir, err := os.MkdirTemp("", "suite")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o755))
	return place{dir: dir}
}

func TestFsx(t *testing.T)       { both(t, fsx) }
func TestFio(t *testing.T)       { both(t, fio) }
func TestDbench(t *testing.T)    { both(t, dbench) }
func TestRsync(t *testing.T)     { both(t, rsync) }
func TestStress(t *testing.T)    { both(t, stress) }
func TestPjdfstest(t *testing.T) { both(t, pjdfstest) }

// fsx: random reads, writes, mappings, truncations and punched holes of one file, compared with a model.
func fsx(t *testing.T, at place) {
	work := at.apart(t)
	config := filepath.Join(work.dir, "fsx.toml")
	check(t, os.WriteFile(config, []byte("[weights]\nread = 10\nwrite = 10\nmapread = 10\nmapwrite = 10\ntruncate = 10\nclose_open = 1\nfsync = 1\nfdatasync = 1\ninvalidate = 1\npunch_hole = 1\nposix_fallocate = 1\n"), 0o644))
	for seed := range 4 {
		at.run(t, "fsx", "-f", config, "-N", "5000", "-S", fmt.Sprint(seed+1), "-P", work.dir, filepath.Join(at.dir, "fsx"))
	}
}

// fio writes files in random order, by calls and by mappings, and reads them back against their checksums.
func fio(t *testing.T, at place) {
	for _, job := range [][]string{
		{"--name=calls", "--ioengine=psync", "--rw=randwrite", "--bsrange=512-64k"},
		{"--name=vectors", "--ioengine=pvsync", "--rw=write", "--bs=1M", "--end_fsync=1"},
		{"--name=mapped", "--ioengine=mmap", "--rw=randwrite", "--bs=4k"},
		{"--name=mixed", "--ioengine=psync", "--rw=randrw", "--bs=4k"},
	} {
		at.run(t, slices.Concat([]string{"fio"}, job, []string{
			"--directory=" + at.dir, "--size=16M", "--numjobs=2", "--verify=crc32c", "--verify_fatal=1",
			"--do_verify=1", "--randseed=7", "--group_reporting", "--output-format=terse",
		})...)
	}
}

// dbench runs the calls of a file server's clients.
func dbench(t *testing.T, at place) {
	text := at.run(t, "dbench", "-t", "10", "-D", at.dir, "4")
	t.Log(regexp.MustCompile(`Throughput.*`).FindString(text))
}

// rsync copies a tree with all attributes, changes it, and copies it again.
func rsync(t *testing.T, at place) {
	source, to := at.tree(t, 10, 20), at.in("copy")
	source.run(t, "ln", "-s", "d0", "link")
	source.run(t, "setfattr", "-n", "user.origin", "-v", "tree", "d0", "d1/sub-1/file 1")
	for range 2 {
		source.run(t, "rsync", "-aX", "--delete", "--itemize-changes", source.dir+"/", to.dir+"/")
		if left := source.run(t, "rsync", "-aXcn", "--delete", "--itemize-changes", source.dir+"/", to.dir+"/"); left != "" {
			t.Errorf("rsync finds differences after a copy:\n%s", left)
		}
		source.run(t, "diff", "-r", "--no-dereference", source.dir, to.dir)
		to.run(t, "sh", "-c", `rm -r d0 && echo changed >"d1/sub-1/file 1" && touch new`)
	}
}

// stressors of stress-ng's class filesystem that work on a mount of a file system of one's own.
var stressors = []string{
	"access", "chdir", "chmod", "copy-file", "dentry", "dir", "dirdeep", "dirmany", "fallocate", "filename", "flock", "fpunch", "fstat",
	"getdent", "hdd", "iomix", "lease", "locka", "lockf", "lockofd", "open", "rename", "seek", "symlink", "sync-file", "touch", "utime",
	"verity", "xattr",
}

// stress runs stressors that check their results.
func stress(t *testing.T, at place) {
	for _, name := range stressors {
		t.Run(name, func(t *testing.T) {
			in := at.in(name)
			at.run(t, "mkdir", name)
			text := in.run(t, "stress-ng", "--"+name, "2", "-t", "2s", "--verify", "--temp-path", in.dir, "--hdd-bytes", "16m", "--iomix-bytes", "16m", "--fallocate-bytes", "8m")
			for line := range strings.Lines(text) {
				if strings.Contains(line, "fail:") || strings.Contains(line, "error:") {
					t.Error(strings.TrimSpace(line))
				}
			}
		})
	}
}

// exceptions are the tests of pjdfstest that fail on a mount, as patterns, by the reasons in docs/mount.md.
var exceptions = map[string]string{
	"devices are refused":                                                  `::(block|char)$`,
	"hard links are refused":                                               `^(link::|rename::(preserve_metadata|to_multiply_linked)::|unlink::(remove_type|unchanged_ctime_failed|update_ctime_success)::)`,
	"setuid, setgid and sticky bits are refused":                           `::(uid_gid_eq_euid_egid|clear_isgid_bit)$`,
	"access and change times are not kept":                                 `^(chmod::update_ctime|utimensat::(changes_timestamps|follow_symlink|subsecond|utime_omit|y2038))`,
	"changes of entries do not change their directory's time":              `(changed_time_fields_success|changed_parent_time_success|changed_time_parent_success|update_mtime_ctime_success_folder::\w+)$`,
	"directories have one link, whatever directories they hold themselves": `^rename::updates_link_parent$`,
}

// pjdfstest runs the suite of system calls, as root, with users that the machine has. Some of its tests fail on a mount.
func pjdfstest(t *testing.T, at place) {
	config := filepath.Join(t.TempDir(), "pjdfstest.toml")
	check(t, os.WriteFile(config, []byte(`[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
`), 0o600))
	var fs unix.Statfs_t
	check(t, unix.Statfs(at.dir, &fs))
	mounted := fs.Type == unix.FUSE_SUPER_MAGIC
	check(t, os.Mkdir(filepath.Join(at.dir, "at"), 0o777))
	check(t, os.Chmod(filepath.Join(at.dir, "at"), 0o777))
	text, err := at.in("at").try("pjdfstest", "-c", config, "-p", filepath.Join(at.dir, "at"))
	summary := regexp.MustCompile(`Summary: .*`).FindString(text)
	if t.Log(summary); summary == "" {
		t.Fatalf("%v: %s", err, text)
	}
	met := map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) != 2 || words[1] != "FAILED" {
			continue
		}
		reason := exception(words[0])
		if met[reason] = true; reason == "" || !mounted {
			t.Errorf("%s fails:\n%s", words[0], text)
		}
	}
	for reason := range exceptions {
		if mounted && !met[reason] {
			t.Errorf("no test fails any more since %s", reason)
		}
	}
}

// exception returns why a test of pjdfstest may fail on a mount, or "".
func exception(name string) string {
	for reason, pattern := range exceptions {
		if regexp.MustCompile(pattern).MatchString(name) {
			return reason
		}
	}
	return ""
}
