package admin

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Operation is a stage-in, stage-out or drain that the daemons of a cluster carry out together, and
// its progress. It continues when the client that requested it disconnects.
type Operation = bb.Operation

// Operations lists the operations of the buffers that this user may enter, the newest first: those
// that run, and those that ended in the last day. ErrUnsupported if the daemon is alone.
func Operations(ctx context.Context, c *client.Client) ([]Operation, error) {
	var reply wire.JobReply
	if err := of(c).Ask(ctx, wire.Type_TYPE_JOBS, &wire.Empty{}, &reply); err != nil {
		return nil, bb.Wrap("jobs", "", err)
	}
	var list []Operation
	if err := json.Unmarshal(reply.Json, &list); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "jobs", Err: err}
	}
	return list, nil
}

// OperationByID describes one operation.
func OperationByID(ctx context.Context, c *client.Client, id string) (Operation, error) {
	var reply wire.JobReply
	if err := of(c).Ask(ctx, wire.Type_TYPE_JOB, &wire.JobRequest{Id: id}, &reply); err != nil {
		return Operation{}, bb.Wrap("job", id, err)
	}
	j, err := decodeOperation(&reply)
	return j, bb.Wrap("job", id, err)
}

func decodeOperation(m *wire.JobReply) (Operation, error) {
	j := Operation{Superseded: m.Superseded, SupersededTotal: m.SupersededTotal}
	if err := json.Unmarshal(m.Json, &j); err != nil {
		return Operation{}, &bb.Error{Kind: bb.Internal, Err: err}
	}
	return j, nil
}

// WatchOperation calls show, on the calling goroutine, with an operation's progress, now and after each
// change, until the operation has ended, and returns its last state. Any daemon will do.
func WatchOperation(ctx context.Context, c *client.Client, id string, show func(Operation)) (Operation, error) {
	var last Operation
	err := of(c).Repeat(ctx, func() error {
		return of(c).Stream(ctx, wire.Type_TYPE_JOB, &wire.JobRequest{Id: id, Watch: true}, nil, func(message, _ []byte) error {
			var m wire.JobReply
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			j, err := decodeOperation(&m)
			if err != nil {
				return err
			}
			last = j
			if show != nil {
				show(last)
			}
			return nil
		})
	})
	return last, bb.Wrap("watch job", id, err)
}

// CancelOperation ends an operation. Its waiting files are skipped, its running copies end within seconds, and
// finished ones stay. An operation that has ended is not changed.
func CancelOperation(ctx context.Context, c *client.Client, id string) error {
	return bb.Wrap("cancel job", id, of(c).Ask(ctx, wire.Type_TYPE_JOB_CANCEL, &wire.JobRequest{Id: id}, nil))
}
