package bbd_test

import (
	"strings"
	"testing"

	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/meta/metatest"
)

// TestBufferOfNewerRelease: a buffer whose record this release cannot read is no buffer that does not exist. Calls and the
// status have the remedy, its bytes stay, and the release that made it serves it again.
func TestBufferOfNewerRelease(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "b", NoFlush: []string{"*"}})
	content := random(1000)
	write(t, b, "f", content)
	undo, err := metatest.NewerBuffer(t.Context(), n.server, "b")
	if err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	c = n.dial()
	const remedy = "use the release that wrote it"
	for op, err := range map[string]error{
		"write": c.Buffer("b").WriteFile(t.Context(), "g", nil, 0o644), "destroy": admin.DestroyBuffer(t.Context(), c, "b"),
		"mkdir": c.Buffer("b").Mkdir(t.Context(), "d", 0o755),
	} {
		if bb.KindOf(err) != bb.Unsupported || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if _, err := c.Buffer("none").Stat(t.Context(), "f"); bb.KindOf(err) != bb.NotFound {
		t.Errorf("a buffer that is not there: %v", err)
	}
	if s := n.status(); len(s.WithoutBuffer) != 1 || s.WithoutBuffer[0].Bytes != 1000 || !strings.Contains(s.WithoutBuffer[0].Remedy, "release that made the buffer") {
		t.Errorf("the status has %+v", s.WithoutBuffer)
	}
	if err := undo(t.Context(), n.server); err != nil {
		t.Fatal(err)
	}
	n.stop()
	n.start()
	wantFile(t, n.dial().Buffer("b"), "f", content)
}
