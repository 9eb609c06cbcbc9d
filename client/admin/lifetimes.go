package admin

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// Lifetime is one run of a batch system's job, for which buffers live. Attachment is its presence on
// a node. LifetimeStage and LifetimeEnd are the work before and after it. SupersededSteps are steps
// that are not on its store, since newer ones are.
type (
	Lifetime      = bb.Lifetime
	Attachment    = bb.Attachment
	LifetimeStage = bb.LifetimeStage
	LifetimeEnd   = bb.LifetimeEnd
	Usage         = bb.Usage
	LossReport    = bb.LossReport

	SupersededSteps = bb.SupersededSteps
)

// The states of a lifetime.
const (
	LifetimeOpen     = bb.LifetimeOpen
	LifetimeDraining = bb.LifetimeDraining
	LifetimeOrphan   = bb.LifetimeOrphan
	LifetimeGone     = bb.LifetimeGone
)

// LifetimeOptions are the options of a job that joins a lifetime.
type LifetimeOptions struct {
	// Create are buffers to make if they are missing: the lifetime's own, and those that
	// outlive it. A nil NoFlush means the default patterns.
	Create []BufferSpec
	// Attach: the job arrives at the daemon's node.
	Attach bool
	// Begin: the call returns when the stage-ins have begun, and else when they have ended.
	Begin bool
	// Ran: a job of a scheduler is about to begin, and may write from now on.
	Ran bool
}

// EndOptions describe the end of a job.
type EndOptions struct {
	// Hurry abandons files that are not on their store, and lists them in the bill.
	Hurry bool
	// Failed: the job ended with an error.
	Failed bool
	// WhenLeft waits for the nodes that the job came to. Until it has left them, or they are gone.
	WhenLeft bool
}

// OpenLifetime begins a lifetime, or joins one that was begun. The same key, at any daemon, is the
// same lifetime, and may be opened again after any failure. If a stage-in that the job needs fails,
// it fails. If the job has left all its nodes, the error is ErrBusy. It is for the system alone,
// and buffers and stages belong to the job's user, and have that user's rights.
func OpenLifetime(ctx context.Context, c *client.Client, l Lifetime, o LifetimeOptions) (Lifetime, error) {
	text, err := json.Marshal(&l)
	if err != nil {
		return l, &bb.Error{Kind: bb.Internal, Op: "open lifetime", Path: l.Key, Err: err}
	}
	m := &wire.LifetimeOpen{Json: text, Attach: o.Attach, Begin: o.Begin, Ran: o.Ran}
	for i := range o.Create {
		m.Create = append(m.Create, newBuffer(o.Create[i]))
	}
	var now Lifetime
	err = eachLifetime(ctx, c, wire.Type_TYPE_LIFETIME_OPEN, m, func(l Lifetime) { now = l })
	if err == nil && now.Key == "" {
		err = bb.E(bb.Unavailable, "", "", "the daemon went away")
	}
	return now, bb.Wrap("open lifetime", l.Key, err)
}

// LeaveOptions describe the node that a job has left, and the way it ended there.
type LeaveOptions struct {
	Node   NodeID // "": the daemon's own
	Failed bool   // the job failed there
}

// LeaveLifetime records that a job has left a node. When it has left all nodes, dirty files are drained, files that it
// listed are copied out, and its buffers are destroyed. The call does not wait for that.
func LeaveLifetime(ctx context.Context, c *client.Client, key string, o LeaveOptions) (Lifetime, error) {
	return askLifetime(ctx, c, "leave lifetime", key, wire.Type_TYPE_LIFETIME_LEAVE, &wire.LifetimeLeave{Key: key, Node: string(o.Node), Failed: o.Failed})
}

// EndLifetime ends a job on all nodes on which it is still recorded.
func EndLifetime(ctx context.Context, c *client.Client, key string, o EndOptions) (Lifetime, error) {
	m := &wire.LifetimeEnd{Key: key, Hurry: o.Hurry, Failed: o.Failed, WhenLeft: o.WhenLeft}
	return askLifetime(ctx, c, "end lifetime", key, wire.Type_TYPE_LIFETIME_END, m)
}

