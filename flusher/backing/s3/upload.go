package s3

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/internal/bb"
)

// tempRoot begins the names of all announcements.
const tempRoot = ".forebay-"

// announcement is the content of the object that announces an upload in parts.
type announcement struct {
	Key    string `json:"key"`
	Upload string `json:"upload"`
}

const maxAnnouncement = 16 << 10 // bytes

// upload is one upload in parts, announced.
type upload struct {
	announcement
	store  *Store
	notice string // the announcement's key
}

// begin begins an upload and announces it.
func (s *Store) begin(ctx context.Context, key string, opts minio.PutObjectOptions) (*upload, error) {
	id, err := s.client.NewMultipartUpload(ctx, s.bucket, key, opts)
	if err != nil {
		return nil, err
	}
	up := &upload{announcement{Key: key, Upload: id}, s, s.key(s.opts.Owner.TempName())}
	content, err := json.Marshal(up.announcement)
	if err == nil {
		err = s.putOwn(ctx, up.notice, content)
	}
	if err != nil {
		return nil, errors.Join(err, s.cleanup(ctx, up.abort))
	}
	return up, nil
}

// putOwn puts an object under a name that is never used again.
func (s *Store) putOwn(ctx context.Context, key string, content []byte) error {
	src := backing.NewBytes(content)
	info, err := s.send(ctx, key, key, [][]byte{content}, src, nil, condition{})
	if err != nil {
		return err
	}
	return s.confirm(ctx, key, key, src, info)
}

// abort aborts the upload, its parts first, so that the announcement outlives them.
func (u *upload) abort(ctx context.Context) error {
	if err := u.store.abort(ctx, u.Key, u.Upload); err != nil {
		return err
	}
	return u.forget(ctx)
}

// forget removes the announcement of an upload that has ended.
func (u *upload) forget(ctx context.Context) error {
	return u.store.remove(ctx, u.notice, u.notice)
}

// abort aborts an upload. An upload that has ended already is no error. Parts that are on their way
// meanwhile may outlive it, so it is repeated until no part is left (Amazon S3 API Reference,
// AbortMultipartUpload).
func (s *Store) abort(ctx context.Context, key, id string) error {
	const op = "abort upload"
	for try := range abortTries {
		err := s.client.AbortMultipartUpload(ctx, s.bucket, key, id)
		if answer.IsNoUpload(err) {
			return nil
		}
		if err != nil {
			return answer.Wrap(op, key, err)
		}
		parts, err := s.client.ListObjectParts(ctx, s.bucket, key, id, 0, 1)
		if answer.IsNoUpload(err) || err == nil && len(parts.ObjectParts) == 0 {
			return nil
		}
		if err != nil {
			return answer.Wrap(op, key, err)
		}
		select {
		case <-time.After(abortPause << try):
		case <-ctx.Done():
			return answer.Wrap(op, key, context.Cause(ctx))
		}
	}
	return bb.E(bb.Busy, op, key, "parts of it go on arriving").WithRemedy("the next sweep aborts it")
}

// How often, and at first after how long, an upload is aborted anew.
const (
	abortTries = 6
	abortPause = 50 * time.Millisecond
)

// announced reads an announcement. An unreadable announcement announces nothing.
func (s *Store) announced(ctx context.Context, key string) (announcement, error) {
	body, _, _, err := s.client.GetObject(ctx, s.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return announcement{}, answer.Wrap("sweep", key, err)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxAnnouncement))
	if err != nil {
		return announcement{}, answer.Wrap("sweep", key, err)
	}
	var a announcement
	if err := json.Unmarshal(b, &a); err != nil {
		return announcement{}, nil // of a killed Check, which has no upload
	}
	return a, nil
}

// Rename copies within the store, compares, and then removes.
func (s *Store) Rename(ctx context.Context, old, newName string) error {
	if err := backing.CheckMove(old, newName); err != nil {
		return err
	}
	moved := 0
	err := s.move(ctx, old, newName)
	if err == nil {
		moved++
	} else if !errors.Is(err, bb.NotFound) || answer.IsNoBucket(err) {
		return err
	}
	err = s.List(ctx, old+"/", func(o backing.Object) error {
		moved++
		return s.move(ctx, o.Name, newName+o.Name[len(old):])
	})
	if err == nil && moved == 0 {
		err = bb.E(bb.NotFound, "rename", old, "no object has this name or is below it")
	}
	return err
}

func isBelow(dir, name string) bool { return len(name) > len(dir) && name[:len(dir)+1] == dir+"/" }

