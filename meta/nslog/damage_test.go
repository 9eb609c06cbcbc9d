package nslog_test

import (
	"fmt"
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/embedded"
	"forebay/meta/metatest"
	"forebay/meta/nslog"
)

// blocky fills the log of a namespace with records until it has some blocks of 8 MiB, and stops the server.
func blocky(t *testing.T, dir string, records int, checkpoint bool) {
	t.Helper()
	ctx := metatest.Context(t)
	server := metatest.StartServer(t, dir)
	e := openOn(t, newStream(t, server), nslog.Options{Node: "me", CheckpointBytes: 1 << 30})
	for i := range records {
		if _, _, err := e.Records().Create(ctx, fmt.Sprint("record.", i), make([]byte, 250<<10), 0); err != nil {
			t.Fatal(err)
		}
	}
	if checkpoint {
		if err := e.Checkpoint(ctx); err != nil {
			t.Fatal(err)
		}
	}
	e.Close()
	server.Shutdown()
}

// A log with a block that the server cannot read is refused, with the loss and a remedy. No call
// waits for the block: not for records in the middle, the newest record of all, or pages.
func TestUnreadableBlock(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		records, block int
		checkpoint     bool
	}{
		"records":           {70, 2, false},
		"the first records": {70, 1, false},
		"the newest record": {40, 2, true},
		"pages":             {50, 3, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			blocky(t, dir, c.records, c.checkpoint)
			if n := metatest.Blocks(t, dir, "NS_buf"); n <= c.block {
				t.Fatalf("there are %d blocks", n)
			}
			metatest.HideBlock(t, dir, "NS_buf", c.block)
			server, err := embedded.Start(metatest.Context(t), embedded.Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Shutdown()
			_, err = nslog.Open(metatest.Context(t), newStream(t, server), newIDs(), nslog.Options{Buffer: "buf", Logger: metatest.Logger(t)})
			if bb.KindOf(err) != bb.Lost || !strings.Contains(err.Error(), "copy of the namespace server's folder") {
				t.Errorf("opened: %v", err)
			}
		})
	}
}
