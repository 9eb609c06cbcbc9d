//go:build suites

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/client/admin"
)

// TestParallelHDF5: ranks of an MPI program on two hosts write one file through the mounts of their hosts,
// by MPI-IO and by HDF5, and each reads all of it. Chunked data sets need coherent mounts: ranks of both hosts write
// their index, one over the other, in an order that close-to-open does not keep.
func TestParallelHDF5(t *testing.T) {
	work := t.TempDir()
	binary := filepath.Join(work, "shared")
	program(t, work, "h5pcc.mpich", "-O1", "-o", binary, absolute(t, "testdata/shared.c"))
	t.Run("local", func(t *testing.T) {
		t.Log(program(t, work, "mpiexec.mpich", "-n", "4", binary, t.TempDir(), "chunked"))
	})
	for name, args := range map[string][2][]string{"mount": {}, "coherent": {{"--coherent"}, {"chunked"}}} {
		t.Run(name, func(t *testing.T) { parallel(t, binary, args[0], args[1]) })
	}
}

func parallel(t *testing.T, binary string, mount, args []string) {
	hosts := newMountsOf(t, 2, admin.BufferSpec{Name: "b", Mode: 0o777, Backing: "file://" + t.TempDir()}, mount...)
	launcher := filepath.Join(t.TempDir(), "launch")
	check(t, os.WriteFile(launcher, []byte(launch(hosts)), 0o700))
	command := []string{
		"mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", launcher,
		"-hosts", fmt.Sprintf("%v:2,%v:2", hosts[0].Host.Addr, hosts[1].Host.Addr),
	}
	command = append(append(command, "-n", "2", binary, hosts[0].dir), args...)
	command = append(append(command, ":", "-n", "2", binary, hosts[1].dir), args...)
	cmd := hosts[0].Host.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "SIEVE=disable") // locks hold on one node
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)
	check(t, err)
	files, err := filepath.Glob(hosts[0].at("*.h5"))
	check(t, err)
	for _, f := range files {
		dump := program(t, hosts[0].dir, "h5dump", filepath.Base(f))
		if program(t, hosts[1].dir, "h5dump", filepath.Base(f)) != dump {
			t.Errorf("%s: the hosts' h5dumps differ", f)
		}
	}
}

// launch is a script in place of ssh. It starts a command on a host, given by its address.
func launch(hosts []*mounted) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\nhost=$1; shift\ncase $host in\n")
	for _, m := range hosts {
		fmt.Fprintf(&b, "%s) exec %s sh -c \"$*\" ;;\n", m.Host.Addr, strings.Join(m.Host.Command("").Args[:3], " "))
	}
	b.WriteString("esac\nexit 1\n")
	return b.String()
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	check(t, err)
	return path
}
