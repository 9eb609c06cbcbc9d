package bbd_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// find returns the region file, and the offset in it, where bytes lie.
func (n *node) find(content []byte) (path string, at int64) {
	n.t.Helper()
	paths, err := filepath.Glob(n.shm() + "/region-*")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			n.t.Fatal(err)
		}
		if i := bytes.Index(text, content); i >= 0 {
			return path, int64(i)
		}
	}
	n.t.Fatal("the bytes are in no region")
	return "", 0
}

// A byte of one file is flipped in memory. No reader gets the file, it is not flushed, and all else
// continues.
func TestDamagedMemory(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 70_000, 3 << 20, 9 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			n := startNode(t, func(cfg *bbd.Config) {
				cfg.Flush.Backoff = [2]time.Duration{10 * time.Millisecond, 50 * time.Millisecond}
			})
			c := n.dial()
			b, dir := n.buffer(c, admin.BufferSpec{Name: "hurt"})
			n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused}) // nothing is flushed before the damage
			contents := map[string][]byte{"before": random(size), "victim": random(size), "after": random(size)}
			for _, name := range []string{"before", "victim", "after"} {
				write(t, b, name, contents[name])
			}
			path, at := n.find(contents["victim"][size/2 : size/2+50])
			flipByte(t, path, at+20)
			got, err := b.ReadFile(t.Context(), "victim")
			if !errors.Is(err, client.ErrChecksum) || !strings.Contains(err.Error(), "victim") {
				t.Errorf("reading the damaged file: %d bytes, %v", len(got), err)
			}
			wantFile(t, b, "before", contents["before"])
			wantFile(t, b, "after", contents["after"])

			n.faults.Set()
			var report admin.Report
			eventually(t, "a drain leaves the damaged file alone", func() bool { // a busy machine needs several
				report, err = admin.Drain(t.Context(), c, "hurt", time.Second, nil)
				return report.FailedTotal == 1 && report.Failed[0].Kind != client.ErrBusy // else its flush has not ended
			})
			if err == nil || report.FailedTotal != 1 || report.Failed[0].Path != "victim" || report.Failed[0].Kind != client.ErrChecksum {
				t.Errorf("drain: %+v (%v)", report, err)
			}
			for _, name := range []string{"before", "after"} {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, contents[name]) {
					t.Errorf("%s in the store: %d bytes (%v)", name, len(got), err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "victim")); err == nil {
				t.Error("the damaged file is in the store")
			}
			e, err := b.Stat(t.Context(), "victim")
			if err != nil || e.State != client.StateDirty || !strings.Contains(e.Reason, "checksum") {
				t.Errorf("the damaged file is %v: %q (%v)", e.State, e.Reason, err)
			}
			s := n.status().Buffers[0]
			if s.LastError == nil || s.LastError.Kind != "checksum" || s.LastError.Path != "victim" || s.Dirty == 0 {
				t.Errorf("status: %+v, %+v", s, s.LastError)
			}
			flipByte(t, path, at+20) // the byte is as it was, so all is well again
			drain(t, c, "hurt")
			wantFile(t, b, "victim", contents["victim"])
		})
	}
}

// A commit record is damaged while the daemon is away. Its file is lost, and reported as lost. It
// has neither another file's content nor an older one.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "hurt"})
	contents := map[string][]byte{}
	put := func(name string) {
		contents[name] = random(10_000)
		write(t, b, name, contents[name])
	}
	put("clean")
	put("rewritten")
	drain(t, c, "hurt")
	n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused}) // later files stay dirty
	put("rewritten")                                         // a dirty generation upon a clean one
	for i := range 20 {
		put(fmt.Sprint("dirty", i))
	}
	type spot struct {
		path string
		at   int64
	}
	var spots []spot
	for _, name := range []string{"clean", "rewritten", "dirty7"} {
		e, err := b.Stat(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		// The record of a file of one extent holds its length and then its checksum. The file's
		// identity, beside it, holds both in another form.
		record := binary.LittleEndian.AppendUint32(nil, uint32(e.Size))
		path, at := n.find(binary.LittleEndian.AppendUint64(record, e.Checksum))
		spots = append(spots, spot{path, at + 4})
	}
	c.Close()
	n.stop()
	for _, s := range spots {
		flipByte(t, s.path, s.at+3)
	}
	n.start()
	c = n.dial()
	b = c.Buffer("hurt")
	if s := n.status(); len(s.Damaged) != len(spots) {
		t.Errorf("damaged: %q", s.Damaged)
	}
	if got := n.metric("forebay_damaged_records_total"); got != float64(len(spots)) {
		t.Errorf("%v damaged records are counted, want %d", got, len(spots))
	}
	lost, err := c.Buffer("hurt").Lost(t.Context())
	names := map[string]bool{}
	for _, e := range lost {
		names[e.Path] = e.Reason != "" && e.State == client.StateLost
	}
	if err != nil || len(names) != 2 || !names["rewritten"] || !names["dirty7"] {
		t.Errorf("lost: %+v (%v)", lost, err)
	}
	for name, content := range contents {
		if !names[name] {
			wantFile(t, b, name, content) // the clean one comes back from the store
			continue
		}
		if got, err := b.ReadFile(t.Context(), name); !errors.Is(err, client.ErrLost) {
			t.Errorf("reading %s: %d bytes, %v", name, len(got), err)
		}
	}
	write(t, b, "dirty7", []byte("again")) // a lost name can be written anew
	wantFile(t, b, "dirty7", []byte("again"))
}

// A user may cut the files of their own regions short. Reading the lost part is an error for that user.
// The daemon's next writes lie elsewhere.
func TestRegionCutShort(t *testing.T) {
	n := startNode(t, nil)
	c := n.dial()
	b, _ := n.buffer(c, admin.BufferSpec{Name: "short", NoFlush: []string{"*"}})
	content := random(5000)
	write(t, b, "first", content)
	path, at := n.find(content[:100])
	if err := os.Truncate(path, at/(1<<20)*(1<<20)); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{100, 5000} {
		second := random(size)
		write(t, b, "second", second)
		wantFile(t, b, "second", second)
	}
	if _, err := b.ReadFile(t.Context(), "first"); err == nil {
		t.Error("bytes that are gone were read")
	}
	if e, err := b.Stat(t.Context(), "first"); err != nil || e.Size != int64(len(content)) {
		t.Errorf("the daemon answers: %+v, %v", e, err)
	}
}
