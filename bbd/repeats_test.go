package bbd_test

import (
	"bytes"
	"testing"
	"time"

	"forebay/client"
	"forebay/meta/gossip"
)

// TestClusterRepeatedCommit: a commit whose answer is lost, and that is repeated, does not undo
// another writer's later commit to the same range.
func TestClusterRepeatedCommit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		forwarded bool // through another daemon; else of a client that came over TCP
		close     bool // the repeated commit is the writer's close …
		last      bool // … and the other writer has closed before, so that it closes the file
	}{
		{"relayed", true, false, false},
		{"relayed close", true, true, false},
		{"relayed close of the last writer", true, true, true},
		{"of a client", false, false, false},
		{"close of a client", false, true, false},
		{"close of a client that is the last writer", false, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			nodes := startCluster(t, 2)
			owner := nodes[0]
			lossy := newProxy(t, func() string { return owner.daemon.Self().Session })
			c := owner.dial()
			b := scratch(t, c, "shared")
			var far *client.Buffer
			if test.forwarded {
				self := owner.daemon.Self
				owner.members.set("n1", func() gossip.Member { m := self(); m.Session = lossy.Addr().String(); return m })
				far = nodes[1].dial().Buffer("shared")
			} else {
				fc, err := client.Dial(t.Context(), client.Options{Address: "tcp://" + lossy.Addr().String()})
				if err != nil {
					t.Fatal(err)
				}
				defer fc.Close()
				far = fc.Buffer("shared")
			}
			write(t, b, "f", []byte("x")) // its owner is n1
			ctx := limited(t, 60*time.Second)
			open := func(b *client.Buffer) *client.File {
				f, err := b.OpenFile(ctx, "f", client.OpenOptions{Write: true})
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			first, second := open(far), open(b)
			early, late := bytes.Repeat([]byte("early"), 200), bytes.Repeat([]byte("late "), 200)
			// The file is published, so that its size shows the committed bytes.
			if _, err := first.WriteAt([]byte("y"), 0); err != nil {
				t.Fatal(err)
			}
			if err := first.Sync(); err != nil {
				t.Fatal(err)
			}
			if _, err := first.WriteAt(early, 0); err != nil {
				t.Fatal(err)
			}
			lossy.mute.Store(true)
			done := make(chan error, 1)
			go func() {
				if test.close {
					done <- first.Close()
				} else {
					done <- first.Sync()
				}
			}()
			eventually(t, "the first is committed", func() bool {
				e, err := b.Stat(ctx, "f")
				return err == nil && e.Size == int64(len(early))
			})
			if _, err := second.WriteAt(late, 0); err != nil {
				t.Fatal(err)
			}
			commit := second.Sync
			if test.last {
				commit = second.Close
			}
			if err := commit(); err != nil {
				t.Fatal(err)
			}
			lossy.cut()
			if err := <-done; err != nil {
				t.Fatalf("the commit whose answer was lost: %v", err)
			}
			if !test.last {
				if err := second.Close(); err != nil {
					t.Error(err)
				}
			}
			if !test.close {
				if err := first.Close(); err != nil {
					t.Error(err)
				}
			}
			wantFile(t, b, "f", late)
			eventually(t, "it is closed", func() bool {
				e, err := b.Stat(ctx, "f")
				return err == nil && e.State != client.StateOpen
			})
		})
	}
}
