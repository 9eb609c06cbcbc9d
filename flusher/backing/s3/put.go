package s3

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing"
	"forebay/flusher/backing/s3/answer"
	"forebay/internal/bb"
)

// cleanupTime bounds requests that clean up after a call whose context has ended.
const cleanupTime = 10 * time.Second

// Put uploads an object in one request, or in parts.
func (s *Store) Put(ctx context.Context, name string, src backing.Source, opts backing.PutOptions) (backing.Object, error) {
	if err := backing.CheckName("put", name); err != nil {
		return backing.Object{}, err
	}
	ctx, done := s.call(ctx)
	defer done()
	if err := s.fence(ctx, s.key(name), false); err != nil {
		return backing.Object{}, err
	}
	var info minio.UploadInfo
	var err error
	if src.Size() <= s.opts.Threshold {
		info, err = s.putSingle(ctx, s.key(name), name, src, &opts)
	} else {
		// Before all parts are sent for nothing.
		if err := s.checkExisting(ctx, name, &opts); err != nil {
			return backing.Object{}, err
		}
		info, err = s.putParts(ctx, s.key(name), name, src, &opts)
	}
	if err != nil {
		return backing.Object{}, err
	}
	s.uncertain.Confirm(name, info.ETag)
	o := backing.Object{Name: name, Size: src.Size(), ETag: info.ETag, Checksum: src.Checksum(), HasChecksum: true, MTime: info.LastModified, Xattrs: fitting(opts.Attrs)}
	if o.MTime.IsZero() {
		o.MTime = time.Now()
	}
	return o, nil
}

// putSingle sends everything in one request. The store refuses bytes that do not match the checksum
// in the header.
func (s *Store) putSingle(ctx context.Context, key, name string, src backing.Source, opts *backing.PutOptions) (minio.UploadInfo, error) {
	slices, sum, err := backing.ReadSource(name, src, nil, 0, src.Size())
	if err != nil {
		return minio.UploadInfo{}, err
	}
	if err := backing.CheckSource(name, src, sum); err != nil {
		return minio.UploadInfo{}, err
	}
	if err := opts.LastStep(ctx); err != nil {
		return minio.UploadInfo{}, bb.Wrap("put", name, err)
	}
	info, err := s.putOver(ctx, key, name, slices, src, opts)
	if err != nil {
		return info, err
	}
	return info, s.confirm(ctx, key, name, src, info)
}

// send sends one PUT. If it may be carried out although it failed, the error is an answer.LostError.
func (s *Store) send(ctx context.Context, key, name string, pieces [][]byte, src backing.Source, attrs *backing.Attrs, c condition) (minio.UploadInfo, error) {
	body := newBody(slices.Clone(pieces)) // which it changes
	defer body.close()
	opts := minio.PutObjectOptions{
		UserMetadata:         map[string]string{minio.ChecksumCRC64NVME.KeyCapitalized(): encodeChecksum(src.Checksum())},
		DisableContentSha256: true, // the checksum protects the content
	}
	addMetadata(opts.UserMetadata, attrs, fileType)
	c.set(&opts)
	info, err := s.client.PutObject(ctx, s.bucket, key, body, src.Size(), "", "", opts)
	if left := answer.OutcomeOf(err); left == answer.Open || left == answer.OpenIfSent && body.sent() {
		err = &answer.LostError{Err: err}
	}
	return info, answer.Wrap("put", name, err)
}

// putParts uploads parts in parallel, and completes the upload with the checksum of the whole, so
// that only with a matching checksum of its own the store makes the object visible.
func (s *Store) putParts(ctx context.Context, key, name string, src backing.Source, last *backing.PutOptions) (minio.UploadInfo, error) {
	opts := minio.PutObjectOptions{UserMetadata: fullObject("")}
	addMetadata(opts.UserMetadata, last.Attrs, fileType)
	upload, err := s.begin(ctx, key, opts)
	if err != nil {
		return minio.UploadInfo{}, answer.Wrap("put", name, err)
	}
	info, err := s.sendParts(ctx, upload, name, src, last)
	if err != nil {
		return info, errors.Join(err, s.abortFailed(ctx, upload))
	}
	err = s.cleanup(ctx, upload.forget)
	if err != nil { // the object is complete; Sweep will find the announcement
		s.opts.Logger.Warn("announcement of an upload stays", "object", key, "error", err)
	}
	return info, s.confirm(ctx, key, name, src, info)
}

func (s *Store) sendParts(ctx context.Context, up *upload, name string, src backing.Source, last *backing.PutOptions) (minio.UploadInfo, error) {
	size := s.partSize(src.Size())
	parts := make([]minio.CompletePart, (src.Size()+size-1)/size)
	sum, err := backing.InParts(ctx, src.Size(), size, s.opts.Parallel,
		func(ctx context.Context, i int, off, n int64) (uint64, error) {
			part, sum, err := s.sendPart(ctx, up, name, src, i+1, off, n)
			parts[i] = part
			return sum, err
		})
	if err != nil {
		return minio.UploadInfo{}, bb.Wrap("put", name, err)
	}
	if err := backing.CheckSource(name, src, sum); err != nil {
		return minio.UploadInfo{}, err
	}
	if err := last.LastStep(ctx); err != nil {
		return minio.UploadInfo{}, bb.Wrap("put", name, err)
	}
	opts := minio.PutObjectOptions{UserMetadata: fullObject(encodeChecksum(sum))}
	if err := s.keepExisting(ctx, name, last, &opts); err != nil {
		return minio.UploadInfo{}, err
	}
	info, err := s.client.CompleteMultipartUpload(ctx, s.bucket, up.Key, up.Upload, parts, opts)
	if last.Keep && answer.ConditionFailed(err) {
		return info, backing.Foreign("put", name)
	}
	return info, answer.Wrap("put", name, err)
}

