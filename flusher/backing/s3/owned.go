package s3

import (
	"context"
	"errors"
	"io"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/flusher/backing/s3/connect"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// The versions that RemoveIf and RenameIf may remove or replace are compared by the store in its
// own step, if a test found that it does: the entity tag of a DELETE (If-Match), and of the object
// that a copy replaces (If-Match, If-None-Match). The entity tag of a copy's source every store
// compares. Where the store does not compare, the object is looked up right before.

// RemoveIf deletes an object that has an entity tag still.
func (s *Store) RemoveIf(ctx context.Context, name string, is backing.Version) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	ctx, done := s.call(ctx)
	defer done()
	if err := s.fence(ctx, s.key(name), false); err != nil {
		return err
	}
	return s.removeVersion(ctx, name, is)
}

// removeVersion is RemoveIf of a name that is fenced.
func (s *Store) removeVersion(ctx context.Context, name string, is backing.Version) error {
	compares, err := s.removals.known(ctx, s, s.tryRemovals)
	if err != nil {
		return err
	}
	if !compares || is.ETag == "" { // an empty tag is no condition to some stores
		now, err := s.versionAt(ctx, name)
		if err != nil {
			return err
		}
		if now != is && now != (backing.Version{}) {
			return backing.Foreign("remove", name)
		}
		return s.removeNamed(ctx, name)
	}
	err = s.removeNamed(connect.Matching(ctx, is.ETag), name)
	if !answer.ConditionFailed(err) {
		return err
	}
	if now, statErr := s.versionAt(ctx, name); statErr != nil || now == (backing.Version{}) {
		return statErr // some stores answer so for a missing object
	}
	return backing.Foreign("remove", name)
}

// RenameIf copies an object that has an entity tag still over an object that may be replaced, compares, and
// then removes it. It does not repeat the copy of an earlier call.
func (s *Store) RenameIf(ctx context.Context, old, newName string, is, replaces backing.Version) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	ctx, done := s.call(ctx)
	defer done()
	if err := errors.Join(s.fence(ctx, s.key(old), false), s.fence(ctx, s.key(newName), false)); err != nil {
		return err
	}
	from, err := s.Stat(ctx, old)
	if err != nil {
		return err
	}
	if from.Version() != is {
		return backing.Foreign("rename", old)
	}
	if old == newName {
		return nil
	}
	to, err := s.Stat(ctx, newName)
	missing := bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err)
	if err != nil && !missing {
		return err
	}
	if missing || to.Version() == replaces {
		if err := s.copyVersion(ctx, from, to, newName); err != nil {
			return err
		}
	} else if same, err := s.sameContent(ctx, &from, &to); err != nil || !same {
		return errors.Join(err, backing.Foreign("rename", newName))
	}
	return s.removeVersion(ctx, old, is)
}

// copyVersion copies an object over the one that was found under a name, or to a name without one.
func (s *Store) copyVersion(ctx context.Context, from, over backing.Object, newName string) error {
	compares, err := s.copies.known(ctx, s, s.tryCopies)
	if err != nil {
		return err
	}
	condition := condition{absent: over.ETag == "", etag: over.ETag}
	if !compares {
		condition.absent, condition.etag = false, ""
	}
	err = s.copyObject(ctx, from, newName, condition)
	if answer.ConditionFailed(err) { // of the object itself, or of the one that it replaces
		now, statErr := s.versionAt(ctx, from.Name)
		switch {
		case statErr != nil:
			return statErr
		case now != from.Version():
			return backing.Foreign("rename", from.Name)
		}
		return backing.Foreign("rename", newName)
	}
	if err != nil {
		return err
	}
	to, err := s.Stat(ctx, newName)
	if err != nil {
		return err
	}
	if err := s.compare(ctx, from, to); err != nil {
		return err
	}
	s.uncertain.Confirm(newName, to.ETag)
	return nil
}

// sameContent reports whether an object is a copy of another, as after a rename that ended
// between its two steps. Where the store reports no checksums, both are read.
func (s *Store) sameContent(ctx context.Context, from, to *backing.Object) (bool, error) {
	if from.Size != to.Size {
		return false, nil
	}
	if from.HasChecksum && to.HasChecksum {
		return from.Checksum == to.Checksum, nil
	}
	sum, err := s.checksumOf(ctx, from.Name)
	if err != nil {
		return false, err
	}
	copied, err := s.checksumOf(ctx, to.Name)
	return err == nil && sum == copied, err
}

func (s *Store) checksumOf(ctx context.Context, name string) (sum uint64, err error) {
	r, err := s.Get(ctx, name, 0, -1)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	part := make([]byte, 1<<20)
	for {
		n, err := r.Read(part)
		sum = checksum.Update(sum, part[:n])
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// versionAt returns the present version of a name.
func (s *Store) versionAt(ctx context.Context, name string) (backing.Version, error) {
	o, err := s.Stat(ctx, name)
	if bb.KindOf(err) == bb.NotFound && !answer.IsNoBucket(err) {
		return backing.Version{}, nil
	}
	return o.Version(), err
}

// tryRemovals tries out whether the store refuses a DELETE of an object that has another entity tag.
func (s *Store) tryRemovals(ctx context.Context, key string) (bool, error) {
	if err := s.putOwn(ctx, key, []byte("forebay")); err != nil {
		return false, err
	}
	err := s.remove(connect.Matching(ctx, wrongTag), key, key)
	if !answer.ConditionFailed(err) {
		return false, unlessUnknown(err)
	}
	info, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return false, answer.Wrap("stat", key, err)
	}
	// The comparison must accept the right tag, or nothing could be removed any more.
	err = s.remove(connect.Matching(ctx, info.ETag), key, key)
	return err == nil, unlessUnknown(err)
}

// tryCopies tries out whether the store refuses a copy over an object that its conditions do not
// name.
func (s *Store) tryCopies(ctx context.Context, key string) (bool, error) {
	if err := s.putOwn(ctx, key, []byte("forebay")); err != nil {
		return false, err
	}
	info, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return false, answer.Wrap("stat", key, err)
	}
	name := s.opts.Owner.TempName()
	defer func() {
		if err := s.cleanup(ctx, func(ctx context.Context) error { return s.remove(ctx, s.key(name), name) }); err != nil {
			s.opts.Logger.Warn("an object that was made to try the store out stays", "object", name, "error", err)
		}
	}()
	from := s.object(info)
	from.Name = key[len(s.prefix):]
	for i, c := range []condition{{absent: true}, {absent: true}, {etag: wrongTag}} {
		err := s.copyOnce(ctx, from, name, c)
		if refused := answer.ConditionFailed(err); i == 0 && err != nil || i > 0 && !refused {
			if refused {
				err = nil
			}
			return false, unlessUnknown(err)
		}
	}
	return true, nil
}

// wrongTag is an entity tag that no object has.
const wrongTag = "0123456789abcdef0123456789abcdef"

// unlessUnknown returns the error of a request, or nil if the store does not support that request.
func unlessUnknown(err error) error {
	switch kind := bb.KindOf(err); {
	case kind == bb.Unsupported, kind == bb.Invalid, kind == bb.NotFound && !answer.IsNoBucket(err):
		return nil
	}
	return err
}
