//go:build suites

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDocker is TestContainers with docker. Its daemon has mounts of its own, which follow the machine's, and no network.
func TestDocker(t *testing.T) {
	needPrograms(t, "dockerd", "docker", "busybox", "unshare")
	containers(t, startDocker)
}

// startDocker starts a daemon with an image of busybox until the test ends, and returns a function that starts containers.
func startDocker(t *testing.T) starter {
	t.Helper()
	dir, err := os.MkdirTemp("", "docker") // a unix socket's path is short
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	docker := func(args ...string) *exec.Cmd {
		return exec.Command("docker", append([]string{"--host", "unix://" + filepath.Join(dir, "sock")}, args...)...)
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "slave", "dockerd", "--data-root", filepath.Join(dir, "data"),
		"--exec-root", filepath.Join(dir, "exec"), "--pidfile", filepath.Join(dir, "pid"), "--host", "unix://"+filepath.Join(dir, "sock"),
		"--iptables=false", "--bridge=none", "--storage-driver=vfs")
	var text log
	cmd.Stderr = &text
	check(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if t.Failed() {
			t.Logf("docker's log:\n%s", &text)
		}
	})
	waitFor(t, "docker serves", func() bool { return docker("version").Run() == nil })

	root := t.TempDir()
	check(t, os.Mkdir(filepath.Join(root, "bin"), 0o755))
	busybox, err := exec.LookPath("busybox")
	check(t, err)
	program(t, root, "cp", busybox, "bin/busybox")
	program(t, root, "tar", "-cf", "../image.tar", "bin")
	if text, err := docker("import", filepath.Join(filepath.Dir(root), "image.tar"), "box").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return func(t *testing.T, folder, propagation string) *container {
		return shell(t, docker("run", "--rm", "-i", "--network", "none", "-v", folder+":/bb:"+propagation, "box", "/bin/busybox", "sh"))
	}
}
