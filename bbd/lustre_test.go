package bbd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client"
	"forebay/client/admin"
	"forebay/flusher/backing/posix/lustre"
	"forebay/internal/bb"
	"forebay/internal/lustretest"
)

// onLustre starts a daemon, whose buffers lie on a Lustre of so many targets.
func onLustre(t *testing.T, targets int, change func(*bbd.Config)) (*node, *lustretest.FS) {
	t.Helper()
	fs := lustretest.Mount(t, t.TempDir(), lustretest.Options{Targets: make([]lustretest.Target, targets)})
	n := startNode(t, func(cfg *bbd.Config) {
		cfg.Lustre.Check = func(context.Context) ([]byte, error) { return []byte(fs.CheckServers()), nil }
		cfg.Lustre.Imports = func() []string { return nil }
		if change != nil {
			change(cfg)
		}
	})
	return n, fs
}

// The layout in a daemon's table or a buffer's URL is that of the files, and is in the answers of stat and in the
// receipt. A stage-out has the one of its own URL.
func TestLayoutsOfBuffers(t *testing.T) {
	t.Parallel()
	n, fs := onLustre(t, 6, func(cfg *bbd.Config) {
		layout, err := lustre.Parse("-E 1M -c 1 -S 1M -E -1 -c 4")
		if err != nil {
			t.Fatal(err)
		}
		cfg.Backing.POSIX.Layouts = []lustre.Rule{{Layout: layout}}
	})
	c := n.dial()
	want := map[string]string{"daemon": "-E 1M -c 1 -S 1M -E -1 -c 4 -S 1M", "own": "-c 3 -S 2M"}
	for name, query := range map[string]string{"daemon": "", "own": "?layout=-c+3+-S+2M"} {
		dir := filepath.Join(fs.Dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b, _ := n.buffer(c, admin.BufferSpec{Name: name, Backing: bb.DirectoryURL(dir) + query})
		write(t, b, "large", random(3<<20))
		write(t, b, "small", random(1<<10))
		drain(t, c, name)
		for file, layout := range map[string]string{"large": want[name], "small": "-c 1 -S 1M"} {
			e, err := b.Stat(t.Context(), file)
			if err != nil || e.Flushed.Layout != layout {
				t.Errorf("%s of %s: %q, %v; want %q", file, name, e.Flushed.Layout, err, layout)
			}
			if got := layoutOf(t, filepath.Join(dir, file)); got != layout {
				t.Errorf("%s of %s has the layout %q, want %q", file, name, got, layout)
			}
			if got := receiptOf(t, c, name)[file]; got != layout {
				t.Errorf("the receipt of %s of %s: %q, want %q", file, name, got, layout)
			}
		}
	}
	to := filepath.Join(fs.Dir, "out")
	report, err := admin.StageOut(t.Context(), c, admin.StageRequest{Buffer: "own", URL: bb.DirectoryURL(to) + "?" + url.Values{"layout": {"-c 2"}}.Encode()}, nil)
	if err != nil || len(report.Failed) > 0 {
		t.Fatalf("%v, %v", err, report.Failed)
	}
	if got := layoutOf(t, filepath.Join(to, "large")); got != "-c 2 -S 1M" {
		t.Errorf("what was staged out has the layout %q", got)
	}
	_, err = admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "bad", Backing: bb.DirectoryURL(fs.Dir) + "?layout=-c+0"})
	if bb.KindOf(err) != bb.Invalid || !strings.Contains(err.Error(), "stripe count") {
		t.Errorf("a layout that Lustre would refuse: %v", err)
	}
}

func layoutOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return lustre.Of(f).String()
}

// receiptOf returns the layouts in a buffer's receipt.
func receiptOf(t *testing.T, c *client.Client, buffer string) map[string]string {
	t.Helper()
	var text bytes.Buffer
	if err := admin.Receipt(t.Context(), c, buffer, &text); err != nil {
		t.Fatal(err)
	}
	layouts := map[string]string{}
	for line := range bytes.Lines(text.Bytes()) {
		var l struct{ Path, Layout string }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		layouts[l.Path] = l.Layout
	}
	return layouts
}

// While a target does not answer, status names it, with the state of its import where that can be read. When it answers,
// waiting files are flushed.
func TestSilentTargetOfLustre(t *testing.T) {
	t.Parallel()
	var fs *lustretest.FS
	n, fs := onLustre(t, 3, func(cfg *bbd.Config) {
		cfg.Lustre.Imports = func() []string { return []string{"scratch-OST0001 (DISCONN)"} }
	})
	c := n.dial()
	b, dir := n.buffer(c, admin.BufferSpec{Name: "b", Backing: bb.DirectoryURL(fs.Dir)})
	fs.Silence(1)
	fs.Silence(2)
	for _, name := range []string{"f", "g", "h"} {
		write(t, b, name, random(10))
	}
	fs.AwaitCalls(2)
	eventually(t, "the targets are named", func() bool {
		s := n.storeOf()
		return s.State == "silent" && slices.Equal(s.Targets, []string{"scratch-OST0001 (DISCONN)", "scratch-OST0002"})
	})
	fs.Evict(1) // calls that wait for it fail, and are retried
	fs.Answer(2)
	drain(t, c, "b")
	if got := n.storeOf(); got.State != "answers" || got.Targets != nil {
		t.Errorf("when all answer: %+v", got)
	}
	entries, err := os.ReadDir(fs.Dir)
	if err != nil || len(entries) != 3 || dir == "" {
		t.Errorf("%v, %v", entries, err)
	}
}