// SetDue sets the time by which the buffer of a running job should be on its store (zero: the
// job has no end).
func SetDue(ctx context.Context, c *client.Client, key string, due time.Time) (Lifetime, error) {
	return setDue(ctx, c, due, &wire.LifetimeDue{Key: key})
}

// WarnDue is SetDue of a job that is being warned that its buffer will not be on its store by
// then. ErrExists if it was warned before, so that only one caller does it.
func WarnDue(ctx context.Context, c *client.Client, key string, due time.Time) (Lifetime, error) {
	return setDue(ctx, c, due, &wire.LifetimeDue{Key: key, Warned: true})
}

func setDue(ctx context.Context, c *client.Client, due time.Time, m *wire.LifetimeDue) (Lifetime, error) {
	if !due.IsZero() {
		m.DueNs = due.UnixNano()
	}
	return askLifetime(ctx, c, "change lifetime", m.Key, wire.Type_TYPE_LIFETIME_DUE, m)
}

func askLifetime(ctx context.Context, c *client.Client, op, key string, typ wire.Type, m proto.Message) (l Lifetime, err error) {
	var reply wire.Lifetime
	if err = of(c).Ask(ctx, typ, m, &reply); err == nil {
		err = decodeLifetime(&reply, &l)
	}
	return l, bb.Wrap(op, key, err)
}

// Lifetimes lists those of this user's jobs, the newest first, and for the system those of all. An
// id of the batch system ("": any) may be that of several runs.
func Lifetimes(ctx context.Context, c *client.Client, job string) ([]Lifetime, error) {
	return listLifetimes(ctx, c, &wire.Lifetimes{Job: job})
}

// LifetimeByKey returns one. ErrNotFound if there is none that this user may see.
func LifetimeByKey(ctx context.Context, c *client.Client, key string) (Lifetime, error) {
	list, err := listLifetimes(ctx, c, &wire.Lifetimes{Key: key})
	if err == nil && len(list) == 0 {
		err = bb.E(bb.NotFound, "lifetimes", key, "no such job is known to this user")
	}
	if err != nil {
		return Lifetime{}, err
	}
	return list[0], nil
}

func listLifetimes(ctx context.Context, c *client.Client, m *wire.Lifetimes) (list []Lifetime, err error) {
	err = eachLifetime(ctx, c, wire.Type_TYPE_LIFETIMES, m, func(l Lifetime) { list = append(list, l) })
	return list, bb.Wrap("lifetimes", m.Key, err)
}

// eachLifetime calls each with the lifetimes in the replies to a request.
func eachLifetime(ctx context.Context, c *client.Client, typ wire.Type, m proto.Message, each func(Lifetime)) error {
	return of(c).Repeat(ctx, func() error {
		return of(c).Stream(ctx, typ, m, nil, func(message, _ []byte) error {
			var reply wire.Lifetime
			if err := proto.Unmarshal(message, &reply); err != nil {
				return &bb.Error{Kind: bb.Internal, Err: err}
			}
			if len(reply.Json) == 0 {
				return nil // the last one
			}
			var l Lifetime
			if err := decodeLifetime(&reply, &l); err != nil {
				return err
			}
			each(l)
			return nil
		})
	})
}

func decodeLifetime(m *wire.Lifetime, l *Lifetime) error {
	if err := json.Unmarshal(m.Json, l); err != nil {
		return &bb.Error{Kind: bb.Internal, Op: "lifetime", Err: err}
	}
	l.Superseded = wire.AsSuperseded(m.Superseded)
	for _, d := range m.Dropped {
		for i := range l.Nodes {
			if f := &l.Nodes[i].Usage; string(l.Nodes[i].Node) == d.Node {
				f.Dropped, f.DroppedBytes = d.Files, d.Bytes
			}
		}
	}
	return nil
}
