package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/cmd/bbctl/apptest"
	"forebay/cmd/bbctl/status"
	"forebay/internal/cli"
)

// The status shows the whole cluster, with the files of a dead node. --node shows one.
func TestStatusCluster(t *testing.T) {
	n1, n2 := twoNodes(t)
	put := filepath.Join(t.TempDir(), "only.bin")
	if err := os.WriteFile(put, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FOREBAY_SOCKET", n1.Socket)
	bbctl(t, cli.ExitDone, "buffer", "create", "ckpt")
	bbctl(t, cli.ExitDone, "put", put, "bb://ckpt/")
	t.Setenv("FOREBAY_SOCKET", n2.Socket)
	out := statusWith(t, "cluster of 2 nodes, asked at n2")
	apptest.WantRow(t, out, "n1 ready 128 MiB 3.0 MiB")
	apptest.WantRow(t, out, "n2 ready 128 MiB 0 B")
	apptest.WantRow(t, out, "ckpt active 3.0 MiB")
	if out := bbctl(t, cli.ExitDone, "status", "--node", "n1"); !strings.HasPrefix(out, "node n1, ready") || strings.Contains(out, "cluster of") {
		t.Errorf("status of n1:\n%s", out)
	}
	n1.Pause() // gossip has not detected it yet
	out = statusWith(t, "n1: does not answer: ")
	apptest.WantLine(t, out, "n1: holds 1 file of 3.0 MiB that no store has")
	n1.Kill()
	unanswering(t, n2, "n1")

	out = bbctl(t, cli.ExitDone, "status")
	apptest.WantLine(t, out, "cluster of 2 nodes, 1 without an answer, asked at n2")
	apptest.WantRow(t, out, "n1 dead 128 MiB 3.0 MiB")
	apptest.WantLine(t, out, "n1: does not answer: the daemon is dead")
	apptest.WantLine(t, out, "n1: holds 1 file of 3.0 MiB that no store has: ckpt 1 of 3.0 MiB")
	apptest.WantRow(t, out, "BUFFER DIRTY AWAY")
	apptest.WantRow(t, out, "ckpt active 0 B 3.0 MiB")
	var s struct {
		Node    string      `json:"node"` // as ever: that of the answering daemon
		Memory  status.Tier `json:"memory"`
		Cluster []status.NodeView
	}
	if err := json.Unmarshal([]byte(bbctl(t, cli.ExitDone, "status", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	if s.Node != "n2" || s.Memory.Capacity == 0 || len(s.Cluster) != 2 || s.Cluster[0].Answers || s.Cluster[0].Held() != 3<<20 || s.Cluster[1].Status == nil {
		t.Errorf("JSON: %+v", s)
	}
	bbctl(t, cli.ExitUnavailable, "status", "--node", "n1")
	bbctl(t, cli.ExitUnavailable, "status", "--node", "nobody")
	bbctl(t, cli.ExitDamaged, "node", "forget", "n1", "--yes")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out := bbctl(t, cli.ExitDone, "status")
		if !strings.Contains(out, "holds 1 file ") { // the last count is used for a moment
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a node that was forgotten still holds files:\n%s", out)
		}
	}
}

// statusWith waits for a status that has some text, and returns it.
func statusWith(t *testing.T, want string) string {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out := bbctl(t, cli.ExitDone, "status")
		if strings.Contains(out, want) {
			return out
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q never came to be in\n%s", want, out)
		}
	}
}

// In a cluster of two releases, a daemon of either one shows all nodes.
func TestStatusOfTwoReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds another release")
	}
	n1, n2 := nodesOf(t, olderRelease, "")
	t.Setenv("FOREBAY_SOCKET", n1.Socket)
	out := statusWith(t, "cluster of 2 nodes, asked at n1")
	apptest.WantLine(t, out, "n2: not asked, since node n1 is too old to")
	apptest.WantLine(t, bbctl(t, cli.ExitUsage, "status", "--node", "n2"), "too old to ask another one")
	apptest.WantLine(t, bbctl(t, cli.ExitDone, "status", "--json"), `"cluster":[{"node":"n1"`)
	t.Setenv("FOREBAY_SOCKET", n2.Socket)
	out = statusWith(t, "cluster of 2 nodes, asked at n2")
	apptest.WantRow(t, out, "n1 ready 128 MiB 0 B 0 B")
	apptest.WantLine(t, bbctl(t, cli.ExitDone, "status", "--node", "n1"), "node n1, ready")
}

// olderRelease is of daemons that report neither the others nor stores.
const olderRelease = "2998de8"
