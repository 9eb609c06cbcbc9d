// Package slurmtest runs a real Slurm for tests: slurmctld, munge and three slurmds of Debian's packages, with
// a bbd for each node, in namespaces of their own (scripts/slurm.sh). It handles processes, jobs and their
// states, and must never depend on the hooks that a test configures.
package slurmtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"forebay/internal/bbdtest"
	"forebay/internal/sourcetest"
)

// Require skips a test where Slurm cannot be run, saying why. In CI, where nothing may be
// missing, it fails the test.
func Require(tb testing.TB) {
	tb.Helper()
	missing := ""
	if os.Geteuid() != 0 {
		missing = "tests with real Slurm make namespaces, and so need root"
	} else if out, err := exec.Command(script(tb), "tools").CombinedOutput(); err != nil {
		missing = string(bytes.TrimSpace(out))
	}
	switch {
	case missing == "":
	case os.Getenv("CI") != "":
		tb.Fatal(missing)
	default:
		tb.Skip(missing)
	}
}

// script returns the path of scripts/slurm.sh.
func script(tb testing.TB) string {
	tb.Helper()
	root, err := sourcetest.Root()
	if err != nil {
		tb.Fatal("slurmtest: ", err)
	}
	return filepath.Join(root, "scripts", "slurm.sh")
}

// The users that there are on every node, besides root and slurm.
const (
	Alice    = "alice"
	Bob      = "bob"
	AliceUID = 20001 // and gid
	BobUID   = 20002
)

// Options are additions to a cluster.
type Options struct {
	// Conf are lines for slurm.conf, and Files the files beside it by name (those that begin with
	// #! can be executed). In both @DIR@ is Cluster.Dir, and @BBCTL@ the bbctl binary.
	Conf  string
	Files map[string]string
	// NoDaemons leaves out the bbds.
	NoDaemons bool
	// Daemon is appended to each bbd's configuration.
	Daemon string
	// Memory are the folders, on a tmpfs, of the memory of nodes' daemons, by the node's name. Those of others are in
	// /dev/shm.
	Memory map[string]string
	// OneCPU runs Slurm on one processor. Linux 6.18 numbers namespaces for each processor apart, and refuses to keep one (EINVAL, in
	// job_container/tmpfs) whose number is less than that of slurmd's, which was made on another.
	OneCPU bool
}

// Cluster is a running Slurm. Its methods are for one goroutine at a time, but Command, As, Run and
// the methods for jobs.
type Cluster struct {
	Dir   string // etc, log, work (where users may write), nodes
	Work  string // Dir/work
	Bbctl string // the binary, where every user may run it
	Nodes []*Node

	tb   testing.TB
	init int // the first process in the cluster's namespaces
}

// Node is one node, a slurmd, and a bbd that it finds in /run/forebay.
type Node struct {
	Name   string
	Daemon *bbdtest.Daemon
	c      *Cluster
}

// startTime is how long a cluster may take to come up.
const startTime = 60 * time.Second

// Start starts a cluster of three nodes, and stops it at the test's end.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	Require(tb)
	dir, err := os.MkdirTemp("", "slurm")
	if err != nil {
		tb.Fatal(err)
	}
	c := &Cluster{Dir: dir, Work: filepath.Join(dir, "work"), Bbctl: filepath.Join(dir, "bbctl"), tb: tb}
	if err := copyProgram(bbdtest.Bbmount(tb), filepath.Join(dir, "bbmount")); err != nil {
		tb.Fatal(err)
	}
	if err := copyProgram(bbdtest.Bbctl(tb), c.Bbctl); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	var nodes []string
	for i := range 3 {
		d := bbdtest.New(tb)
		n := &Node{Name: fmt.Sprintf("n%d", i+1), Daemon: d, c: c}
		c.Nodes = append(c.Nodes, n)
		nodes = append(nodes, n.Name+"="+d.Dir)
		d.Config = fmt.Sprintf(daemonConfig, n.Name, i+1) + o.Daemon
		d.Memory = cmp.Or(o.Memory[n.Name], d.Memory)
		// The node's users have to reach the socket, and their own regions.
		err := errors.Join(os.Chmod(d.Dir, 0o711), os.MkdirAll(d.Memory, 0o711), os.WriteFile(filepath.Join(d.Dir, "key"), []byte(strings.Repeat("0123456789abcdef", 4)), 0o600))
		if err != nil {
			tb.Fatal(err)
		}
	}
	c.start(o, strings.Join(nodes, " "))
	var daemons []*bbdtest.Daemon
	for _, n := range c.Nodes {
		// It has the test's own mounts: /proc among them has to be of its own processes.
		n.Daemon.Behind = []string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", c.init), "--"}
		daemons = append(daemons, n.Daemon)
	}
	if !o.NoDaemons {
		bbdtest.StartAll(tb, daemons...)
	}
	return c
}

