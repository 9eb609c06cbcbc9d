// Package plain is a key-value bucket for a program that uses nats.go alone. It is the limit that
// benchmarks hold the namespace against, and must never be used for anything else.
package plain

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
	"forebay/meta/conn"
)

// Bucket is a bucket and its connection. It may be used concurrently.
type Bucket struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	values jetstream.KeyValue
}

// Open makes a bucket of its own, on the server in this process if that is not nil, else on the
// server at url.
func Open(ctx context.Context, url string, server conn.InProcess) (*Bucket, error) {
	options := []nats.Option{nats.Name("forebay benchmark"), nats.NoReconnect(), nats.Timeout(5 * time.Second)}
	if server != nil {
		options = append(options, nats.InProcessServer(server))
	}
	nc, err := nats.Connect(url, options...)
	if err != nil {
		return nil, &bb.Error{Kind: bb.Unavailable, Op: "connect", Path: url, Err: err}
	}
	p := &Bucket{nc: nc}
	if p.js, err = jetstream.New(nc); err == nil {
		p.values, err = p.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "plain-" + rand.Text(), Storage: jetstream.FileStorage})
	}
	if err != nil {
		nc.Close()
		return nil, bb.Wrap("create bucket", url, err)
	}
	return p, nil
}

// Put stores a value under a key and returns once the server has it.
func (p *Bucket) Put(ctx context.Context, key string, value []byte) error {
	_, err := p.values.Put(ctx, key, value)
	return bb.Wrap("put", key, err)
}

// Close deletes the bucket and ends the connection.
func (p *Bucket) Close(ctx context.Context) error {
	err := p.js.DeleteKeyValue(ctx, p.values.Bucket())
	p.nc.Close()
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = nil
	}
	return bb.Wrap("delete bucket", p.values.Bucket(), err)
}
