package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"forebay/client"
	"forebay/client/admin"
)

// TestWriteAtContext ends the context of a write that waits for room. The reported bytes are
// written, and the File continues.
func TestWriteAtContext(t *testing.T) {
	t.Parallel()
	_, c, _ := daemonClient(t, "--memory", "64MiB")
	must[admin.BufferSpec](t)(admin.CreateBuffer(t.Context(), c, admin.BufferSpec{Name: "scratch"})) // nothing is flushed, so there will be no room
	b := c.Buffer("scratch")
	f := must[*client.File](t)(b.Create(t.Context(), "f"))
	data := random(128 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !waiting(c) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	n, err := f.WriteAtContext(ctx, data, 0)
	if !errors.Is(err, client.ErrCancelled) || n == 0 || n == len(data) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	got := make([]byte, 100)
	must[int](t)(f.ReadAtContext(t.Context(), got, 50))
	if !bytes.Equal(got, data[50:150]) {
		t.Error("what was written cannot be read")
	}
	when := time.Unix(1_000_000_000, 7)
	check(t, f.SetModTime(when))
	check(t, f.SyncContext(t.Context()))
	check(t, f.Close())
	if got := readAll(t, b, "f"); !bytes.Equal(got, data[:n]) {
		t.Errorf("the file has %d bytes, or others than the %d that were written", len(got), n)
	}
	if e := must[client.Entry](t)(b.Stat(t.Context(), "f")); !e.ModTime.Equal(when) {
		t.Errorf("its time is %v", e.ModTime)
	}
}

// waiting reports whether a writer waits for room.
func waiting(c *client.Client) bool {
	text, err := admin.Status(context.Background(), c, "")
	if err != nil {
		return true // the test ends with the reason
	}
	var s struct{ Waiting struct{ Writers int } }
	return json.Unmarshal(text, &s) == nil && s.Waiting.Writers > 0
}
