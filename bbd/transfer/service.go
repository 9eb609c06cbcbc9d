package transfer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/gossip"
	"forebay/meta/ops"
)

// Options are the environment of a Service. Its functions may be called concurrently.
type Options struct {
	Node       bb.NodeID
	Epoch      uint64           // this start of the daemon
	Cluster    *cluster.Cluster // nil: this daemon is alone, and has no operations
	Operations *ops.Operations
	// Run does a task with the rights of the operation's user, and returns its result,
	// which counts beside an error too. After bb.Unavailable it is retried.
	Run   func(l *ops.Lease) (ops.Tally, error)
	Self  func() gossip.Member // this daemon as others see it
	Ready func() bool          // whether it serves
	Gone  func()               // called once for each instance of a daemon that is gone, by the coordinator
	// MaySee reports whether a session's user may see the operations of a buffer.
	MaySee func(ctx context.Context, v call.Visitor, buffer string) bool
	Log    *slog.Logger
}

// Service runs and follows operations. Its methods may be called concurrently, Run once.
type Service struct {
	o   Options
	ctx context.Context // of its background work
}

// NewService returns a service that works until ctx ends.
func NewService(ctx context.Context, o Options) *Service { return &Service{o: o, ctx: ctx} }

// The options of an operation. ops.OptionCreated is another one.
const (
	OptionParallel = "parallel" // pieces at a time
	OptionTimeout  = "timeout"  // of a drain
)

// Available reports whether stages and drains are operations. A daemon alone does them at once. So
// does one in a cluster with members of a release without operations.
func (s *Service) Available() bool {
	return s.o.Cluster != nil && s.o.Cluster.AllSupport("jobs", wire.VersionJobs) == nil
}

// New returns an operation for a request on a buffer. The same key of the same user is the same
// operation. Without a key, an operation is one of its own.
func (s *Service) New(r call.Request, kind ops.Kind, b *bb.Buffer, key string) ops.Operation {
	if key == "" {
		key = fmt.Sprintf("%s.%d.%d.%d", s.o.Node, s.o.Epoch, r.SessionID(), r.ID())
	}
	c := r.Caller()
	return ops.Operation{
		ID: ops.ID(string(kind), fmt.Sprint(c.UID, c.System), key), Kind: kind, Buffer: b.Name, UID: c.UID, GID: c.GIDs[0], System: c.System,
		Options: map[string]string{ops.OptionCreated: fmt.Sprint(b.Created.UnixNano())}, Created: time.Now().Round(0).UTC(),
	}
}

// Follow reports to the client how far an operation is until it ends.
func (s *Service) Follow(ctx context.Context, r call.Request, id string) (ops.Status, error) {
	var last ops.Status
	err := s.o.Operations.Watch(ctx, id, func(now ops.Status) {
		last = now
		if now.State == ops.Running {
			_ = r.More(ProgressOf(&now), nil) // if the client is gone, the request ends
		}
	})
	if err == nil && last.State == ops.Cancelled {
		err = bb.E(bb.Cancelled, string(last.Kind), last.ID, "the job was cancelled")
	}
	return last, err
}

// maxListed is the number of operations that a list names, which are the newest.
const maxListed = 1000

var errAlone = bb.E(bb.Unsupported, "jobs", "", "this daemon is alone: it keeps no jobs, but carries requests out at once")

// List lists the operations of the buffers that the user may enter.
func (s *Service) List(ctx context.Context, r call.Request, _ *wire.Empty) (proto.Message, error) {
	if s.o.Cluster == nil {
		return nil, errAlone
	}
	all, err := s.o.Operations.List(ctx)
	if err != nil {
		return nil, err
	}
	list := []bb.Operation{}
	for i := range all {
		if len(list) < maxListed && s.o.MaySee(ctx, r, all[i].Buffer) {
			j := infoOf(&all[i])
			j.Failed, j.Nodes = nil, nil
			list = append(list, j)
		}
	}
	text, err := json.Marshal(list)
	return &wire.JobReply{Json: text}, err
}

// Get describes one operation, or follows it until it ends.
func (s *Service) Get(ctx context.Context, r call.Request, m *wire.JobRequest) (proto.Message, error) {
	status, err := s.visible(ctx, r, m.Id)
	if err != nil {
		return nil, err
	}
	if m.Watch {
		err := s.o.Operations.Watch(ctx, m.Id, func(now ops.Status) {
			status = now
			if m, err := replyOf(&now); err == nil && now.State == ops.Running {
				_ = r.More(m, nil)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return replyOf(&status)
}

// replyOf describes one operation.
func replyOf(s *ops.Status) (*wire.JobReply, error) {
	j := infoOf(s)
	text, err := json.Marshal(j)
	return &wire.JobReply{Json: text, Superseded: j.Superseded, SupersededTotal: j.SupersededTotal}, err
}

// Cancel ends an operation. Waiting tasks are dropped, and those in progress end within seconds.
func (s *Service) Cancel(ctx context.Context, r call.Request, m *wire.JobRequest) (proto.Message, error) {
	status, err := s.visible(ctx, r, m.Id)
	if err != nil {
		return nil, err
	}
	if !r.Caller().Owns(status.UID) {
		return nil, access.Denied("cancel job", m.Id, "cancel another user's operation")
	}
	return &wire.Empty{}, s.o.Operations.Cancel(ctx, m.Id)
}

func (s *Service) visible(ctx context.Context, r call.Request, id string) (ops.Status, error) {
	if s.o.Cluster == nil {
		return ops.Status{}, errAlone
	}
	status, err := s.o.Operations.Status(ctx, id)
	if err == nil && !s.o.MaySee(ctx, r, status.Buffer) {
		err = access.Denied("job", id, "enter its buffer")
	}
	return status, err
}
