package kv

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"forebay/internal/bb"
)

// Plain is a key-value bucket as a program sees it that uses nats.go alone. It is the
// limit that benchmarks hold the namespace against, and for nothing else. It may be
// used concurrently.
type Plain struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	values jetstream.KeyValue
}

// OpenPlain makes a bucket of its own, on the server at url, or on one in this process
// if that is not nil.
func OpenPlain(ctx context.Context, url string, server InProcess) (*Plain, error) {
	options := []nats.Option{nats.Name("forebay benchmark"), nats.NoReconnect(), nats.Timeout(5 * time.Second)}
	if server != nil {
		options = append(options, nats.InProcessServer(server))
	}
	conn, err := nats.Connect(url, options...)
	if err != nil {
		return nil, &bb.Error{Kind: bb.Unavailable, Op: "connect", Path: url, Err: err}
	}
	p := &Plain{conn: conn}
	if p.js, err = jetstream.New(conn); err == nil {
		p.values, err = p.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "plain-" + rand.Text(), Storage: jetstream.FileStorage})
	}
	if err != nil {
		conn.Close()
		return nil, bb.Wrap("create bucket", url, err)
	}
	return p, nil
}

// Put stores a value under a key and returns once the server has it.
func (p *Plain) Put(ctx context.Context, key string, value []byte) error {
	_, err := p.values.Put(ctx, key, value)
	return bb.Wrap("put", key, err)
}

// Close deletes the bucket and ends the connection.
func (p *Plain) Close(ctx context.Context) error {
	err := p.js.DeleteKeyValue(ctx, p.values.Bucket())
	p.conn.Close()
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = nil
	}
	return bb.Wrap("delete bucket", p.values.Bucket(), err)
}