// copyProgram copies a program from a folder that others may not enter.
func copyProgram(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

const daemonConfig = `
name: %[1]s
listen: {tcp: "127.0.0.1%[2]d:7481", admin: "127.0.0.1%[2]d:7480"}
cluster: {listen: "127.0.0.1%[2]d:7483", advertise: "127.0.0.1%[2]d", join: "127.0.0.11:7483,127.0.0.12:7483"}
nats: {servers: "127.0.0.11,127.0.0.12,127.0.0.13"}
key_file: {{.Dir}}/key
memory: {size: 256MiB, region_size: 64MiB}
flush: {dirty_age: 1s}
`

// start runs the script, which is the parent of all that Slurm is.
func (c *Cluster) start(o Options, nodes string) {
	c.tb.Helper()
	fill := strings.NewReplacer("@DIR@", c.Dir, "@BBCTL@", c.Bbctl)
	extra, files := filepath.Join(c.Dir, "extra.conf"), filepath.Join(c.Dir, "files")
	err := errors.Join(os.Mkdir(files, 0o755), os.WriteFile(extra, []byte(fill.Replace(o.Conf)), 0o644))
	for name, text := range o.Files {
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			mode = 0o755
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(files, name), []byte(fill.Replace(text)), mode))
	}
	out, err2 := os.Create(filepath.Join(c.Dir, "out"))
	if err := errors.Join(err, err2); err != nil {
		c.tb.Fatal(err)
	}
	defer out.Close()
	line := []string{script(c.tb), "run", c.Dir}
	if o.OneCPU {
		line = append([]string{"taskset", "--cpu-list", c.cpu()}, line...)
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "NODES="+nodes, "EXTRA="+extra, "FILES="+files, "USERS="+Alice+" "+Bob)
	cmd.Stdout, cmd.Stderr = out, out
	// It ends with the test process, and all of the cluster with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ended := make(chan error, 1)
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread that started the process
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() { c.stop(ended) })
	deadline := time.After(startTime)
	for {
		if _, err := os.Stat(filepath.Join(c.Dir, "ready")); err == nil {
			break
		}
		select {
		case err := <-ended:
			ended <- err
			c.tb.Fatalf("Slurm did not come up: %v", err)
		case <-deadline:
			c.tb.Fatal("Slurm did not come up")
		case <-time.After(20 * time.Millisecond):
		}
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, "init"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &c.init)
	}
	if err != nil {
		c.tb.Fatal(err)
	}
}

// cpu returns the number of a processor that this process may use.
func (c *Cluster) cpu() string {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		c.tb.Fatal(err)
	}
	n := 0
	for !set.IsSet(n) {
		n++
	}
	return strconv.Itoa(n)
}

func (c *Cluster) stop(ended chan error) {
	if c.tb.Failed() {
		c.tb.Logf("Slurm says:\n%s", c.Logs())
	}
	if out, err := exec.Command(script(c.tb), "down", c.Dir).CombinedOutput(); err != nil {
		c.tb.Errorf("taking Slurm down: %v\n%s", err, out)
	}
	<-ended
}

