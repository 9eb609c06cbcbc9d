package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"forebay/cmd/bbctl/apptest"

	"forebay/client"
	"forebay/client/admin"
	"forebay/cmd/bbctl/app"
	"forebay/internal/bbdtest"
	"forebay/internal/cli"
	"forebay/internal/clusterkey"
)

// Declaring a node dead loses files that only it held. bbctl prints that before, does it only if
// confirmed, and exits with a code of its own.
func TestForgetNode(t *testing.T) {
	n1, n2 := twoNodes(t)
	put := filepath.Join(t.TempDir(), "only.bin")
	if err := os.WriteFile(put, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FOREBAY_SOCKET", n1.Socket)
	bbctl(t, cli.ExitDone, "buffer", "create", "ckpt")
	bbctl(t, cli.ExitDone, "put", put, "bb://ckpt/")
	t.Setenv("FOREBAY_SOCKET", n2.Socket)
	bbctl(t, cli.ExitConflict, "node", "forget", "n1", "--yes") // it answers
	mistypedNodes(t)
	cancelEnded(t)
	n1.Kill()
	unanswering(t, n2, "n1")

	out := bbctl(t, cli.ExitDone, "node", "forget", "n1", "--dry-run")
	apptest.WantLine(t, out, "would be lost: bb://ckpt/only.bin, 1000 B")
	apptest.WantLine(t, out, "would be lost: 1 file of 1000 B; would be kept: 0")
	apptest.WantLine(t, bbctl(t, cli.ExitConflict, "node", "forget", "n1"), "1 file of 1000 B would be lost (--dry-run lists them, --yes loses them")
	apptest.WantLine(t, bbctl(t, cli.ExitDone, "lost", "ckpt"), "0 files are lost") // nothing was changed
	apptest.WantLine(t, bbctl(t, cli.ExitDamaged, "node", "forget", "n1", "--yes"), "lost: bb://ckpt/only.bin")
	apptest.WantLine(t, bbctl(t, cli.ExitDone, "lost", "ckpt"), "only.bin")
	apptest.WantLine(t, bbctl(t, cli.ExitDone, "node", "forget", "n1"), "lost: 0 files of 0 B; kept: 0") // nothing more goes: nothing to confirm
}

// bbctl runs a command line that has to exit with a code, and returns its output. mistypedNodes
// names a node that there is not. Each command fails, and names those that are called alike.
func mistypedNodes(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		code int
		args []string
	}{
		{cli.ExitNotFound, []string{"node", "forget", "n9", "--yes"}},
		{cli.ExitNotFound, []string{"node", "forget", "n9"}},
		{cli.ExitUnavailable, []string{"node", "drain", "n9"}},
		{cli.ExitUnavailable, []string{"node", "undrain", "n9"}},
		{cli.ExitUnavailable, []string{"status", "--node", "n9"}},
	} {
		apptest.WantLine(t, bbctl(t, c.code, c.args...), "did you mean n1 or n2?")
	}
}

// cancelEnded cancels a job that has ended.
func cancelEnded(t *testing.T) {
	t.Helper()
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	bbctl(t, cli.ExitDone, "buffer", "create", "staged")
	bbctl(t, cli.ExitDone, "stage-in", "file://"+from, "bb://staged/")
	var jobs []admin.Operation
	if err := json.Unmarshal([]byte(bbctl(t, cli.ExitDone, "jobs", "list", "--json")), &jobs); err != nil || len(jobs) != 1 {
		t.Fatalf("%+v %v", jobs, err)
	}
	apptest.WantLine(t, bbctl(t, cli.ExitConflict, "jobs", "cancel", jobs[0].ID), "it has ended already: done")
	bbctl(t, cli.ExitDone, "buffer", "destroy", "staged", "--discard")
}

func bbctl(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out printed
	a := &app.App{In: strings.NewReader(""), Out: &out, Err: &out}
	defer a.Close()
	cmd := newCommand(a)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	if code := a.Exit(t.Context(), err); code != want {
		t.Fatalf("bbctl %s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, out.String())
	}
	return out.String()
}

// printed is both outputs of a command. The line about a wait is printed beside the rest.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(text)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// twoNodes starts a cluster of two daemons. Its namespace is that of a third one.
func twoNodes(t *testing.T) (n1, n2 *bbdtest.Daemon) {
	t.Helper()
	return nodesOf(t, "", "")
}

// nodesOf is twoNodes of two releases, each as bbdtest.Daemon.Commit has it.
func nodesOf(t *testing.T, releases ...string) (n1, n2 *bbdtest.Daemon) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, append(clusterkey.New(), '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	port := func() string { return bbdtest.FreePort(t, "127.0.0.1") }
	server, gossip := port(), []string{port(), port()}
	bbdtest.Start(t, "--name", "n0", "--memory", "64MiB", "--nats-embedded-listen", server)
	var all []*bbdtest.Daemon
	for i, at := range gossip {
		d := bbdtest.New(t, "--name", fmt.Sprint("n", i+1), "--memory", "128MiB", "--listen-tcp", "127.0.0.1:0", "--key-file", key,
			"--cluster-listen", at, "--cluster-join", strings.Join(gossip, ","))
		d.Env, d.Commit = []string{"FOREBAY_NATS_URL=nats://" + server}, releases[i]
		all = append(all, d)
	}
	bbdtest.StartAll(t, all...)
	for _, d := range all {
		seesAllReady(t, d, len(all))
	}
	return all[0], all[1]
}

// seesAllReady waits until a daemon lists all nodes as ready.
func seesAllReady(t *testing.T, d *bbdtest.Daemon, nodes int) {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		list, err := admin.Nodes(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == nodes && !slices.ContainsFunc(list, func(n admin.Node) bool { return n.State != "ready" }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all of %d nodes are ready: %+v", nodes, list)
		}
	}
}

// unanswering waits until a daemon lists a node as one that does not answer.
func unanswering(t *testing.T, d *bbdtest.Daemon, node admin.NodeID) {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Options{Address: "unix://" + d.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, err := admin.NodeLoss(t.Context(), c, node)
		if err == nil {
			return
		}
		if client.KindOf(err) != client.ErrBusy || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
