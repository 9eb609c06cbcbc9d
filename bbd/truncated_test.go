package bbd_test

import (
	"errors"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
)

// rewrite opens a file to replace its content, waits until its owner has opened it, and writes
// bytes that are not committed.
func rewrite(t *testing.T, b *client.Buffer, name string, content []byte) *client.File {
	t.Helper()
	f, err := b.OpenFile(limited(t, time.Minute), name, client.OpenOptions{Write: true, Truncate: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestClusterTruncatedAcrossRestart replaces the content of a file by a shorter one, at another node
// than its owner's, and restarts the owner before anything is committed. The generation that began
// from nothing is gone with it. The one that the commit is repeated to begins from nothing, too.
func TestClusterTruncatedAcrossRestart(t *testing.T) {
	t.Parallel()
	for name, committed := range map[string]bool{"close": false, "sync and close": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t, 2)
			c := nodes[0].dial()
			scratch(t, c, "shared")
			write(t, c.Buffer("shared"), "f", random(150_288))
			c.Close()
			there := nodes[1].dial().Buffer("shared")
			fresh := random(50_191)
			f := rewrite(t, there, "f", fresh)
			nodes[0].stop()
			nodes[0].start()
			if committed {
				if err := f.Sync(); err != nil {
					t.Fatal(err)
				}
				wantFile(t, there, "f", fresh)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			wantFile(t, there, "f", fresh)
			wantFile(t, nodes[0].dial().Buffer("shared"), "f", fresh)
		})
	}
}

// TestClusterTruncatedWhileWriterIsAway replaces the content of a file whose writer at another node has
// lost its connection to the owner and may come back. That writer's commits are no part of the new
// content, and its later commit fails.
func TestClusterTruncatedWhileWriterIsAway(t *testing.T) {
	t.Parallel()
	for name, committed := range map[string]bool{"nothing committed": false, "committed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startClusterWith(t, 2, func(c *bbd.Config) { c.ResumeGrace = time.Minute })
			b := scratch(t, nodes[0].dial(), "shared")
			write(t, b, "f", random(150_288))
			away, err := nodes[1].dial().Buffer("shared").OpenFile(limited(t, time.Minute), "f", client.OpenOptions{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			defer away.Abort()
			late := random(100_000)
			if _, err := away.WriteAt(late, 0); err != nil {
				t.Fatal(err)
			}
			if committed {
				if err := away.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			nodes[1].daemon.BreakSessions("n1")
			eventually(t, "the owner has heard of it", func() bool {
				files, writers := nodes[0].daemon.OpenFiles("shared")
				return files == 1 && writers == 0
			})
			fresh := random(50_191)
			write(t, b, "f", fresh)
			wantFile(t, b, "f", fresh)
			if !committed {
				return // the writer has begun nothing that ended, and continues with the present content
			}
			if _, err := away.WriteAt(late, 0); err != nil {
				t.Fatal(err)
			}
			if err := away.Close(); !errors.Is(err, client.ErrLost) {
				t.Errorf("the writer whose generation was replaced: %v", err)
			}
			wantFile(t, b, "f", fresh)
		})
	}
}

// TestClusterTruncatedByTwoAcrossRestart has two writers of one file that both open it to replace its content, each
// for its half. The owner is restarted before anything is committed. The one whose commit comes second keeps bytes
// reported as safe to the first.
func TestClusterTruncatedByTwoAcrossRestart(t *testing.T) {
	t.Parallel()
	for name, syncs := range map[string]bool{"closed": false, "synced first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nodes := startCluster(t, 2)
			b := scratch(t, nodes[0].dial(), "shared")
			write(t, b, "f", random(150_288))
			all := random(100_000)
			var files []*client.File
			for i := range 2 {
				f, err := nodes[1].dial().Buffer("shared").OpenFile(limited(t, time.Minute), "f", client.OpenOptions{Write: true, Create: true, Truncate: true})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt(all[i*50_000:(i+1)*50_000], int64(i*50_000)); err != nil {
					t.Fatal(err)
				}
				files = append(files, f)
			}
			eventually(t, "both have opened it at its owner", func() bool {
				_, writers := nodes[0].daemon.OpenFiles("shared")
				return writers == 2
			})
			nodes[0].stop()
			nodes[0].start()
			for i, f := range files {
				if !syncs {
					continue
				}
				if err := f.Sync(); err != nil {
					t.Errorf("sync %d: %v", i, err)
				}
			}
			for i, f := range files {
				if err := f.Close(); err != nil {
					t.Errorf("close %d: %v", i, err)
				}
			}
			wantFile(t, nodes[0].dial().Buffer("shared"), "f", all)
		})
	}
}