// Logs returns the ends of all logs of Slurm.
func (c *Cluster) Logs() string {
	var all strings.Builder
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "log", "*"))
	for _, file := range append(logs, filepath.Join(c.Dir, "out")) {
		text, _ := os.ReadFile(file)
		fmt.Fprintf(&all, "--- %s\n%s\n", filepath.Base(file), text[max(0, len(text)-8<<10):])
	}
	return all.String()
}

// commandTime is how long a command may take.
const commandTime = time.Minute

// Command is a command on a node, or where slurmctld runs (""), as a user. Its environment is
// clean, but for SLURM_CONF and the user's variables.
func (c *Cluster) Command(ctx context.Context, node, user string, args ...string) *exec.Cmd {
	if node == "" {
		node = "ctl"
	}
	all := []string{
		"in", c.Dir, node, "env", "-i", "-C", c.Work, "SLURM_CONF=" + filepath.Join(c.Dir, "etc/slurm.conf"), "PATH=" + c.Dir + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"USER=" + user, "LOGNAME=" + user, "HOME=" + c.Work, "LANG=C.UTF-8",
	}
	if user != "root" {
		all = append(all, "setpriv", "--reuid="+user, "--regid="+user, "--init-groups")
	}
	cmd := exec.CommandContext(ctx, script(c.tb), append(all, args...)...)
	cmd.WaitDelay = time.Second
	return cmd
}

// Try runs a command as a user where slurmctld runs, and returns its output.
func (c *Cluster) Try(user string, args ...string) (string, error) {
	return c.on("", user, args...)
}

// Try runs a command as a user on the node.
func (n *Node) Try(user string, args ...string) (string, error) {
	return n.c.on(n.Name, user, args...)
}

func (c *Cluster) on(node, user string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	out, err := c.Command(ctx, node, user, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s as %s: %w: %s", strings.Join(args, " "), user, err, bytes.TrimSpace(out))
	}
	return string(out), err
}

// Run is Try of a command that must not fail.
func (c *Cluster) Run(user string, args ...string) string {
	c.tb.Helper()
	out, err := c.Try(user, args...)
	if err != nil {
		c.tb.Fatal(err)
	}
	return out
}

// Run is Try of a command that must not fail.
func (n *Node) Run(user string, args ...string) string {
	n.c.tb.Helper()
	out, err := n.Try(user, args...)
	if err != nil {
		n.c.tb.Fatal(err)
	}
	return out
}

// Bbctl runs bbctl as a user on a node, whose daemon it finds in /run/forebay.
func (n *Node) Bbctl(user string, args ...string) (string, error) {
	return n.Try(user, append([]string{n.c.Bbctl}, args...)...)
}

// Submit submits a script, to which "#!/bin/sh" is added, and returns the job's id. Output returns
// the job's output.
func (c *Cluster) Submit(user, text string, flags ...string) string {
	c.tb.Helper()
	id, err := c.TrySubmit(user, text, flags...)
	if err != nil {
		c.tb.Fatal(err)
	}
	return id
}

// TrySubmit is Submit that returns the output of sbatch.
func (c *Cluster) TrySubmit(user, text string, flags ...string) (string, error) {
	file, err := os.CreateTemp(c.Work, "job*.sh")
	if err != nil {
		return "", err
	}
	_, err = file.WriteString("#!/bin/sh\n" + text)
	if err := errors.Join(err, file.Chmod(0o755), file.Close()); err != nil {
		return "", err
	}
	args := append([]string{"sbatch", "--parsable", "--output=" + c.Work + "/out.%j", "--open-mode=append"}, flags...)
	out, err := c.Try(user, append(args, file.Name())...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1], err
}

// Output returns a job's output.
func (c *Cluster) Output(job string) string {
	text, _ := os.ReadFile(filepath.Join(c.Work, "out."+job))
	return string(text)
}

