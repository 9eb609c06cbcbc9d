package bbd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// TestTierWithoutDisk: a rule for a tier that no daemon has is refused, with a remedy.
func TestTierWithoutDisk(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func() *node{
		"alone": func() *node { return startNode(t, nil) }, "cluster": func() *node { return startCluster(t, 2)[1] },
	} {
		spec := admin.BufferSpec{Name: "tiers", Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}}}
		_, err := admin.CreateBuffer(t.Context(), start().dial(), spec)
		if !errors.Is(err, client.ErrUnsupported) || !strings.Contains(err.Error(), "*=disk") || !strings.Contains(err.Error(), "disk.dir") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTiers: files of one client that belong on disk go there though memory has room, and those
// beside them stay in memory. So it is after a restart.
func TestTiers(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	n := startNode(t, func(c *bbd.Config) {
		c.Store.MemoryBytes, c.Store.DiskDir, c.Store.DiskBytes = 256<<20, disk, 256<<20
	})
	eventually(t, "memory is populated: nobody waits for room", func() bool { s := n.status(); return s.Memory.Free >= 200<<20 })
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused}) // clean bytes could be evicted
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "tiers", Tiers: []admin.TierRule{
		{Pattern: "WALs/", Tier: admin.TierMemory}, {Pattern: "*", Tier: admin.TierDisk},
	}})
	const logged = 8 << 20
	contents := map[string][]byte{"WALs/w": random(logged), "h": random(60 << 20)}
	if err := b.MkdirAll(t.Context(), "WALs", 0o755); err != nil {
		t.Fatal(err)
	}
	log, table := openWriter(t, b, "WALs/w"), openWriter(t, b, "h")
	for at := 0; at < len(contents["h"]); at += 1 << 20 {
		addTo(t, table, contents["h"][at:at+1<<20])
		if at < logged {
			addTo(t, log, contents["WALs/w"][at:at+1<<20])
		}
	}
	for _, f := range []*client.File{log, table} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 300 { // which travel in messages; the daemon puts them into segments
		name := fmt.Sprint("small", i)
		contents[name] = random(8000 + i)
		write(t, b, name, contents[name])
	}
	settled := func(when string, most int64) {
		t.Helper()
		eventually(t, when+": what belongs on disk goes there", func() bool {
			s := n.status()
			return s.Memory.Live <= most && s.Disk.Live >= 16<<20
		})
		if s := n.status(); s.Memory.Live < logged {
			t.Errorf("%s: %d bytes are left in memory, where %d belong", when, s.Memory.Live, logged)
		}
		onDisk := allRegions(t, disk)
		for at := 1000; at < logged; at += 1 << 18 {
			if bytes.Contains(onDisk, contents["WALs/w"][at:at+100]) {
				t.Errorf("%s: what belongs in memory is on disk, at %d", when, at)
			}
		}
		for name, content := range contents {
			wantFile(t, b, name, content)
		}
	}
	settled("at first", logged+44<<20) // segments that may still be filled stay
	c.Close()
	n.stop()
	n.start()
	b = n.dial().Buffer("tiers")
	settled("after a restart", logged+4096)
}

// TestTiersWithoutDisk: a node that has lost its disk tier keeps the disk's files in memory.
func TestTiersWithoutDisk(t *testing.T) {
	t.Parallel()
	n := startNode(t, func(c *bbd.Config) { c.Store.DiskDir, c.Store.DiskBytes = t.TempDir(), 128<<20 })
	c := n.dial()
	n.buffer(c, admin.BufferSpec{Name: "tiers", Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}}})
	c.Close()
	n.stop()
	n.change = nil
	n.start()
	b := n.dial().Buffer("tiers")
	content := random(9 << 20)
	write(t, b, "f", content)
	wantFile(t, b, "f", content)
}

// TestTiersElsewhere: so it is with files of clients that write over the network, and of other owners.
func TestTiersElsewhere(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	nodes := startCluster(t, 2)
	nodes[0].stop()
	change := nodes[0].change
	nodes[0].change = func(c *bbd.Config) {
		if change != nil {
			change(c)
		}
		c.Store.DiskDir, c.Store.DiskBytes = disk, 128<<20
	}
	nodes[0].start()
	c := nodes[0].dial()
	if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "shared", Tiers: []admin.TierRule{{Pattern: "cold/", Tier: admin.TierDisk}}}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("shared")
	if err := b.MkdirAll(t.Context(), "cold", 0o755); err != nil {
		t.Fatal(err)
	}
	owner := openWriter(t, b, "cold/f") // its owner is this node …
	addTo(t, owner, []byte("x"))
	if err := owner.Sync(); err != nil {
		t.Fatal(err)
	}
	content := random(24 << 20)
	there := openWriter(t, nodes[1].dial().Buffer("shared"), "cold/f")
	if _, err := there.WriteAt(content, 0); err != nil { // … and its bytes come from the other
		t.Fatal(err)
	}
	for _, f := range []*client.File{there, owner} {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "what another node's client writes goes to the owner's disk", func() bool { return nodes[0].status().Disk.Live >= 8<<20 })
	wantFile(t, b, "cold/f", content)
}

