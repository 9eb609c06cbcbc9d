package client_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/internal/bb"
)

// TestRegisterMemory: reads into registered memory return the written bytes. Memory is registered once.
func TestRegisterMemory(t *testing.T) {
	t.Parallel()
	_, dial := farDaemon(t)
	ctx := context.Background()
	c := dial()
	b, data := c.Buffer("open"), random(5<<20)
	check(t, b.WriteFile(ctx, "f", data, 0))
	mem := must[[]byte](t)(unix.Mmap(-1, 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))
	kept, err := client.RegisterMemory(mem)
	check(t, err)
	f := must[*client.File](t)(b.Open(ctx, "f"))
	if n, err := f.ReadAt(mem, 0); err != nil || n != len(data) || !bytes.Equal(mem, data) {
		t.Errorf("%d bytes that differ (%v)", n, err)
	}
	wantFar(t, c)
	check(t, f.Close())
	var e *bb.Error
	if _, err := client.RegisterMemory(mem[4096:]); !errors.As(err, &e) || e.Kind != bb.Invalid || e.Op != "keep" || e.Remedy == "" {
		t.Errorf("kept twice: %v", err)
	}
	check(t, kept.Close())
	again, err := client.RegisterMemory(mem[4096:])
	check(t, err)
	check(t, again.Close())
	check(t, unix.Munmap(mem))
}
