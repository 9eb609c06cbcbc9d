package admin

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Job is a stage-in, stage-out or drain that the daemons of a cluster carry out together, and
// its progress. It continues when the client that requested it disconnects.
type Job = bb.Job

// Jobs lists the jobs of the buffers that this user may enter, the newest first: those
// that run, and those that ended in the last day. ErrUnsupported if the daemon is alone.
func Jobs(ctx context.Context, c *client.Client) ([]Job, error) {
	var reply wire.JobReply
	if err := of(c).Ask(ctx, wire.Type_TYPE_JOBS, &wire.Empty{}, &reply); err != nil {
		return nil, bb.Wrap("jobs", "", err)
	}
	var list []Job
	if err := json.Unmarshal(reply.Json, &list); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "jobs", Err: err}
	}
	return list, nil
}

// JobByID describes one job.
func JobByID(ctx context.Context, c *client.Client, id string) (Job, error) {
	var reply wire.JobReply
	if err := of(c).Ask(ctx, wire.Type_TYPE_JOB, &wire.JobRequest{Id: id}, &reply); err != nil {
		return Job{}, bb.Wrap("job", id, err)
	}
	j, err := decodeJob(&reply)
	return j, bb.Wrap("job", id, err)
}

func decodeJob(m *wire.JobReply) (Job, error) {
	j := Job{Superseded: m.Superseded, SupersededTotal: m.SupersededTotal}
	if err := json.Unmarshal(m.Json, &j); err != nil {
		return Job{}, &bb.Error{Kind: bb.Internal, Err: err}
	}
	return j, nil
}

// WatchJob calls show, on the calling goroutine, with a job's progress, now and after each
// change, until the job has ended, and returns its last state. Any daemon will do.
func WatchJob(ctx context.Context, c *client.Client, id string, show func(Job)) (Job, error) {
	var last Job
	err := of(c).Repeat(ctx, func() error {
		return of(c).Stream(ctx, wire.Type_TYPE_JOB, &wire.JobRequest{Id: id, Watch: true}, nil, func(message, _ []byte) error {
			var m wire.JobReply
			if err := proto.Unmarshal(message, &m); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			j, err := decodeJob(&m)
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

// CancelJob ends a job. Its waiting files are skipped, its running copies end within seconds, and
// finished ones stay. A job that has ended is not changed.
func CancelJob(ctx context.Context, c *client.Client, id string) error {
	return bb.Wrap("cancel job", id, of(c).Ask(ctx, wire.Type_TYPE_JOB_CANCEL, &wire.JobRequest{Id: id}, nil))
}