// TestTiersOfAttempts: files of a transaction's attempt lie where the rules for the
// destination have it, before it is committed.
func TestTiersOfAttempts(t *testing.T) {
	t.Parallel()
	for _, destination := range []string{"warm", "cold/out"} {
		t.Run(destination, func(t *testing.T) {
			n := startNode(t, func(c *bbd.Config) { c.Store.DiskDir, c.Store.DiskBytes = t.TempDir(), 128<<20 })
			b, _ := n.buffer(n.dial(), admin.BufferSpec{Name: "tiers", Tiers: []admin.TierRule{{Pattern: "cold/", Tier: admin.TierDisk}}})
			x := begin(t, b, client.TxnSpec{Destination: destination})
			dir := x.Path("t", "a")
			if err := b.MkdirAll(t.Context(), dir, 0o755); err != nil {
				t.Fatal(err)
			}
			content := random(24 << 20) // more than a segment, which may be in memory while it is filled
			write(t, b, dir+"/part", content)
			if destination == "warm" {
				if s := n.status(); s.Disk.Live != 0 || s.Memory.Live < int64(len(content)) {
					t.Errorf("what belongs in memory: %d bytes are there, %d on disk", s.Memory.Live, s.Disk.Live)
				}
			} else {
				eventually(t, "what belongs on disk goes there", func() bool { return n.status().Disk.Live >= 8<<20 })
			}
			adopt(t, x, "t", "a")
			if _, err := x.Commit(t.Context(), client.CommitOptions{}); err != nil {
				t.Fatal(err)
			}
			wantFile(t, b, destination+"/part", content)
		})
	}
}

func openWriter(t *testing.T, b *client.Buffer, name string) *client.File {
	t.Helper()
	f, err := b.OpenFile(t.Context(), name, client.OpenOptions{Write: true, Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func addTo(t *testing.T, f *client.File, p []byte) {
	t.Helper()
	if _, err := f.Write(p); err != nil {
		t.Fatal(err)
	}
}

// allRegions returns the bytes of all region files below a directory.
func allRegions(t *testing.T, dir string) (all []byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "region-*[0-9a-f]"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}

// TestClusterReplicaOutlivedByDiskTier: a file has a second copy at another node when its owner
// loses its memory and keeps a part of the file on disk. The second copy is the file, not that
// part, whether the file was open or closed. That holds too if the owner is started again before
// the other one answers.
func TestClusterReplicaOutlivedByDiskTier(t *testing.T) {
	t.Parallel()
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprintf("open=%v", open), func(t *testing.T) {
			disk := t.TempDir()
			nodes := startCluster(t, 3)
			owner := nodes[0]
			change := owner.change
			owner.stop()
			owner.change = func(c *bbd.Config) {
				change(c)
				// Less than the file, so some of it stays in memory, however long the owner runs.
				c.Store.DiskDir, c.Store.DiskBytes, c.Store.RegionBytes = disk, 16<<20, 16<<20
			}
			owner.start()
			c := owner.dial()
			if _, err := admin.CreateBuffer(t.Context(), c, admin.BufferSpec{
				Name: "two", Replicas: 2, Tiers: []admin.TierRule{{Pattern: "*", Tier: admin.TierDisk}},
			}); err != nil {
				t.Fatal(err)
			}
			want := random(20 << 20)
			second := outliveHalf(t, nodes, want, open)
			owner.away() // first, since it would make another second copy
			owner.wipe()
			second.away() // the owner cannot request it yet
			owner.start()
			owner.stop()
			owner.start()
			second.start()
			there := second.dial().Buffer("two")
			eventually(t, "the second node is its owner", func() bool {
				e, err := there.Stat(t.Context(), "f")
				return err == nil && (e.State == client.StateLost || len(e.Holders) > 0 && e.Holders[0] == second.name)
			})
			wantFile(t, there, "f", want)
			wantFile(t, owner.dial().Buffer("two"), "f", want)
		})
	}
}

// outliveHalf writes a file whose owner is the first node, and of which some is on that
// node's disk and the rest in its memory. It returns the node with the second copy.
func outliveHalf(t *testing.T, nodes []*node, want []byte, open bool) (second *node) {
	t.Helper()
	b := nodes[0].dial().Buffer("two")
	first := openWriter(t, b, "f")
	addTo(t, first, want[:1])
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	// A writer at another node may come back. The file stays open when its owner stops.
	f := openWriter(t, nodes[2].dial().Buffer("two"), "f")
	commit := func(from, to int) {
		t.Helper()
		if _, err := f.WriteAt(want[from:to], int64(from)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	for at := 0; at < len(want); at += 1 << 20 {
		commit(at, at+1<<20)
	}
	eventually(t, "some of it is on disk", func() bool { return nodes[0].status().Disk.Live >= 4<<20 })
	copy(want[1<<20:], random(1<<20))
	commit(1<<20, 2<<20)
	if !open {
		for _, w := range []*client.File{first, f} {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	e, err := b.Stat(t.Context(), "f")
	if err != nil || (e.State == client.StateOpen) != open || len(e.Holders) != 2 || e.Holders[0] != nodes[0].name {
		t.Fatalf("it is %+v (%v)", e, err)
	}
	for _, n := range nodes[1:] {
		if n.name == e.Holders[1] {
			second = n
		}
	}
	return second
}
