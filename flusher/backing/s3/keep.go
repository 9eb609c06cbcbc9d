package s3

import (
	"context"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/internal/bb"
)

// checkExisting fails if the options keep the object under a name.
func (s *Store) checkExisting(ctx context.Context, name string, opts *backing.PutOptions) error {
	if !opts.Keep {
		return nil
	}
	_, err := s.existing(ctx, name, opts)
	return err
}

// existing returns the condition with the object that may be replaced now, or that there is none.
func (s *Store) existing(ctx context.Context, name string, opts *backing.PutOptions) (condition, error) {
	there, err := s.Stat(ctx, name)
	switch {
	case bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err):
		return condition{absent: true}, nil
	case err != nil:
		return condition{}, err
	case !s.mayReplace(name, &there, opts):
		return condition{}, backing.Foreign("put", name)
	}
	return condition{etag: there.ETag}, nil
}

// mayReplace reports whether a Put may replace an object. An object that a late request of this
// store has put is its own.
func (s *Store) mayReplace(name string, there *backing.Object, opts *backing.PutOptions) bool {
	return opts.MayReplace(there.ETag) || s.uncertain.IsLate(name, there)
}

// keepExisting completes an upload in parts only over an object that may be replaced. On stores that
// do not compare conditions it is looked up right before.
func (s *Store) keepExisting(ctx context.Context, name string, opts *backing.PutOptions, to *minio.PutObjectOptions) error {
	if !opts.Keep {
		return nil
	}
	c, err := s.existing(ctx, name, opts)
	if err != nil {
		return err
	}
	compares, err := s.comparesConditions(ctx)
	if err == nil && compares {
		c.set(to)
	}
	return err
}
