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
)

// The programs of scripts/mount-suites.sh, on a mount and on a directory of the local file system. They run one after
// the other. `make test-mount` prints their results, which docs/mount.md has.

// both runs a suite on the local file system, where it shows what the suite itself fails here, and on a mount.
func both(t *testing.T, run func(t *testing.T, dir string)) {
	t.Run("local", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "suite") // which all users may reach
		check(t, err)
		t.Cleanup(func() { os.RemoveAll(dir) })
		check(t, os.Chmod(dir, 0o755))
		run(t, dir)
	})
	t.Run("mount", func(t *testing.T) { run(t, newMount(t, "--memory", "512MiB").dir) })
}

// TestFsx: random reads, writes, mappings, truncations and punched holes of one file, compared with a model.
func TestFsx(t *testing.T) {
	config := filepath.Join(t.TempDir(), "fsx.toml")
	check(t, os.WriteFile(config, []byte("[weights]\nread = 10\nwrite = 10\nmapread = 10\nmapwrite = 10\ntruncate = 10\nclose_open = 1\nfsync = 1\nfdatasync = 1\ninvalidate = 1\npunch_hole = 1\nposix_fallocate = 1\n"), 0o600))
	both(t, func(t *testing.T, dir string) {
		for seed := range 4 {
			program(t, dir, "fsx", "-f", config, "-N", "5000", "-S", fmt.Sprint(seed+1), "-P", t.TempDir(), filepath.Join(dir, "fsx"))
		}
	})
}

// TestFio writes files in random order, by calls and by mappings, and reads them back against their checksums.
func TestFio(t *testing.T) {
	both(t, func(t *testing.T, dir string) {
		for _, job := range [][]string{
			{"--name=calls", "--ioengine=psync", "--rw=randwrite", "--bsrange=512-64k"},
			{"--name=vectors", "--ioengine=pvsync", "--rw=write", "--bs=1M", "--end_fsync=1"},
			{"--name=mapped", "--ioengine=mmap", "--rw=randwrite", "--bs=4k"},
			{"--name=mixed", "--ioengine=psync", "--rw=randrw", "--bs=4k"},
		} {
			program(t, dir, slices.Concat([]string{"fio"}, job, []string{
				"--directory=" + dir, "--size=16M", "--numjobs=2", "--verify=crc32c", "--verify_fatal=1",
				"--do_verify=1", "--randseed=7", "--group_reporting", "--output-format=terse",
			})...)
		}
	})
}

// TestDbench runs the calls of a file server's clients.
func TestDbench(t *testing.T) {
	both(t, func(t *testing.T, dir string) {
		text := program(t, dir, "dbench", "-t", "10", "-D", dir, "4")
		t.Log(regexp.MustCompile(`Throughput.*`).FindString(text))
	})
}

// TestRsync copies a tree with all attributes, changes it, and copies it again.
func TestRsync(t *testing.T) {
	source := tree(t, 10, 20)
	check(t, os.Symlink("d0", filepath.Join(source, "link")))
	program(t, source, "setfattr", "-n", "user.origin", "-v", "tree", "d0", "d1/sub-1/file 3")
	both(t, func(t *testing.T, dir string) {
		to := filepath.Join(dir, "copy")
		for range 2 {
			program(t, source, "rsync", "-aX", "--delete", "--itemize-changes", source+"/", to+"/")
			if left := program(t, source, "rsync", "-aXcn", "--delete", "--itemize-changes", source+"/", to+"/"); left != "" {
				t.Errorf("rsync finds differences after a copy:\n%s", left)
			}
			program(t, source, "diff", "-r", "--no-dereference", source, to)
			program(t, to, "sh", "-c", `rm -r d0 && echo changed >"d1/sub-1/file 3" && touch new`)
		}
	})
}

// stressors of stress-ng's class filesystem that work on a mount of a file system of one's own.
var stressors = []string{
	"access", "chdir", "chmod", "copy-file", "dentry", "dir", "dirdeep", "dirmany", "fallocate", "filename", "flock", "fpunch", "fstat",
	"getdent", "hdd", "iomix", "lease", "locka", "lockf", "lockofd", "open", "rename", "seek", "symlink", "sync-file", "touch", "utime",
	"verity", "xattr",
}

// TestStress runs stressors that check their results.
func TestStress(t *testing.T) {
	both(t, func(t *testing.T, dir string) {
		for _, name := range stressors {
			t.Run(name, func(t *testing.T) {
				at := filepath.Join(dir, name)
				check(t, os.Mkdir(at, 0o777))
				text := program(t, at, "stress-ng", "--"+name, "2", "-t", "2s", "--verify", "--temp-path", at, "--hdd-bytes", "16m", "--iomix-bytes", "16m", "--fallocate-bytes", "8m")
				for line := range strings.Lines(text) {
					if strings.Contains(line, "fail:") || strings.Contains(line, "error:") {
						t.Error(strings.TrimSpace(line))
					}
				}
			})
		}
	})
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

// TestPjdfstest runs the suite of system calls, as root, with users that the machine has.
func TestPjdfstest(t *testing.T) {
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
	both(t, func(t *testing.T, dir string) {
		at := filepath.Join(dir, "at")
		check(t, os.Mkdir(at, 0o777))
		check(t, os.Chmod(at, 0o777))
		text, err := inDir(at, "pjdfstest", "-c", config, "-p", at).CombinedOutput()
		summary := regexp.MustCompile(`Summary: .*`).FindString(string(text))
		if t.Log(summary); summary == "" {
			t.Fatalf("%v: %s", err, text)
		}
		met := map[string]bool{}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) != 2 || words[1] != "FAILED" {
				continue
			}
			reason := exception(words[0])
			if met[reason] = true; reason == "" || strings.HasSuffix(t.Name(), "local") {
				t.Errorf("%s fails:\n%s", words[0], text)
			}
		}
		for reason := range exceptions {
			if !met[reason] && strings.HasSuffix(t.Name(), "mount") {
				t.Errorf("no test fails any more since %s", reason)
			}
		}
	})
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
