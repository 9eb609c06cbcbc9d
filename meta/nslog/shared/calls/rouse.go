package calls

import (
	"context"
	"fmt"
	"time"

	"forebay/internal/bb"
)

// Rouse has a daemon that serves a log make that again, if it is gone, and reports whether it does. The daemon may take a
// while for each of two answers. If it serves the log and does not confirm that in time, as one without the log's server,
// the error is of kind Unavailable. There is none if it is not known to serve the log.
func Rouse(ctx context.Context, within time.Duration, c Call, send func(context.Context, *Call) (*Answer, error)) (is bool, err error) {
	c.Op, c.Restores = OpConfirm, true
	call := func() (*Answer, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return send(ctx, &c)
	}
	a, err := call()
	if err != nil || a.Status != OtherIncarnation {
		return false, nil
	}
	c.Owner = a.Owner
	if a, err = call(); err != nil {
		return false, &bb.Error{Kind: bb.Unavailable, Op: "confirm", Err: fmt.Errorf("a daemon owns the namespace, and does not confirm that in time: %w", err), Remedy: "see whether it reaches the NATS server, and repeat this"}
	}
	return a.Status == Served && a.Failure == nil, nil
}