func (s *Store) sendPart(ctx context.Context, up *upload, name string, src backing.Source, number int, off, n int64,
) (minio.CompletePart, uint64, error) {
	slices, sum, err := backing.ReadSource(name, src, nil, off, n)
	if err != nil {
		return minio.CompletePart{}, 0, err
	}
	body := newBody(slices)
	defer body.close()
	header := http.Header{}
	header.Set(minio.ChecksumCRC64NVME.Key(), encodeChecksum(sum))
	part, err := s.client.PutObjectPart(ctx, s.bucket, up.Key, up.Upload, number, body, n,
		minio.PutObjectPartOptions{CustomHeader: header, DisableContentSha256: true})
	if err != nil {
		return minio.CompletePart{}, 0, answer.Wrap("put", name, err)
	}
	if got, ok := decodeChecksum(part.ChecksumCRC64NVME, ""); ok && got != sum {
		return minio.CompletePart{}, 0, backing.Mismatch("put", name, sum, got)
	}
	return minio.CompletePart{PartNumber: number, ETag: part.ETag, ChecksumCRC64NVME: encodeChecksum(sum)}, sum, nil
}

// partSize returns the configured part size, or one that needs no more than maxParts.
func (s *Store) partSize(size int64) int64 {
	return max(s.opts.PartSize, (size+maxParts-1)/maxParts)
}

// confirm compares the store's checksum with the source's. If the answer has none, another request
// reads it. Then the object is read back, or refused.
func (s *Store) confirm(ctx context.Context, key, name string, src backing.Source, info minio.UploadInfo) error {
	if s.opts.Verify == VerifyRead {
		return s.readBack(ctx, key, name, src.Size(), src.Checksum())
	}
	got, ok := decodeChecksum(info.ChecksumCRC64NVME, info.ChecksumMode)
	if !ok {
		head, err := s.client.StatObject(ctx, s.bucket, key, minio.StatObjectOptions{Checksum: true})
		if err != nil {
			return answer.Wrap("put", name, err)
		}
		if got, ok = decodeChecksum(head.ChecksumCRC64NVME, head.ChecksumMode); !ok {
			return bb.E(bb.Unsupported, "put", name, "the store confirms no CRC-64/NVME of whole objects").
				WithRemedy("add verify=read to the URL, to have every object read back instead")
		}
	}
	if want := src.Checksum(); got != want {
		return backing.Mismatch("put", name, want, got)
	}
	return nil
}

func (s *Store) readBack(ctx context.Context, key, name string, size int64, sum uint64) error {
	body, _, _, err := s.client.GetObject(ctx, s.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return answer.Wrap("put", name, err)
	}
	r := backing.Verify(body, name, size, sum)
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return answer.Wrap("put", name, err)
}

// cleanup runs fn even if ctx has ended, but not for long.
func (s *Store) cleanup(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	return fn(ctx)
}

// fullObject returns the headers that request, or state, a checksum of the whole.
func fullObject(sum string) map[string]string {
	if sum == "" {
		return map[string]string{
			"X-Amz-Checksum-Algorithm": minio.ChecksumCRC64NVME.String(),
			"X-Amz-Checksum-Type":      minio.ChecksumFullObjectMode.String(),
		}
	}
	return map[string]string{
		minio.ChecksumCRC64NVME.KeyCapitalized(): sum,
		"X-Amz-Checksum-Type":                    minio.ChecksumFullObjectMode.String(),
	}
}

func encodeChecksum(sum uint64) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, sum))
}

// decodeChecksum reads the header's form. A checksum of checksums proves nothing of the whole.
func decodeChecksum(value, mode string) (uint64, bool) {
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(b) != 8 || mode == minio.ChecksumCompositeMode.String() {
		return 0, false
	}
	return binary.BigEndian.Uint64(b), true
}

// body reads slices. net/http may go on reading a request's body after the request has failed. Once
// closed, a body does not touch the slices.
type body struct {
	mu     sync.Mutex
	slices [][]byte
	gone   bool
}

func newBody(slices [][]byte) *body { return &body{slices: slices} }

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return 0, errors.New("upload has ended")
	}
	n := 0
	err := backing.Touch("", func() error { // in a goroutine of net/http
		for n < len(p) && len(b.slices) > 0 {
			m := copy(p[n:], b.slices[0])
			n += m
			if b.slices[0] = b.slices[0][m:]; len(b.slices[0]) == 0 {
				b.slices = b.slices[1:]
			}
		}
		return nil
	})
	if err != nil {
		return n, err
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// sent reports whether all bytes were read for sending.
func (b *body) sent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.slices {
		if len(s) > 0 {
			return false
		}
	}
	return true
}

func (b *body) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.slices = true, nil
}
