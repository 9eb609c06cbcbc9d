package bbd

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/rpc"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/events"
)

// subscribe sends events until the request is cancelled.
func (d *Daemon) subscribe(ctx context.Context, r *rpc.Request, m *wire.Subscribe) (proto.Message, error) {
	if m.Buffer != "" {
		if _, err := d.bufferFor(ctx, r.Session(), "events", m.Buffer); err != nil {
			return nil, err
		}
	}
	sub, err := d.meta.Subscribe(ctx, m.Buffer)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	if m.Confirm {
		if err := r.More(&wire.Event{}, nil); err != nil {
			return nil, err
		}
	}
	for {
		e, err := sub.Next(ctx)
		var missed *events.MissedError
		switch {
		case errors.As(err, &missed):
			e.JSON, err = json.Marshal(bb.Event{Time: time.Now(), Kind: bb.EventMissed, Buffer: m.Buffer, Reason: err.Error()})
		case err == nil && (len(m.Kinds) > 0 && e.Kind != bb.EventMissed && !slices.Contains(m.Kinds, string(e.Kind)) || !d.maySee(ctx, r.Session(), e.Buffer)):
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := r.More(&wire.Event{Json: e.JSON}, nil); err != nil {
			return nil, err
		}
	}
}
