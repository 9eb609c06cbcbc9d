package bbd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"forebay/client/admin"
	"forebay/flusher/backing"
	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// owner is that of an earlier life of a node.
func (n *node) owner() backing.Owner {
	m, _ := n.members.Member(n.name)
	return backing.Owner{Instance: m.Instance, Life: 1}
}

// die has the others find that a node is gone for good.
func (n *node) die() {
	m, _ := n.members.Member(n.name)
	n.stop()
	m.State, m.Since = gossip.Dead, time.Now().Add(-time.Minute)
	n.members.set(n.name, func() gossip.Member { return m })
}

// leftBehind makes a temporary file.
func leftBehind(t *testing.T, dir string, of backing.Owner) string {
	t.Helper()
	file := filepath.Join(dir, of.TempName())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("part of a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func isThere(file string) bool {
	_, err := os.Lstat(file)
	return err == nil
}

// If a node dies, the nodes that continue with its work remove its unfinished files, in the stores
// of buffers and in the targets of a stage-out. Files of unknown daemons stay.
func TestUnfinishedOfDeadNode(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 3)
	c := nodes[0].dial()
	b, store := nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	out := filepath.Join(t.TempDir(), "out")
	if err := b.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		write(t, b, fmt.Sprintf("d/%d", i), random(1000))
	}
	drain(t, c, "b") // so that the others can continue with all that the third has
	owners := []backing.Owner{nodes[2].owner(), nodes[1].owner(), {Instance: bb.InstanceID(0xabcdef), Life: 1}}
	var flushed, staged []string
	for _, o := range owners {
		flushed = append(flushed, leftBehind(t, filepath.Join(store, "deep"), o))
		staged = append(staged, leftBehind(t, filepath.Join(out, "d"), o))
	}
	nodes[2].die()
	request := admin.StageRequest{Buffer: "b", Path: "d", URL: "file://" + out + "/d"}
	for try := range 3 {
		if _, err := admin.StageOut(t.Context(), c, request, nil); err != nil {
			t.Fatal(err)
		}
		if isThere(staged[0]) || !isThere(staged[1]) || !isThere(staged[2]) {
			t.Errorf("after stage-out %d: of the dead node %t, of a living one %t, of nobody %t", try, isThere(staged[0]), isThere(staged[1]), isThere(staged[2]))
		}
		staged[0] = leftBehind(t, filepath.Join(out, "d"), owners[0]) // the next try finds all files there
	}
	eventually(t, "the dead node's is removed from the store", func() bool { return !isThere(flushed[0]) })
	if !isThere(flushed[1]) || !isThere(flushed[2]) {
		t.Errorf("of a living node %t, of nobody %t", isThere(flushed[1]), isThere(flushed[2]))
	}
}
