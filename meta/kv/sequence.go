package kv

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

// GetSeq returns the record of a key that matches a filter and has a revision, if there still is
// one.
func (b *Bucket) GetSeq(ctx context.Context, filter string, seq uint64) (Record, error) {
	query := map[string]any{"seq": seq}
	for {
		r, err := b.askDirect(ctx, query)
		if err == nil && r.Seq == 0 && b.Replicated() {
			err = b.Scan(ctx, filter, func(other *Record) error { // that copy may lack it
				if other.Seq == seq {
					r = *other
				}
				return nil
			})
		}
		if err == nil {
			return r, nil
		}
		if err := b.retry(ctx, err); err != nil {
			return Record{}, err
		}
	}
}

// askDirect sends a get to the server that holds the bucket.
func (b *Bucket) askDirect(ctx context.Context, query map[string]any) (Record, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return Record{}, err
	}
	msg, err := b.c.Request(ctx, &nats.Msg{Subject: "$JS.API.DIRECT.GET.KV_" + b.name, Data: body})
	if err != nil {
		return Record{}, err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return b.message(msg)
	case "404":
		return Record{}, nil
	default:
		return Record{}, bb.E(bb.Internal, "get", b.name, "server status "+status)
	}
}
