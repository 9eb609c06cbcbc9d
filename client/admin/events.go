package admin

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Event is one change of a file or a buffer. EventKind is the kind of change.
type (
	Event     = bb.Event
	EventKind = bb.EventKind
)

// The kinds of events.
const (
	EventCommitted   = bb.EventCommitted
	EventFlushed     = bb.EventFlushed
	EventFlushFailed = bb.EventFlushFailed
	EventEvicted     = bb.EventEvicted
	EventRenamed     = bb.EventRenamed
	EventRemoved     = bb.EventRemoved
	EventLost        = bb.EventLost
	EventFound       = bb.EventFound
	EventUnexplained = bb.EventUnexplained
	EventAside       = bb.EventAside
	EventDrained     = bb.EventDrained
	EventLate        = bb.EventLate
	EventCreated     = bb.EventCreated
	EventDestroyed   = bb.EventDestroyed
	EventTxnBegun    = bb.EventTxnBegun
	EventTxnDecided  = bb.EventTxnDecided
	EventTxnAborted  = bb.EventTxnAborted
	EventStoreFails  = bb.EventStoreFails
	EventStoreWorks  = bb.EventStoreWorks
	EventChanged     = bb.EventChanged
	EventMissed      = bb.EventMissed
)

// Events yields the events of a buffer ("": of all) from now on, until ctx ends, the loop is left,
// or the connection breaks. Then it yields an error and ends. A consumer that is too slow misses
// events.
func Events(ctx context.Context, c *client.Client, buffer string) iter.Seq2[Event, error] {
	return events(ctx, c, &wire.Subscribe{Buffer: buffer}, func() {})
}

// Watch is Events of the given kinds, and of EventMissed. It calls ready when the subscription holds, which a daemon
// of an older release does not report. That daemon sends events of all kinds.
func Watch(ctx context.Context, c *client.Client, buffer string, ready func(), kinds ...EventKind) iter.Seq2[Event, error] {
	m := &wire.Subscribe{Buffer: buffer, Confirm: true}
	for _, k := range kinds {
		m.Kinds = append(m.Kinds, string(k))
	}
	return events(ctx, c, m, ready)
}

func events(ctx context.Context, c *client.Client, request *wire.Subscribe, ready func()) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		err := of(c).Stream(ctx, wire.Type_TYPE_SUBSCRIBE, request, nil, func(message, _ []byte) error {
			var (
				m wire.Event
				e Event
			)
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if len(m.Json) == 0 {
				ready()
				return nil
			}
			if err := json.Unmarshal(m.Json, &e); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if !yield(e, nil) {
				return errLeft
			}
			return nil
		})
		if err != nil && !errors.Is(err, errLeft) {
			yield(Event{}, bb.Wrap("events", request.Buffer, err))
		}
	}
}

// errLeft ends a stream whose loop was left.
var errLeft = errors.New("left")
