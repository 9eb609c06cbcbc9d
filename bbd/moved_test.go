package bbd_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"forebay/client"
	"forebay/client/admin"
)

// Reads and writes of daemons in each other's memory are counted.
func TestClusterCountsFabricBytes(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	b, _ := nodes[0].buffer(nodes[0].dial(), admin.BufferSpec{Name: "shared"})
	content := random(3 << 20)
	write(t, b, "f", content)
	there := nodes[1].dial().Buffer("shared")
	wantFile(t, there, "f", content)
	f, err := there.OpenFile(t.Context(), "f", client.OpenOptions{Write: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(content[:1<<20], 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for op, least := range map[string]float64{"read": 3 << 20, "write": 1 << 20} {
		got := nodes[1].metric(fmt.Sprintf("forebay_fabric_bytes_total{fabric=%q,op=%q}", "tcp", op))
		if got < least {
			t.Errorf("%s: %v bytes are counted, at least %v moved", op, got, least)
		}
	}
}

// metric returns a metric's value as /metrics has it, or 0 if it is not there.
func (n *node) metric(name string) (value float64) {
	n.t.Helper()
	answer, err := http.Get("http://" + n.status().Admin + "/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			fmt.Sscan(rest, &value)
		}
	}
	return value
}
