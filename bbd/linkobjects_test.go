package bbd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/fault"
)

// TestLinkOrFileLeftBehind: in a buffer with a codec, a flush put an object without a record under
// a name. When something of the other kind gets the name, with an object of another name, the first
// object goes.
func TestLinkOrFileLeftBehind(t *testing.T) {
	t.Parallel()
	for _, cluster := range []bool{false, true} {
		for _, link := range []bool{false, true} { // whether a link replaces a file, or a file a link
			for _, clean := range []bool{false, true} {
				t.Run(fmt.Sprintf("cluster %v, link %v, clean %v", cluster, link, clean), func(t *testing.T) {
					t.Parallel()
					leftBehindByOther(t, cluster, link, clean)
				})
			}
		}
	}
}

func leftBehindByOther(t *testing.T, cluster, link, clean bool) {
	var n *node
	if cluster {
		n = startCluster(t, 2)[0]
	} else {
		n = startNode(t, nil)
	}
	c, ctx := n.dial(), t.Context()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b", Codec: "zstd"})
	create := func(link bool, path string) {
		t.Helper()
		if !link {
			write(t, b, path, []byte("content"))
		} else if err := b.Symlink(ctx, "target", path); err != nil {
			t.Fatal(err)
		}
	}
	create(link, "new")
	left, want := "name", "name.zst"
	if link {
		left, want = want, left
	}
	if clean {
		drain(t, c, "b")
	} else {
		n.faults.Set(fault.Rule{Op: "put", Kind: fault.Refused})
	}
	n.faults.Set(fault.Rule{Op: "put", Name: left, Kind: fault.Reset, Count: 1}, fault.Rule{Op: "put", Kind: fault.Refused})
	create(!link, "name")
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	g.Go(func() error { admin.Drain(short, c, "b", 0, nil); return nil })
	eventually(t, "the object without a record", func() bool { return isThere(filepath.Join(dir, left)) })
	if err := b.Rename(ctx, "new", "name"); err != nil {
		t.Fatal(err)
	}
	cancel()
	g.Wait()
	n.faults.Set()
	drain(t, c, "b")
	eventually(t, "only the object of what has the name", func() bool { return isThere(filepath.Join(dir, want)) && !isThere(filepath.Join(dir, left)) })
}

// TestLinkNamedAsAnObject: in a buffer with a codec, a link and a file whose objects would have one name do not replace
// each other on the store, under any rule of the buffer for files of others.
func TestLinkNamedAsAnObject(t *testing.T) {
	t.Parallel()
	for _, linkFirst := range []bool{false, true} {
		n := startNode(t, nil)
		c, ctx := n.dial(), t.Context()
		b, dir := n.buffer(c, admin.BufferSpec{Name: "b", Codec: "zstd", Existing: admin.ExistingOverwrite})
		link := func() {
			if err := b.Symlink(ctx, "target", "x.zst"); err != nil {
				t.Fatal(err)
			}
		}
		first, second := "x", "x.zst"
		if linkFirst {
			first, second = second, first
			link()
			drain(t, c, "b")
		}
		write(t, b, "x", []byte("content"))
		if !linkFirst {
			drain(t, c, "b")
			link()
		}
		report, err := admin.Drain(ctx, c, "b", 2*time.Second, nil)
		if report.FailedTotal != 1 || len(report.Failed) != 1 || report.Failed[0].Path != second || !strings.Contains(report.Failed[0].Reason, "rename one of them") {
			t.Errorf("drain of %s: %+v (%v)", second, report, err)
		}
		if is, was := stateOf(t, b, second), stateOf(t, b, first); is != client.StateDirty || was != client.StateClean {
			t.Errorf("%s is %v, %s is %v", second, is, first, was)
		}
		if err := b.Rename(ctx, "x.zst", "y"); err != nil {
			t.Fatal(err)
		}
		drain(t, c, "b")
		wantLinks(t, dir, map[string]string{"y": "target"})
		if info, err := os.Lstat(filepath.Join(dir, "x.zst")); err != nil || !info.Mode().IsRegular() {
			t.Errorf("the file's object: %v (%v)", info, err)
		}
	}
}
