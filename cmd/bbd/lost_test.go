package main

import (
	"errors"
	"slices"
	"testing"

	"forebay/client"
	"forebay/internal/bbdtest"
	"forebay/internal/clustertest"
)

// A machine that dies takes what was synced to a file that is still open with it. That
// is said of the file, whose entry knew no size yet; of an empty one nothing is lost.
func TestOpenFileLostWithItsNode(t *testing.T) {
	d := bbdtest.New(t)
	d.Config = `
listen: {admin: "127.0.0.1:0"}
memory: {size: 128MiB, region_size: 64MiB}
`
	d.Start()
	c := dial(t, d)
	ctx := t.Context()
	if _, err := c.CreateBuffer(ctx, client.BufferSpec{Name: "lost"}); err != nil {
		t.Fatal(err)
	}
	b := c.Buffer("lost")
	if err := b.WriteFile(ctx, "empty", nil, 0); err != nil {
		t.Fatal(err)
	}
	f, err := b.Create(ctx, "open")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(clustertest.Content(2, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	instance := c.Server().Instance
	d.Crash()
	c.Close()
	d.Start()
	c = dial(t, d)
	b = c.Buffer("lost")
	if c.Server().Instance == instance {
		t.Error("the daemon came back as the same instance")
	}
	if p, err := b.ReadFile(ctx, "open"); !errors.Is(err, client.ErrLost) {
		t.Errorf("the open file: %d bytes, %v", len(p), err)
	}
	if p, err := b.ReadFile(ctx, "empty"); err != nil || len(p) != 0 {
		t.Errorf("the empty file: %d bytes, %v", len(p), err)
	}
	lost, err := c.Lost(ctx, "lost")
	if err != nil || len(lost) != 1 || !slices.ContainsFunc(lost, func(e client.Entry) bool { return e.Path == "open" }) {
		t.Errorf("lost are %+v (%v)", lost, err)
	}
}
