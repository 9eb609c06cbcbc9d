package bbd_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
)

// changes are those that clients rely on once they are acknowledged.
var changes = map[string]func(context.Context, *client.Buffer) error{
	"close": func(ctx context.Context, b *client.Buffer) error {
		return b.WriteFile(ctx, "result", []byte("precious"), 0o644)
	},
	"exclusive create": func(ctx context.Context, b *client.Buffer) error {
		_, err := b.OpenFile(ctx, "result", client.OpenOptions{Write: true, Create: true, Exclusive: true})
		return err
	},
	"rename": func(ctx context.Context, b *client.Buffer) error { return b.Rename(ctx, "saved", "result") },
}

// TestDestroyMeetsAChange has a client change a buffer after it was found that the buffer may be
// destroyed. The change is not acknowledged, unless the buffer stays.
func TestDestroyMeetsAChange(t *testing.T) {
	t.Parallel()
	alone := []*node{startNode(t, nil)}
	two := startCluster(t, 2)
	refused := errors.New("not now")
	for name, change := range changes {
		for where, nodes := range map[string][]*node{"alone": alone, "here": two[:1], "elsewhere": two} {
			for _, verdict := range []error{nil, refused} {
				t.Run(fmt.Sprint(name, ", ", where, ", ", verdict), func(t *testing.T) {
					c, there := nodes[0].dial(), nodes[len(nodes)-1]
					b, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
					defer admin.DiscardBuffer(t.Context(), c, "b")
					changed := there.dial().Buffer("b")
					write(t, changed, "saved", []byte("on the store"))
					drain(t, c, "b")
					answer := make(chan error, 1)
					err := nodes[0].daemon.Destroy(t.Context(), "b", func() error {
						go func() { answer <- change(t.Context(), changed) }()
						eventually(t, "the change waits, or is acknowledged", func() bool {
							return there.daemon.ChangesWaiting("b") > 0 || len(answer) > 0
						})
						return verdict
					})
					got := <-answer
					if verdict != nil {
						if !errors.Is(err, refused) || got != nil {
							t.Fatalf("destroying: %v; the change: %v", err, got)
						}
						if _, err := b.Stat(t.Context(), "result"); err != nil {
							t.Errorf("what was acknowledged: %v", err)
						}
						return
					}
					if err != nil || !errors.Is(got, fs.ErrNotExist) {
						t.Fatalf("destroying: %v; the change was acknowledged: %v", err, got)
					}
				})
			}
		}
	}
}

// TestDestroyWhoseSessionBreaks has the session break by which a daemon keeps another one from
// changing a buffer. It does not destroy the buffer, and the other one continues.
func TestDestroyWhoseSessionBreaks(t *testing.T) {
	t.Parallel()
	nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.Limits.Silence = 200 * time.Millisecond })
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	there := nodes[1].dial().Buffer("b")
	if err := there.Mkdir(t.Context(), "d", 0o755); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	err := nodes[0].daemon.Destroy(t.Context(), "b", func() error {
		go func() { answer <- there.WriteFile(t.Context(), "d/result", []byte("precious"), 0o644) }()
		eventually(t, "the write waits", func() bool { return nodes[1].daemon.ChangesWaiting("b") > 0 })
		nodes[0].daemon.BreakSessions("n2")
		return <-answer
	})
	if !errors.Is(err, client.ErrBusy) {
		t.Errorf("destroying: %v", err)
	}
	wantFile(t, c.Buffer("b"), "d/result", []byte("precious"))
}

// TestBuffersDoNotWaitForADestroy makes, lists and destroys a buffer while another one is
// looked through.
func TestBuffersDoNotWaitForADestroy(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c := nodes[0].dial()
	nodes[0].buffer(c, admin.BufferSpec{Name: "b"})
	err := nodes[0].daemon.Destroy(t.Context(), "b", func() error {
		other, _ := nodes[0].buffer(c, admin.BufferSpec{Name: "other"})
		write(t, nodes[1].dial().Buffer("other"), "f", []byte("content"))
		wantFile(t, other, "f", []byte("content"))
		return admin.DiscardBuffer(t.Context(), c, "other")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDestroyRace writes a file and destroys its buffer at the same time, again and again. The two
// never both succeed.
func TestDestroyRace(t *testing.T) {
	t.Parallel()
	nodes := startCluster(t, 2)
	c, w := nodes[0].dial(), nodes[1].dial()
	for trial := range 20 {
		name := fmt.Sprintf("b%d", trial)
		nodes[0].buffer(c, admin.BufferSpec{Name: name})
		wrote := make(chan error, 1)
		go func() { wrote <- w.Buffer(name).WriteFile(t.Context(), "result", []byte("precious"), 0o644) }()
		destroyed := admin.DestroyBuffer(t.Context(), c, name)
		if err := <-wrote; err == nil && destroyed == nil {
			t.Fatalf("trial %d: the file was acknowledged, and its buffer destroyed without discarding anything", trial)
		}
		if destroyed != nil {
			if !errors.Is(destroyed, client.ErrBusy) {
				t.Errorf("destroying: %v", destroyed)
			}
			if err := admin.DiscardBuffer(t.Context(), c, name); err != nil {
				t.Fatal(err)
			}
		}
	}
}
