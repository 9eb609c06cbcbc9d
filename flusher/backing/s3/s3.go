// Package s3 keeps objects below a prefix of a bucket of any S3 store. It is the only importer of
// minio-go. It must never depend on the content of objects.
package s3

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/flusher/backing/s3/uncertain"
	"forebay/internal/bb"
)

// Store is a prefix in a bucket.
//
// Uploads in parts leave parts behind when a process dies, and S3 does not report the initiator of
// an upload. So an upload is announced in an object of the root, named by our backing.Owner, which
// holds the object's key and the upload's id. It is written before the first part is sent and
// removed after the upload has ended. Sweep aborts exactly the uploads that it finds announced by a
// process that has ended. A crash between the beginning of an upload and its announcement leaves an
// upload without parts, which takes no space.
type Store struct {
	client *minio.Core
	bucket string
	prefix string // "" or with a trailing slash
	opts   Options
	closed context.Context
	close  context.CancelFunc
	idle   func() // closes idle connections

	puts      conditions // of a PUT: the replaced object
	removals  conditions // of a DELETE: the removed object
	copies    conditions // of a copy: the replaced object
	uncertain *uncertain.Watch
	failed    failedUploads
}

var _ backing.Store = (*Store)(nil)

// Open returns the store of a parsed s3:// URL. It sends nothing. Check does. The URL's query may
// set endpoint, region, path_style, ca, verify, profile and credentials. The query wins over
// Options.
func Open(where bb.Backing, opts Options) (*Store, error) {
	if err := s3utils.CheckValidBucketName(where.Bucket); err != nil {
		return nil, bb.E(bb.Invalid, "open backing", "s3://"+where.Bucket, "there can be no such bucket: "+err.Error()).
			WithRemedy("write s3://BUCKET/PREFIX: a bucket's name has 3 to 63 of a-z, 0-9, - and .")
	}
	opts, err := opts.withQuery(where)
	if err != nil {
		return nil, err
	}
	client, idle, err := opts.Client()
	if err != nil {
		return nil, err
	}
	s := &Store{client: client, bucket: where.Bucket, opts: opts, idle: idle}
	s.puts.ignored = "the store does not compare conditions of PUTs: late ones are detected and repaired, not refused"
	s.removals.ignored = "the store does not compare conditions of DELETEs: objects are checked right before their removal"
	s.copies.ignored = "the store does not compare the target of copies: it is checked right before"
	s.uncertain = uncertain.New(uncertain.Options{
		Life: opts.requestLife, Shortest: opts.watch[0], Longest: opts.watch[1], Look: s.lookAt, Logger: opts.Logger,
	})
	s.failed.uploads = map[string][]*upload{}
	if where.Prefix != "" {
		s.prefix = where.Prefix + "/"
	}
	// The life of the store, not of a call: ended by Close.
	s.closed, s.close = context.WithCancel(context.Background())
	return s, nil
}

func (s *Store) key(name string) string { return s.prefix + name }

// call returns a context that ends with ctx and with the store.
func (s *Store) call(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closed, func() {
		cancel(bb.E(bb.Unavailable, "s3", s.bucket, "store is closed"))
	})
	return ctx, func() { stop(); cancel(nil) }
}

// Close ends calls in progress and closes idle connections.
func (s *Store) Close() error {
	s.close()
	s.uncertain.Close()
	s.idle()
	return nil
}

// Get reads a range.
func (s *Store) Get(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	if err := errors.Join(backing.CheckName("get", name), backing.CheckRange("get", name, off)); err != nil {
		return nil, err
	}
	if n == 0 {
		o, err := s.Stat(ctx, name)
		if err != nil {
			return nil, err
		}
		return &reader{body: io.NopCloser(strings.NewReader("")), done: func() {}, name: name, object: o}, nil
	}
	ctx, done := s.call(ctx)
	var opts minio.GetObjectOptions
	if off > 0 || n > 0 {
		end := int64(0) // to the end, for SetRange
		if n > 0 {
			end = off + n - 1
		}
		if err := setRange(&opts, off, end); err != nil {
			done()
			return nil, answer.Wrap("get", name, err)
		}
	}
	body, info, _, err := s.client.GetObject(ctx, s.bucket, s.key(name), opts)
	if answer.IsInvalidRange(err) { // a range that begins at the end or behind it holds nothing
		done()
		if n > 0 {
			return errorReader{io.ErrUnexpectedEOF}, nil
		}
		return errorReader{io.EOF}, nil
	}
	if err != nil {
		done()
		return nil, answer.Wrap("get", name, err)
	}
	left := info.Size // the announced size
	if n > 0 {
		left = n
	}
	return &reader{body: body, done: done, name: name, left: left, object: s.object(info)}, nil
}

