package request

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/internal/bb"
)

func TestSettle(t *testing.T) {
	t.Parallel()
	lost := bb.E(bb.Unavailable, "rename", "", "outcome unknown")
	lost.Unknown = true
	var calls []bool
	err := Settle(t.Context(), func(repeated bool) error {
		calls = append(calls, repeated)
		if len(calls) < 3 {
			return lost
		}
		return client.ErrExists
	})
	if !errors.Is(err, client.ErrExists) || len(calls) != 3 || calls[0] || !calls[1] || !calls[2] {
		t.Errorf("%v after %v", err, calls)
	}
}

// TestContext interrupts the request of a program. Its context ends when the program is being killed, not before.
func TestContext(t *testing.T) {
	t.Parallel()
	program := exec.Command("sleep", "1h")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer program.Wait()
	defer program.Process.Kill()
	interrupt := make(chan struct{})
	call := &fuse.Context{Caller: fuse.Caller{Pid: uint32(program.Process.Pid)}, Cancel: interrupt}

	ctx, answered := Context(t.Context(), call)
	defer answered()
	close(interrupt)
	select {
	case <-ctx.Done():
		t.Error("an interruption ends a request whose program lives")
	case <-time.After(10 * attentive):
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()

	ctx, answered = Context(t.Context(), call)
	answered()
	if ctx.Err() == nil {
		t.Error("the context of a request that is answered has not ended")
	}
}
