package s3

import (
	"bytes"
	"context"
	"io"

	"github.com/minio/minio-go/v7"

	"forebay/flusher/backing/s3/answer"
	"forebay/internal/bb"
)

// Plain is a prefix in a bucket for a program that uses minio-go alone: one request for one object,
// no checksum, nothing compared, nothing retried. Benchmarks compare Store with it. It has no other
// purpose. It may be used concurrently.
type Plain struct {
	client *minio.Client
	bucket string
	prefix string
	idle   func()
}

// OpenPlain is Open of a Plain.
func OpenPlain(where bb.Backing, opts Options) (*Plain, error) {
	s, err := Open(where, opts)
	if err != nil {
		return nil, err
	}
	return &Plain{client: s.client.Client, bucket: s.bucket, prefix: s.prefix, idle: s.idle}, nil
}

// Put uploads an object from memory, which is the caller's again afterwards.
func (p *Plain) Put(ctx context.Context, name string, data []byte) error {
	_, err := p.client.PutObject(ctx, p.bucket, p.prefix+name, bytes.NewReader(data), int64(len(data)),
		minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true})
	return answer.Wrap("put", name, err)
}

// Get reads an object, drops its bytes and returns how many there were.
func (p *Plain) Get(ctx context.Context, name string) (int64, error) {
	core := minio.Core{Client: p.client}
	body, _, _, err := core.GetObject(ctx, p.bucket, p.prefix+name, minio.GetObjectOptions{})
	if err != nil {
		return 0, answer.Wrap("get", name, err)
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	return n, answer.Wrap("get", name, err)
}

// Remove deletes an object.
func (p *Plain) Remove(ctx context.Context, name string) error {
	return answer.Wrap("remove", name, p.client.RemoveObject(ctx, p.bucket, p.prefix+name, minio.RemoveObjectOptions{}))
}

// Close closes idle connections.
func (p *Plain) Close() error {
	p.idle()
	return nil
}
