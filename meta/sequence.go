package meta

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

// getSeq returns the record of a key that matches a filter and has a revision, if
// there still is one.
func (b *bucket) getSeq(ctx context.Context, filter string, seq uint64) (record, error) {
	query := map[string]any{"seq": seq}
	for {
		r, err := b.askDirect(ctx, query)
		if err == nil && r.seq == 0 && b.replicated() {
			err = b.scan(ctx, filter, func(other *record) error { // that copy may lack it
				if other.seq == seq {
					r = *other
				}
				return nil
			})
		}
		if err == nil {
			return r, nil
		}
		if err := b.retry(ctx, err); err != nil {
			return record{}, err
		}
	}
}

// askDirect sends a get to the server that holds the bucket.
func (b *bucket) askDirect(ctx context.Context, query map[string]any) (record, error) {
	body, err := json.Marshal(query)
	if err != nil {
		return record{}, err
	}
	msg, err := b.c.request(ctx, &nats.Msg{Subject: "$JS.API.DIRECT.GET.KV_" + b.name, Data: body})
	if err != nil {
		return record{}, err
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return b.message(msg)
	case "404":
		return record{}, nil
	default:
		return record{}, bb.E(bb.Internal, "get", b.name, "server status "+status)
	}
}
