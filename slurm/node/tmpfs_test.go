package node_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/internal/slurmtest"
	"forebay/slurm/node"
)

// TestPrivateTmp runs jobs of a site whose Slurm gives each job a /tmp and a /dev/shm of its own (job_container/tmpfs). They have
// their mounts, the socket, and regions that lie elsewhere. bbctl doctor finds regions that are hidden from jobs, as those of n2 are. The mount of
// a job ends with it, though the job that came after it has a copy.
func TestPrivateTmp(t *testing.T) {
	if testing.Short() {
		t.Skip("daemons and jobs are processes of their own")
	}
	t.Setenv("TMPDIR", "/var/tmp") // where the cluster's files lie, which jobs have to find
	wrappers := node.Wrappers("@BBCTL@", "/usr/sbin:/usr/bin:/sbin:/bin", []string{"--ready=" + ready.String(), "--mount=" + mountedBelow}, nil)
	memory := t.TempDir()
	if err := unix.Mount("forebay", memory, "tmpfs", 0, "mode=711"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(memory, unix.MNT_DETACH) })
	for dir := memory; dir != "/var/tmp"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	o := slurmtest.Options{
		Conf:   strings.Replace(node.SlurmConf("@DIR@/etc", wrappers, ""), "=Alloc\n", "=Contain\n", 1) + "JobContainerType=job_container/tmpfs\n",
		Files:  map[string]string{"job_container.conf": "AutoBasePath=true\nBasePath=/run/forebay/private\n"},
		OneCPU: true,
		Memory: map[string]string{"n1": filepath.Join(memory, "n1"), "n3": filepath.Join(memory, "n3")},
	}
	for _, w := range wrappers {
		o.Files[w.Name] = w.Text
	}
	s := &site{Cluster: slurmtest.Start(t, o)}
	s.admin = s.dial(t, 0)
	out := s.folder(t, slurmtest.Alice, nil)

	const script = `#BB jobbb type=scratch
#BB stage_out type=directory source=$FOREBAY_DIR/out destination=%s/%%j
set -e
[ -z "$(ls /tmp /dev/shm | grep -v :)" ] # both are the job's own
mkdir $FOREBAY_DIR/out
head -c 3000000 /dev/urandom >/tmp/data
cp /tmp/data $FOREBAY_DIR/out/mounted
bbctl put /tmp/data $BB_JOB_STRIPED/out/put
bbctl get bb://$FOREBAY_BUFFER/out/mounted /tmp/back
cmp /tmp/data /tmp/back
cmp /tmp/data $FOREBAY_DIR/out/put
cp /proc/self/mountinfo %[1]s/info.%[2]s
touch %[1]s/runs.%[2]s
until [ -e %[1]s/end.%[2]s ]; do sleep 0.1; done
`
	run := func(name string) (job, dir string) {
		job = s.Submit(slurmtest.Alice, fmt.Sprintf(script, out, name), "-w", "n1")
		s.Until("job "+job+" runs", func() bool {
			_, err := os.Stat(filepath.Join(out, "runs."+name))
			return err == nil || s.Job(job)["JobState"] == "FAILED"
		})
		return job, mountedBelow + "/" + s.runs(t, job)[0].Key
	}
	end := func(name, job string) {
		s.Run(slurmtest.Alice, "touch", filepath.Join(out, "end."+name))
		s.completed(t, job)
		s.over(t, job, 1)
		a, err := os.ReadFile(filepath.Join(out, job, "put"))
		b, err2 := os.ReadFile(filepath.Join(out, job, "mounted"))
		if len(a) != 3000000 || !bytes.Equal(a, b) {
			t.Errorf("job %s has staged out %d and %d bytes (%v, %v)", job, len(a), len(b), err, err2)
		}
	}
	first, dir := run("first")
	second, other := run("second") // in its namespace is a copy of the first one's mount
	if n := s.serving(dir); n != 1 {
		t.Fatalf("%d processes serve the first job's mount", n)
	}
	if info, err := os.ReadFile(filepath.Join(out, "info.second")); !bytes.Contains(info, []byte(" "+dir+" ")) {
		t.Errorf("the second job has no copy of the first one's mount (%v): %s", err, info)
	}
	end("first", first)
	s.Until("the first job's mount has ended", func() bool { return s.serving(dir) == 0 })
	if n := s.serving(other); n != 1 {
		t.Errorf("%d processes serve the second job's mount", n)
	}
	end("second", second)
	s.Until("the second job's mount has ended", func() bool { return s.serving(other) == 0 })

	hidden := s.Submit(slurmtest.Alice, "#BB jobbb type=scratch\nhead -c 3000000 /dev/zero >/tmp/data\nbbctl put /tmp/data bb://$FOREBAY_BUFFER/f || echo failed\n", "-w", "n2")
	s.completed(t, hidden)
	if text := s.Output(hidden); !strings.Contains(text, "map: /dev/shm/") || !strings.Contains(text, "failed") {
		t.Errorf("regions in /dev/shm, by path: %s", text)
	}
	for i, want := range []string{"job_container/tmpfs hides nothing of the daemon from jobs", "job_container/tmpfs hides the daemon's memory from jobs"} {
		if text, _ := s.Nodes[i].Bbctl("root", "doctor"); !strings.Contains(text, want) {
			t.Errorf("bbctl doctor on n%d: %s", i+1, text)
		}
	}
}

// serving counts the processes that serve a mount.
func (s *site) serving(dir string) (n int) {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		if comm, _ := os.ReadFile(name); string(comm) != "bbmount\n" {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if bytes.HasSuffix(line, []byte("\x00"+dir+"\x00")) {
			n++
		}
	}
	return n
}
