// Package open makes a store of a backing URL and stacks the wrappers on it. It
// is the only place that knows all of them.
package open

import (
	"context"

	"golang.org/x/time/rate"

	"forebay/flusher/backing"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/limit"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/retry"
	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
)

// Options configures the adaptors and wrappers.
type Options struct {
	Owner    backing.Owner // given to the adaptors
	POSIX    posix.Options
	S3       s3.Options
	Retry    retry.Options
	Limiters []*rate.Limiter // all of them hold; see package limit
	Faults   *fault.Plan     // for tests and rehearsals; nil: none
}

// Open returns the store of file:///path or s3://bucket/prefix?…, as
// bb.ParseBacking reads it:
//
//	caller → retry → limit → fault → posix or s3
//
// Retrying is outermost, so that a repeated attempt pays for its bytes again. Open
// makes no directory and asks no server: see Check.
func Open(ctx context.Context, url string, opts Options) (backing.Store, error) {
	where, err := bb.ParseBacking(url)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, bb.Wrap("open backing", url, err)
	}
	store, err := adaptor(where, opts)
	if err != nil {
		return nil, err
	}
	if opts.Faults != nil {
		store = fault.Wrap(store, opts.Faults)
	}
	if len(opts.Limiters) > 0 {
		store = limit.Wrap(store, opts.Limiters...)
	}
	return retry.Wrap(store, opts.Retry), nil
}

func adaptor(where bb.Backing, opts Options) (backing.Store, error) {
	switch where.Scheme {
	case "file":
		opts.POSIX.Owner = opts.Owner
		return posix.Open(where.Path, opts.POSIX)
	case "s3":
		opts.S3.Owner = opts.Owner
		return s3.Open(where, opts.S3)
	default:
		return nil, bb.E(bb.Unsupported, "open backing", where.Scheme, "no adaptor knows this scheme")
	}
}