// move moves one object.
func (s *Store) move(ctx context.Context, old, newName string) error {
	from, err := s.Stat(ctx, old)
	if err != nil || old == newName {
		return err
	}
	ctx, done := s.call(ctx)
	defer done()
	if err := errors.Join(s.fence(ctx, s.key(old), false), s.fence(ctx, s.key(newName), false)); err != nil {
		return err
	}
	if err := s.copyObject(ctx, from, newName, condition{}); err != nil {
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
	return s.removeNamed(ctx, old)
}

// compare verifies that a copy equals its source. A copy without a checksum from the store is read.
func (s *Store) compare(ctx context.Context, from, to backing.Object) error {
	switch {
	case to.Size != from.Size:
		return bb.E(bb.Checksum, "rename", to.Name, "the copy has another size than the original")
	case from.HasChecksum && !to.HasChecksum:
		return s.readBack(ctx, s.key(to.Name), to.Name, from.Size, from.Checksum)
	case from.HasChecksum && to.Checksum != from.Checksum:
		return backing.Mismatch("rename", to.Name, from.Checksum, to.Checksum)
	default:
		return nil
	}
}

// copyObject makes the store copy an object over the one in a condition.
func (s *Store) copyObject(ctx context.Context, from backing.Object, newName string, over condition) error {
	if from.Size > s.opts.CopyLimit {
		return s.copyParts(ctx, from, newName, over)
	}
	return s.copyOnce(ctx, from, newName, over)
}

// copyOnce copies with one request.
func (s *Store) copyOnce(ctx context.Context, from backing.Object, newName string, over condition) error {
	headers := map[string]string{"x-amz-copy-source-if-match": from.ETag}
	switch {
	case over.absent:
		headers["If-None-Match"] = "*"
	case over.etag != "":
		headers["If-Match"] = `"` + over.etag + `"`
	}
	_, err := s.client.CopyObject(ctx, s.bucket, s.key(from.Name), s.bucket, s.key(newName),
		headers, minio.CopySrcOptions{}, minio.PutObjectOptions{})
	return answer.Wrap("rename", newName, err)
}

// copyParts makes the store copy an object that is too large for one request. No checksum is
// announced or sent, since stores would require those of the parts too, which minio-go does not
// pass on. They compute their own, which compare checks.
func (s *Store) copyParts(ctx context.Context, from backing.Object, newName string, over condition) error {
	key := s.key(newName)
	opts := minio.PutObjectOptions{UserMetadata: map[string]string{}}
	if from.HasMode {
		addMetadata(opts.UserMetadata, &backing.Attrs{Mode: from.Mode, MTime: from.MTime}, fileType)
	}
	addXattrs(opts.UserMetadata, from.Xattrs)
	up, err := s.begin(ctx, key, opts)
	if err != nil {
		return answer.Wrap("rename", newName, err)
	}
	size := max(s.partSize(from.Size), min(s.opts.CopyLimit, 512<<20))
	parts := make([]minio.CompletePart, (from.Size+size-1)/size)
	_, err = backing.InParts(ctx, from.Size, size, s.opts.Parallel,
		func(ctx context.Context, i int, off, n int64) (uint64, error) {
			part, err := s.client.CopyObjectPart(ctx, s.bucket, s.key(from.Name), s.bucket, key, up.Upload,
				i+1, off, n, map[string]string{"x-amz-copy-source-if-match": from.ETag})
			parts[i] = part
			return 0, answer.Wrap("rename", newName, err)
		})
	if err == nil {
		var opts minio.PutObjectOptions
		over.set(&opts)
		_, err = s.client.CompleteMultipartUpload(ctx, s.bucket, key, up.Upload, parts, opts)
	}
	if err != nil {
		return errors.Join(answer.Wrap("rename", newName, err), s.abortFailed(ctx, up))
	}
	return s.cleanup(ctx, up.forget)
}

// failedUploads are the uploads that failed and are still to be aborted.
type failedUploads struct {
	mu      sync.Mutex
	uploads map[string][]*upload // by key
}

// fence aborts uploads that failed, and could not be aborted, under a key, since they might still
// be completed. Below includes keys below it.
func (s *Store) fence(ctx context.Context, key string, below bool) error {
	f := &s.failed
	f.mu.Lock()
	var open []*upload
	for k, uploads := range f.uploads {
		if k == key || below && strings.HasPrefix(k, key) {
			open = append(open, uploads...)
		}
	}
	f.mu.Unlock()
	for _, up := range open {
		if err := up.abort(ctx); err != nil {
			return err
		}
		f.mu.Lock()
		left := f.uploads[up.Key][:0]
		for _, other := range f.uploads[up.Key] {
			if other != up {
				left = append(left, other)
			}
		}
		if f.uploads[up.Key] = left; len(left) == 0 {
			delete(f.uploads, up.Key)
		}
		f.mu.Unlock()
	}
	return nil
}

// abortFailed aborts an upload, now or, if the store refuses, later.
func (s *Store) abortFailed(ctx context.Context, up *upload) error {
	err := s.cleanup(ctx, up.abort)
	if err != nil {
		s.failed.mu.Lock()
		s.failed.uploads[up.Key] = append(s.failed.uploads[up.Key], up)
		s.failed.mu.Unlock()
	}
	return err
}
