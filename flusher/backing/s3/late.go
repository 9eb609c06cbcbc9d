package s3

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/flusher/backing/s3/uncertain"
	"forebay/internal/bb"
)

// A request whose connection broke may still be carried out. It waits in a proxy, in a gateway or
// in the store, and arrives after others that were sent later and confirmed. Three things are done
// about that.
//
//   - A PUT names the object that it replaces (If-None-Match: *, or If-Match with the entity tag of
//     the present one), if the store compares that, which is tested and never assumed. A late one
//     meets another object and is refused.
//   - An upload in parts cannot be completed once it is aborted. So one that failed is aborted
//     before anything else is done under its name.
//   - A request that the store cannot refuse, such as a PUT of a new name that was removed again, a
//     DELETE, or any PUT to a store that compares nothing, is watched for as long as a request
//     may live. An object that comes back is removed again. An overwritten or removed one is reported to Options.Changed, whose owner has the bytes.
//
// A request lives no longer than its signature. Stores refuse one that is more than 15 minutes old
// by their clock, and theirs may be 15 minutes behind ours before they refuse all.
const requestLife = 30 * time.Minute

// lookAt compares an uncertain name with its expected object, and repairs the effect of a late request.
func (s *Store) lookAt(ctx context.Context, name string, one *uncertain.Name) error {
	if !one.Confirmed() {
		return nil
	}
	there, err := s.Stat(ctx, name)
	o := &there
	if bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err) {
		o, err = nil, nil
	}
	if err != nil {
		return err
	}
	found := one.Find(o)
	switch {
	case found == uncertain.AsItShould || s.uncertain.Stale(name, one):
		return nil
	case found == uncertain.Changed:
		s.uncertain.Again(name, one)
		s.opts.Logger.Warn("a request that was carried out late has changed an object", "object", name)
		s.opts.Changed(name)
		return nil
	}
	s.opts.Logger.Warn("removing an object that a late request has brought back", "object", name)
	return s.Remove(ctx, name)
}

// condition is the condition of a PUT about the object that it replaces.
type condition struct {
	absent bool   // there is none
	etag   string // it is this one
}

func (c condition) set(opts *minio.PutObjectOptions) {
	switch {
	case c.absent:
		opts.SetMatchETagExcept("*")
	case c.etag != "":
		opts.SetMatchETag(c.etag)
	}
}

// conditions records whether a store compares the condition of a kind of request with the object that it
// changes.
type conditions struct {
	ignored string // the log line if not

	mu       sync.Mutex
	tried    bool
	compares bool
}

// known tests, once, whether the store refuses a request whose condition does not hold. A store
// that ignores conditions does not.
func (c *conditions) known(ctx context.Context, s *Store, try func(ctx context.Context, key string) (bool, error)) (bool, error) {
	c.mu.Lock()
	tried, compares := c.tried, c.compares
	c.mu.Unlock()
	if tried {
		return compares, nil
	}
	key := s.key(s.opts.Owner.TempName())
	compares, err := try(ctx, key)
	removed := s.cleanup(ctx, func(ctx context.Context) error { return s.remove(ctx, key, key) })
	if err != nil {
		return false, &bb.Error{Kind: bb.KindOf(err), Op: "try conditions", Path: s.url(), Err: answer.Reason(err)}
	}
	if removed != nil {
		s.opts.Logger.Warn("an object that was made to try the store out stays", "object", key, "error", removed)
	}
	if !compares {
		s.opts.Logger.Warn(c.ignored, "bucket", s.bucket)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried, c.compares = true, compares
	return compares, nil
}

// comparesConditions reports whether the store refuses a PUT whose condition does not hold.
func (s *Store) comparesConditions(ctx context.Context) (bool, error) {
	return s.puts.known(ctx, s, s.tryConditions)
}

func (s *Store) tryConditions(ctx context.Context, key string) (bool, error) {
	src := backing.NewBytes([]byte("forebay"))
	for i, c := range []condition{{absent: true}, {absent: true}, {etag: wrongTag}} {
		slices, _, err := backing.ReadSource(key, src, nil, 0, src.Size())
		if err != nil {
			return false, err
		}
		_, err = s.send(ctx, key, key, slices, src, nil, c)
		refused := answer.ConditionFailed(err)
		switch kind := bb.KindOf(err); {
		case i == 0 && err == nil, i > 0 && refused:
		case err == nil, refused, kind == bb.Unsupported, kind == bb.Invalid, kind == bb.NotFound && !answer.IsNoBucket(err):
			return false, nil
		default:
			return false, err
		}
	}
	return true, nil
}

// conditionTries is how often a PUT is sent with the condition that was right a moment before.
const conditionTries = 5

// putOver sends a PUT that replaces the present object and nothing else. opts.Replaces is the entity
// tag of the object that should be there, "" for none. With opts.Keep, nothing else is replaced.
func (s *Store) putOver(ctx context.Context, key, name string, slices [][]byte, src backing.Source, opts *backing.PutOptions) (minio.UploadInfo, error) {
	compares, err := s.comparesConditions(ctx)
	if err != nil {
		return minio.UploadInfo{}, err
	}
	if !compares {
		if err := s.checkExisting(ctx, name, opts); err != nil {
			return minio.UploadInfo{}, err
		}
		return s.sendUncertain(ctx, key, name, slices, src, opts.Attrs, condition{})
	}
	c := condition{absent: opts.Replaces == "", etag: opts.Replaces}
	for try := 1; ; try++ {
		info, err := s.sendUncertain(ctx, key, name, slices, src, opts.Attrs, c)
		missing := c.etag != "" && bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err)
		if !answer.ConditionFailed(err) && !missing || try == conditionTries {
			return info, err
		}
		there, err := s.Stat(ctx, name)
		switch {
		case bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err):
			c = condition{absent: true}
		case err != nil:
			return minio.UploadInfo{}, err
		case there.HasChecksum && there.Checksum == src.Checksum() && there.Size == src.Size() &&
			(there.Xattrs.Equal(fitting(opts.Attrs)) || !s.mayReplace(name, &there, opts)):
			// Put by an earlier attempt whose answer was lost.
			return minio.UploadInfo{ETag: there.ETag, ChecksumCRC64NVME: encodeChecksum(there.Checksum), LastModified: there.MTime}, nil
		case !s.mayReplace(name, &there, opts):
			return minio.UploadInfo{}, backing.Foreign("put", name)
		default:
			c = condition{etag: there.ETag}
		}
	}
}

// sendUncertain is send that records requests of unknown outcome.
func (s *Store) sendUncertain(ctx context.Context, key, name string, slices [][]byte, src backing.Source, attrs *backing.Attrs, c condition) (minio.UploadInfo, error) {
	info, err := s.send(ctx, key, name, slices, src, attrs, c)
	var lost *answer.LostError
	if errors.As(err, &lost) {
		s.uncertain.Note(name, &uncertain.Content{Size: src.Size(), Sum: src.Checksum()})
	}
	return info, err
}