// Job returns the fields of a job in "scontrol show job", by their names.
func (c *Cluster) Job(job string) map[string]string {
	out, err := c.Try("root", "scontrol", "--oneliner", "show", "job", job)
	fields := map[string]string{}
	if err != nil {
		return fields
	}
	for word := range strings.FieldsSeq(strings.SplitN(out, "\n", 2)[0]) {
		if name, value, ok := strings.Cut(word, "="); ok {
			fields[name] = value
		}
	}
	return fields
}

// Over are the states in which Slurm has done with a job.
var Over = []string{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY"}

// waitTime is how long a job may take to get somewhere.
const waitTime = 45 * time.Second

// Wait waits until a job is in one of some states, and returns its fields. Without any,
// the states are Over.
func (c *Cluster) Wait(job string, states ...string) map[string]string {
	c.tb.Helper()
	if len(states) == 0 {
		states = Over
	}
	var now map[string]string
	c.Until(fmt.Sprintf("job %s is %s", job, strings.Join(states, " or ")), func() bool {
		now = c.Job(job)
		return slices.Contains(states, now["JobState"])
	})
	return now
}

// Until waits until something holds, or ends the test.
func (c *Cluster) Until(what string, holds func() bool) {
	c.tb.Helper()
	deadline := time.Now().Add(waitTime)
	for !holds() {
		if time.Now().After(deadline) {
			queue, _ := c.Try("root", "squeue", "-a", "-o", "%i %u %T %r %N")
			jobs, _ := c.Try("root", "scontrol", "show", "job")
			nodes, _ := c.Try("root", "sinfo", "-N", "-o", "%N %T %E")
			c.tb.Fatalf("after %v it does not hold that %s\n%s%s%s", waitTime, what, queue, nodes, jobs)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Drained returns the nodes that Slurm has taken out of service, and why.
func (c *Cluster) Drained() map[string]string {
	c.tb.Helper()
	drained := map[string]string{}
	for line := range strings.Lines(c.Run("root", "sinfo", "-h", "-N", "-o", "%N|%T|%E")) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(f) == 3 && strings.HasPrefix(f[1], "drain") {
			drained[f[0]] = f[2]
		}
	}
	return drained
}

// StopController ends slurmctld: at once (kill), as in a crash, or in order.
func (c *Cluster) StopController(kill bool) {
	c.tb.Helper()
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, "run/slurmctld.pid"))
	pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, err2); err != nil {
		c.tb.Fatal(err)
	}
	// The shell sends the signal, since a bare machine has no program of that name.
	c.Run("root", "sh", "-c", fmt.Sprintf("kill -%d %d", signal, pid))
	c.Until("slurmctld has ended", func() bool {
		_, err := c.Try("root", "sh", "-c", fmt.Sprintf("kill -0 %d", pid))
		return err != nil
	})
}

// StartController starts slurmctld again, and waits until it answers.
func (c *Cluster) StartController() {
	c.tb.Helper()
	c.Run("root", "slurmctld")
	c.Until("slurmctld answers", func() bool {
		_, err := c.Try("root", "scontrol", "ping")
		return err == nil
	})
}

// Lose ends all of a node at once, with everything in memory: slurmd, its jobs, its bbd.
func (n *Node) Lose() {
	n.c.tb.Helper()
	n.Daemon.Crash()
	// Processes with the node's mounts are the node's.
	const kill = `own=$(readlink /proc/self/ns/mnt)
for p in /proc/[0-9]*; do
	id=${p#/proc/}
	[ "$id" = $$ ] || [ "$(readlink "$p/ns/mnt" 2>/dev/null)" != "$own" ] || [ "$(cat "$p/comm")" = sleep ] && continue
	kill -KILL "$id"
done
true`
	n.Run("root", "sh", "-c", kill)
}

// At is the cluster for a subtest. Failures count for the subtest.
func (c *Cluster) At(tb testing.TB) *Cluster {
	at := *c
	at.tb = tb
	at.Nodes = nil
	for _, n := range c.Nodes {
		at.Nodes = append(at.Nodes, &Node{Name: n.Name, Daemon: n.Daemon, c: &at})
	}
	return &at
}