func setRange(opts *minio.GetObjectOptions, off, end int64) error {
	if off == 0 && end == 0 { // SetRange would refuse it; it is the first byte
		opts.Set("Range", "bytes=0-0")
		return nil
	}
	return opts.SetRange(off, end)
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }
func (r errorReader) Close() error             { return nil }

type reader struct {
	body io.ReadCloser
	done func()
	name string
	left int64

	object backing.Object
}

// Object is for backing.Described.
func (r *reader) Object() (backing.Object, bool) { return r.object, true }

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.left -= int64(n)
	switch {
	case err == io.EOF && r.left > 0:
		return n, io.ErrUnexpectedEOF
	case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF:
		return n, answer.Wrap("get", r.name, err)
	}
	return n, err
}

func (r *reader) Close() error {
	err := r.body.Close()
	r.done()
	return answer.Wrap("get", r.name, err)
}

// Stat requests an object's head.
func (s *Store) Stat(ctx context.Context, name string) (backing.Object, error) {
	if err := backing.CheckName("stat", name); err != nil {
		return backing.Object{}, err
	}
	ctx, done := s.call(ctx)
	defer done()
	info, err := s.client.StatObject(ctx, s.bucket, s.key(name), minio.StatObjectOptions{Checksum: true})
	if err != nil {
		return backing.Object{}, answer.Wrap("stat", name, err)
	}
	return s.object(info), nil
}

func (s *Store) object(info minio.ObjectInfo) backing.Object {
	o := backing.Object{
		Name: strings.TrimPrefix(info.Key, s.prefix), Size: info.Size, ETag: info.ETag, MTime: info.LastModified,
	}
	o.Checksum, o.HasChecksum = decodeChecksum(info.ChecksumCRC64NVME, info.ChecksumMode)
	kind := uint64(fileType)
	if strings.HasSuffix(info.Key, "/") {
		kind = dirType
	}
	if mode, ok := parseMode(info.UserMetadata[keyMode], kind); ok {
		o.Mode, o.HasMode = mode, true
	} else if mode, ok := parseMode(info.UserMetadata[keyMode], linkType); ok && kind == fileType && 0 < info.Size && info.Size <= bb.MaxTarget {
		o.Mode, o.HasMode = mode|fs.ModeSymlink, true
	}
	if when, ok := parseTime(info.UserMetadata[keyTime]); ok {
		o.MTime = when
	}
	if !o.IsLink() {
		o.Xattrs = parseXattrs(info.UserMetadata)
	}
	return o
}

// List pages through the keys.
func (s *Store) List(ctx context.Context, prefix string, fn func(backing.Object) error) error {
	return s.list(ctx, "list", prefix, func(info minio.ObjectInfo) error {
		if strings.HasSuffix(info.Key, "/") || backing.IsTemp(info.Key) {
			return nil // some tools' markers of directories; our announcements
		}
		return fn(s.object(info))
	})
}

// list calls fn for every key with the prefix, ours and markers too. Errors of the
// store are wrapped, those of fn returned.
func (s *Store) list(ctx context.Context, op, prefix string, fn func(minio.ObjectInfo) error) error {
	ctx, done := s.call(ctx)
	defer done()
	opts := minio.ListObjectsOptions{Prefix: s.key(prefix), Recursive: true, MaxKeys: s.opts.pageSize}
	for info := range s.client.ListObjectsIter(ctx, s.bucket, opts) {
		if info.Err != nil {
			return answer.Wrap(op, prefix, info.Err)
		}
		if err := fn(info); err != nil {
			return err
		}
	}
	return answer.Wrap(op, prefix, ctx.Err())
}

// Remove deletes an object. S3 succeeds for a missing one.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := backing.CheckName("remove", name); err != nil {
		return err
	}
	ctx, done := s.call(ctx)
	defer done()
	if err := s.fence(ctx, s.key(name), false); err != nil {
		return err
	}
	return s.removeNamed(ctx, name)
}

// removeNamed removes an object of the root, and notes if that may come late.
func (s *Store) removeNamed(ctx context.Context, name string) error {
	err := s.remove(ctx, s.key(name), name)
	var lost *answer.LostError
	switch {
	case err == nil:
		s.uncertain.Confirm(name, "")
	case errors.As(err, &lost):
		s.uncertain.Note(name, nil)
	}
	return err
}

func (s *Store) remove(ctx context.Context, key, name string) error {
	err := s.client.RemoveObject(ctx, s.bucket, key, minio.RemoveObjectOptions{})
	if answer.OutcomeOf(err) != answer.Settled {
		err = &answer.LostError{Err: err}
	}
	if err = answer.Wrap("remove", name, err); errors.Is(err, bb.NotFound) && !answer.IsNoBucket(err) {
		return nil
	}
	return err
}

