// Package request has the lifetime of one request of the kernel, and repeats changes whose outcome
// is not known. It must never depend on the subject of a request.
package request

import (
	"context"
	"errors"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"forebay/client"
	"forebay/cmd/bbmount/killed"
)

// Context returns the context of one request of the kernel. It ends with base, and when the process that
// waits for the request is being killed, not when it has another signal to handle. A handler runs when
// the call has returned, as on any disk, and no program gets EINTR from open or stat. Call the returned
// function when the request is answered.
func Context(base, ctx context.Context) (context.Context, func()) {
	inner, cancel := context.WithCancel(base)
	caller, ok := fuse.FromContext(ctx)
	if !ok {
		return inner, cancel
	}
	pid, interrupted := caller.Pid, ctx.Done()
	// Most requests are answered sooner than a goroutine that waits for their interruption could begin.
	late := time.AfterFunc(attentive, func() {
		select {
		case <-interrupted: // the kernel interrupts a request once, despite further signals
			killed.Await(inner, pid)
			cancel()
		case <-inner.Done():
		}
	})
	return inner, func() {
		late.Stop()
		cancel()
	}
}

// attentive is how long a request takes at least, until an interruption of it counts.
const attentive = 10 * time.Millisecond

// Settle carries out a change of names until its outcome is known. When the connection to the
// daemon breaks, do is called again with repeated set. The change may have been carried out by
// then, which do checks.
func Settle(ctx context.Context, do func(repeated bool) error) error {
	for repeated := false; ; repeated = true {
		err := do(repeated)
		if !errors.Is(err, client.ErrUnknownOutcome) || ctx.Err() != nil {
			return err
		}
	}
}

// Caller returns the user whose program made a request of the kernel.
func Caller(ctx context.Context) fuse.Owner {
	if c, ok := fuse.FromContext(ctx); ok {
		return c.Owner
	}
	return fuse.Owner{}
}

// Thread returns the number of the thread that made a request of the kernel, 0 if this process cannot see it.
func Thread(ctx context.Context) uint32 {
	if c, ok := fuse.FromContext(ctx); ok {
		return c.Pid
	}
	return 0
}
