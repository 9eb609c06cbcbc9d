//go:build suites

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestParallelHDF5: ranks of an MPI program on two hosts write one file through the mounts of their hosts,
// by MPI-IO and by HDF5, and each reads all of it. Chunked data sets are left out there: ranks of both hosts
// write their index, one over the other, which needs an order of writes that mounts do not keep.
func TestParallelHDF5(t *testing.T) {
	work := t.TempDir()
	binary := filepath.Join(work, "shared")
	program(t, work, "h5pcc.mpich", "-O1", "-o", binary, absolute(t, "testdata/shared.c"))
	t.Run("local", func(t *testing.T) {
		t.Log(program(t, work, "mpiexec.mpich", "-n", "4", binary, t.TempDir(), "chunked"))
	})
	t.Run("mount", func(t *testing.T) {
		hosts := newMounts(t, 2)
		launcher := filepath.Join(work, "launch")
		check(t, os.WriteFile(launcher, []byte(launch(hosts)), 0o700))
		cmd := hosts[0].Host.Command("mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", launcher,
			"-hosts", fmt.Sprintf("%v:2,%v:2", hosts[0].Host.Addr, hosts[1].Host.Addr),
			"-n", "2", binary, hosts[0].dir, ":", "-n", "2", binary, hosts[1].dir)
		cmd.Env = append(os.Environ(), "SIEVE=disable")
		text, err := cmd.CombinedOutput()
		t.Logf("%s", text)
		check(t, err)
	})
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
