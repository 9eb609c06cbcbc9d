package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/bbdtest"
)

// A daemon without the right to mount uses the mount of bbd mount. If that is too small for its memory, it does
// not start, rather than lose its content.
func TestMountBefore(t *testing.T) {
	t.Parallel()
	withOwnMounts(t, func(t *testing.T) {
		d := bbdtest.New(t, "--memory-mount", "auto")
		d.Config = smallDaemon
		d.Behind = []string{"setpriv", "--bounding-set=-sys_admin,-setpcap", "--"}
		memory := filepath.Join(d.Dir, "mem")
		if err := os.Mkdir(memory, 0o711); err != nil {
			t.Fatal(err)
		}
		mount(t, "-t", "tmpfs", "-o", "size=1m", "forebay", memory)
		if err := d.TryStart(); err == nil || !strings.Contains(d.Log(), "run bbd mount with the daemon's configuration and flags") {
			t.Fatalf("a mount that is too small: %v", err)
		}
		command := exec.Command(bbdtest.Binary(t), "mount", "--config", filepath.Join(d.Dir, "bbd.yaml"), "--state-dir", d.Dir, "--memory-mount", "require")
		if out, err := command.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("bbd mount: %v\n%s", err, out)
		}
		d.Start()
		if regions, err := filepath.Glob(filepath.Join(memory, "region-*")); err != nil || len(regions) == 0 {
			t.Errorf("no regions are in %s: %v", memory, err)
		}
		d.Stop()
		// Nothing is mounted, and nothing can be.
		if err := unix.Unmount(memory, 0); err != nil {
			t.Fatal(err)
		}
		d.Start()
		if regions, err := filepath.Glob(filepath.Join(d.Memory, "region-*")); err != nil || len(regions) == 0 {
			t.Errorf("no regions are in %s: %v", d.Memory, err)
		}
	})
}