// RemoveTree deletes the objects that it lists, one request for up to a thousand keys.
func (s *Store) RemoveTree(ctx context.Context, name string) error {
	below := ""
	if name != "" {
		if err := s.Remove(ctx, name); err != nil {
			return err
		}
		below = name + "/"
	}
	if err := s.fence(ctx, s.key(below), true); err != nil {
		return err
	}
	const batch = 1000 // S3's limit
	var keys []minio.ObjectInfo
	flush := func() error {
		err := s.removeAll(ctx, below, keys)
		keys = keys[:0]
		return err
	}
	err := s.list(ctx, "remove tree", below, func(info minio.ObjectInfo) error {
		keys = append(keys, minio.ObjectInfo{Key: info.Key})
		if len(keys) < batch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		s.uncertain.ConfirmGone(func(below string) bool { return name == "" || isBelow(name, below) })
	}
	return err
}

// SetMode does nothing, since an object's metadata change only with a copy of it.
func (s *Store) SetMode(ctx context.Context, name string, _ backing.Attrs) error {
	return errors.Join(backing.CheckName("change mode", name), ctx.Err())
}

func (s *Store) removeAll(ctx context.Context, name string, keys []minio.ObjectInfo) error {
	if len(keys) == 0 {
		return nil
	}
	ctx, done := s.call(ctx)
	defer done()
	ch := make(chan minio.ObjectInfo, len(keys))
	for _, k := range keys {
		ch <- k
	}
	close(ch)
	var errs []error
	for r := range s.client.RemoveObjects(ctx, s.bucket, ch, minio.RemoveObjectsOptions{}) {
		if err := answer.Wrap("remove", r.ObjectName, r.Err); !errors.Is(err, bb.NotFound) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return bb.Wrap("remove tree", name, err)
	}
	return nil
}

// Sweep aborts announced uploads whose owner is dead, and removes the announcements.
func (s *Store) Sweep(ctx context.Context) (int, error) {
	found, err := s.Leftovers(ctx, backing.Within{Remove: true})
	swept := 0
	for i := range found {
		if found[i].Removed {
			swept++
		}
	}
	return swept, err
}

// Leftovers lists announced uploads. All of them lie at the root.
func (s *Store) Leftovers(ctx context.Context, in backing.Within) (found []backing.Leftover, err error) {
	err = s.list(ctx, "sweep", tempRoot, func(info minio.ObjectInfo) error {
		if !backing.IsTemp(info.Key) {
			return nil
		}
		found = append(found, backing.Leftover{
			Name: strings.TrimPrefix(info.Key, s.prefix), Instance: backing.InstanceOf(info.Key),
			Ended: s.opts.Owner.Abandoned(info.Key, time.Since(info.LastModified)),
		})
		l := &found[len(found)-1]
		if !l.Ended || !in.Remove {
			return nil
		}
		if err := s.sweep(ctx, info.Key); err != nil {
			return err
		}
		l.Removed = true
		return nil
	})
	return found, err
}

func (s *Store) sweep(ctx context.Context, key string) error {
	ctx, done := s.call(ctx)
	defer done()
	a, err := s.announced(ctx, key)
	if errors.Is(err, bb.NotFound) && !answer.IsNoBucket(err) {
		return nil // the owner lived and has ended its upload
	}
	if err != nil {
		return err
	}
	if strings.HasPrefix(a.Key, s.prefix) && a.Upload != "" {
		if err := s.abort(ctx, a.Key, a.Upload); err != nil {
			return err
		}
	}
	return s.remove(ctx, key, key)
}

// Check puts, stats and removes a small object.
func (s *Store) Check(ctx context.Context) error {
	ctx, done := s.call(ctx)
	defer done()
	key := s.key(s.opts.Owner.TempName())
	err := s.putOwn(ctx, key, []byte("forebay"))
	if err == nil {
		_, err = s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{})
		err = answer.Wrap("check", key, err)
	}
	return s.explain(errors.Join(err, s.cleanup(ctx, func(ctx context.Context) error { return s.remove(ctx, key, key) })))
}

// explain turns an error of Check into a remedy.
func (s *Store) explain(err error) error {
	if err == nil {
		return nil
	}
	e := &bb.Error{Kind: bb.KindOf(err), Op: "check backing", Path: s.url(), Err: answer.Reason(firstError(err))}
	switch {
	case answer.IsNoBucket(err):
		return e.WithRemedy("create the bucket, or correct its name")
	case e.Kind == bb.Permission:
		return e.WithRemedy("check access key, secret and the bucket's policy, and that the clocks agree")
	case e.Kind == bb.Unsupported:
		return e.WithRemedy("add verify=read to the URL, to have every object read back instead")
	case e.Kind == bb.Unavailable:
		return e.WithRemedy("check the endpoint " + s.opts.Endpoint + " and the network")
	default:
		return e
	}
}

// url names the root.
func (s *Store) url() string { return strings.TrimSuffix("s3://"+s.bucket+"/"+s.prefix, "/") }

// firstError leaves out errors that followed from the first.
func firstError(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()[0]
	}
	return err
}
