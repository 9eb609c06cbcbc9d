// Package open makes a store of a backing URL and stacks the wrappers on it. It
// is the only place that imports all of them. It must never decide who may use a store.
package open

import (
	"context"
	"os"

	"golang.org/x/time/rate"

	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/detach"
	"forebay/flusher/backing/fault"
	"forebay/flusher/backing/health"
	"forebay/flusher/backing/limit"
	"forebay/flusher/backing/posix"
	"forebay/flusher/backing/posix/lustre"
	"forebay/flusher/backing/retry"
	"forebay/flusher/backing/s3"
	"forebay/internal/bb"
)

// Options configures the adaptors and wrappers.
type Options struct {
	Owner backing.Owner // given to the adaptors
	// Mark is kept with directories that the store makes. DirOptions.Keep then concerns those
	// without it. "": none is.
	Mark string
	// Changed is called with the name of a confirmed object that a late request has overwritten or
	// removed. It may be called concurrently. Nil: it is not put again.
	Changed  func(name string)
	POSIX    posix.Options
	S3       s3.Options
	Retry    retry.Options
	Limiters []*rate.Limiter // all of them hold; see package limit
	Faults   *fault.Plan     // for tests and rehearsals; nil: none
	// Calls counts the hanging calls in a file system. Stores that share it share its bound. Nil:
	// one for this store.
	Calls *detach.Calls
	// Health, if not nil, watches the calls.
	Health *health.Health
	// Workers, if not nil, reach file systems as User. If it is nil, or this process is that user, it
	// reaches them itself, unless the file system is of servers.
	Workers *asuser.Workers
	User    asuser.User
	// OfServers reports that the file system's servers may be away. A call then waits in the kernel, and
	// the process of that call cannot end before they answer.
	OfServers bool
}

// byWorker reports whether a file system is reached by a store worker.
func (o *Options) byWorker() bool {
	return o.Workers != nil && (o.OfServers || o.User.UID != uint32(os.Geteuid()))
}

// Open returns the store of file:///path or s3://bucket/prefix?…, as
// bb.ParseBacking reads it:
//
//	caller → retry → limit → health → fault → asuser (posix in a store worker), or detach → posix
//	caller → retry → limit → health → fault → s3
//
// Retrying is outermost, so that a repeated attempt pays for its bytes again, and is a call of its
// own for Health. Open makes no directory and sends no request: see Check. It returns when ctx
// ends, also if the file system does not answer.
func Open(ctx context.Context, url string, opts Options) (backing.Store, error) {
	where, err := bb.ParseBacking(url)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, bb.Wrap("open backing", url, err)
	}
	store, err := adaptor(ctx, where, opts)
	if err != nil {
		return nil, err
	}
	if opts.Faults != nil {
		store = fault.Wrap(store, opts.Faults)
	}
	if opts.Health != nil {
		store = health.Wrap(store, opts.Health)
	}
	if len(opts.Limiters) > 0 {
		store = limit.Wrap(store, opts.Limiters...)
	}
	return retry.Wrap(store, opts.Retry), nil
}

// Identify identifies the root of a backing URL now, for posix.Options.Root. It returns "" where
// the URL is identity enough. It returns when ctx ends.
func Identify(ctx context.Context, url string, opts Options) (string, error) {
	where, err := bb.ParseBacking(url)
	if err != nil || !where.IsDirectory() {
		return "", err
	}
	if opts.byWorker() {
		store, err := asuser.Open(ctx, opts.Workers, opts.User, where.Path, posix.Options{})
		if err != nil {
			return "", err
		}
		return store.Identity(), store.Close()
	}
	calls := opts.Calls
	if calls == nil {
		calls = &detach.Calls{}
	}
	return detach.Do(ctx, calls, "open backing", where.Path, func(context.Context) (string, error) {
		return posix.Identify(where.Path)
	}, func(string) {})
}

func adaptor(ctx context.Context, where bb.Backing, opts Options) (backing.Store, error) {
	switch where.Scheme {
	case "file":
		opts.POSIX.Owner, opts.POSIX.Mark = opts.Owner, opts.Mark
		if where.Layout != "" {
			layout, err := lustre.Parse(where.Layout)
			if err != nil {
				return nil, bb.E(bb.Invalid, "open backing", where.Path, "the layout is refused: "+err.Error()).
					WithRemedy("write options of lfs setstripe, such as ?layout=-c+4+-S+4M")
			}
			opts.POSIX.Layouts = []lustre.Rule{{Layout: layout}}
		}
		if opts.byWorker() {
			store, err := asuser.Open(ctx, opts.Workers, opts.User, where.Path, opts.POSIX)
			if err != nil {
				return nil, err // not the nil *Store
			}
			return store, nil
		}
		calls := opts.Calls
		if calls == nil {
			calls = &detach.Calls{}
		}
		store, err := detach.Do(ctx, calls, "open backing", where.Path, func(context.Context) (*posix.Store, error) {
			return posix.Open(where.Path, opts.POSIX)
		}, func(s *posix.Store) { s.Close() })
		if err != nil {
			return nil, err
		}
		return detach.Wrap(store, calls), nil
	case "s3":
		opts.S3.Owner, opts.S3.Mark, opts.S3.Changed = opts.Owner, opts.Mark, opts.Changed
		return s3.Open(where, opts.S3)
	default:
		return nil, bb.E(bb.Unsupported, "open backing", where.Scheme, "no adaptor supports this scheme")
	}
}
