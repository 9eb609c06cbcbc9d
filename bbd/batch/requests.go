package batch

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/call"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// Lifetimes of batch jobs (internal/bb/lifetime.go draws their states). The batch system's hooks
// report on each node that a job comes and that it has left. Any of them may be called again, by
// any caller, after any failure. The work after a job's end is done by one daemon, chosen anew each
// time (reconcile.go).

const (
	maxLifetimeStages = 256
	maxLifetimeNames  = 256
	maxNodes          = 1000 // in one message of a job with thousands of nodes
)

// mayGovern refuses callers other than the system, since lifetimes act for other users.
func (k *Controller) mayGovern(r call.Request, op, key string) error {
	switch {
	case !r.Caller().System && !r.Caller().Governs:
		return access.Denied(op, key, "manage jobs")
	case k.o.Cluster == nil:
		return bb.E(bb.Unsupported, op, key, "this daemon is alone, and jobs are the cluster's").WithRemedy("set cluster.listen and nats.servers; a cluster may be of one daemon")
	}
	return k.o.Cluster.AllSupport("lifetimes of jobs", wire.VersionLifetimes)
}

// Open begins or joins a lifetime, and waits for its stage-ins.
func (k *Controller) Open(ctx context.Context, r call.Request, m *wire.LifetimeOpen) (proto.Message, error) {
	const op = "open lifetime"
	var l bb.Lifetime
	if err := json.Unmarshal(m.Json, &l); err != nil {
		return nil, bb.E(bb.Invalid, op, "", "it cannot be read: "+err.Error())
	}
	if err := k.mayGovern(r, op, l.Key); err != nil {
		return nil, err
	}
	if err := checkLifetime(&l); err != nil {
		return nil, err
	}
	if l.UID == 0 && !r.Caller().System {
		return nil, access.Denied(op, l.Key, "act for root") // whose rights are the system's
	}
	now, err := k.begin(ctx, l)
	if err != nil {
		return nil, bb.Wrap(op, l.Key, err)
	}
	if m.Attach {
		if err := k.attach(ctx, l.Key); err != nil {
			return nil, bb.Wrap(op, l.Key, err)
		}
	}
	if err := k.makeBuffers(ctx, &now, m.Create); err != nil {
		return nil, err
	}
	if m.Ran && !now.Ran {
		if now, err = k.o.Records.Change(ctx, l.Key, stillOpen(func(l *bb.Lifetime) { l.Ran = true })); err != nil {
			return nil, bb.Wrap(op, l.Key, err)
		}
	}
	jobs, err := k.stageInAll(ctx, &now)
	if err != nil {
		return nil, err
	}
	if !m.Begin {
		if err := k.awaitStageIns(ctx, r, &now, jobs); err != nil {
			return nil, err
		}
	}
	return lifetimeMessage(&now)
}

func checkLifetime(l *bb.Lifetime) error {
	const op = "open lifetime"
	if err := bb.CheckBufferName(l.Key); err != nil {
		return err
	}
	for _, name := range append(append([]string{}, l.Uses...), l.Buffer) {
		if name == "" {
			continue
		}
		if err := bb.CheckBufferName(name); err != nil {
			return err
		}
	}
	if l.Buffer != "" && l.Buffer != l.Key {
		return bb.E(bb.Invalid, op, l.Buffer, "the buffer of job "+l.Key+" has its key for a name")
	}
	if len(l.In) > maxLifetimeStages || len(l.Out) > maxLifetimeStages || len(l.Uses)+len(l.Destroys) > maxLifetimeNames {
		return bb.E(bb.Invalid, op, l.Key, fmt.Sprintf("has more than %d stages or buffers", maxLifetimeStages))
	}
	for _, s := range append(append([]bb.LifetimeStage{}, l.In...), l.Out...) {
		if _, err := bb.CleanPath(s.Path); err != nil {
			return bb.Wrap(op, s.Path, err)
		}
		if _, err := bb.ParseBacking(s.URL); err != nil {
			return bb.Wrap(op, s.URL, err)
		}
	}
	return nil
}

// begin stores a new lifetime, if it is not there. One of the same key is the same
// run of a job, or has ended.
func (k *Controller) begin(ctx context.Context, l bb.Lifetime) (bb.Lifetime, error) {
	l.State, l.Created, l.Succeeded = bb.LifetimeOpen, time.Now().Round(0).UTC(), true
	l.Warned = time.Time{}
	l.Ended, l.Gone, l.Next, l.Reason, l.Attempt, l.Losses, l.Hurry = time.Time{}, time.Time{}, time.Time{}, "", 0, bb.LossReport{}, false
	l.Ran, l.Over = false, time.Time{}
	now, err := k.o.Records.Begin(ctx, l)
	switch {
	case err != nil:
		return now, err
	case now.UID != l.UID || now.Job != l.Job:
		return now, bb.E(bb.Exists, "open lifetime", l.Key, "it is that of another job")
	case now.State != bb.LifetimeOpen:
		return now, errLeft(l.Key)
	}
	return now, nil
}

func errLeft(key string) error {
	return bb.E(bb.Busy, "open lifetime", key, "the job has left all its nodes")
}

// stillOpen is a change of a lifetime that has not ended.
func stillOpen(change func(*bb.Lifetime)) func(*bb.Lifetime) error {
	return func(l *bb.Lifetime) error {
		if l.State != bb.LifetimeOpen {
			return errLeft(l.Key)
		}
		change(l)
		return nil
	}
}

// attach notes that the job has come to this node.
func (k *Controller) attach(ctx context.Context, key string) error {
	return k.o.Records.ChangeAttachment(ctx, key, k.o.Node, func(n *bb.Attachment) error {
		if !n.Attached {
			n.Since = time.Now().Round(0).UTC()
		}
		n.Attached, n.Instance = true, k.o.Instance.String()
		return nil
	})
}

// makeBuffers makes the missing buffers, with the rights of the job's user. The caller is the
// system, and may do everything.
func (k *Controller) makeBuffers(ctx context.Context, l *bb.Lifetime, create []*wire.Buffer) error {
	c := userCred(l.UID, l.GID)
	for _, m := range create {
		spec := m.AsBuffer()
		spec.UID, spec.GID = l.UID, l.GID
		if spec.Job = ""; spec.Name == l.Buffer {
			spec.Job = l.Key
		}
		err := k.o.Buffers.Create(ctx, c, spec, m)
		if bb.KindOf(err) == bb.Exists {
			if same := k.sameBuffer(ctx, &spec); bb.KindOf(same) != bb.NotFound { // else the store holds something
				err = same
			}
		}
		if err != nil {
			return bb.Wrap("buffer create", address(spec.Name, ""), err)
		}
	}
	for _, name := range l.Uses {
		b, err := k.o.Buffers.Buffer(ctx, name)
		if err != nil {
			return bb.Wrap("use buffer", address(name, ""), err)
		}
		if spec := b.Spec(); !c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			return access.Denied("use buffer", address(name, ""), "enter this buffer")
		}
	}
	return nil
}

// sameBuffer returns no error for a buffer that exists, if it is the same user's, for the same job.
func (k *Controller) sameBuffer(ctx context.Context, spec *bb.Buffer) error {
	b, err := k.o.Buffers.Buffer(ctx, spec.Name)
	if err != nil {
		return err
	}
	if there := b.Spec(); there.UID != spec.UID || there.Job != spec.Job {
		return bb.E(bb.Exists, "buffer create", address(spec.Name, ""), "there is another buffer of that name").WithRemedy("choose another name")
	}
	return nil
}

// userCred are the rights of a job's user, independent of the caller.
func userCred(uid, gid uint32) access.Caller {
	c := access.Of(uid, gid)
	c.System = uid == 0
	return c
}

// operationOf is an operation for a lifetime, as its user. The same about is the same operation.
func operationOf(l *bb.Lifetime, kind ops.Kind, b *bb.Buffer, about ...string) ops.Operation {
	return ops.Operation{
		ID: ops.ID(append([]string{"lifetime", l.Key, string(kind)}, about...)...), Kind: kind, Buffer: b.Name, UID: l.UID, GID: l.GID,
		System: l.UID == 0, Options: map[string]string{ops.OptionCreated: fmt.Sprint(b.Created.UnixNano())}, Created: time.Now().Round(0).UTC(),
	}
}

func (k *Controller) stageOf(ctx context.Context, l *bb.Lifetime, kind ops.Kind, s *bb.LifetimeStage, about ...string) (ops.Operation, error) {
	b, err := k.o.Buffers.Buffer(ctx, s.Buffer)
	if err != nil {
		return ops.Operation{}, err
	}
	spec := b.Spec()
	j := operationOf(l, kind, &spec, about...)
	j.Path, j.URL = s.Path, s.URL
	return j, nil
}

// stageInAll has all stage-ins begin that have not, and returns their ids. One whose store
// did not answer is another at the next attempt.
func (k *Controller) stageInAll(ctx context.Context, l *bb.Lifetime) ([]string, error) {
	var ids []string
	for i := range l.In {
		j, err := k.stageOf(ctx, l, ops.StageIn, &l.In[i], attemptOf(i, l.In[i].Attempt)...)
		if err != nil {
			return nil, bb.Wrap("stage-in", l.In[i].URL, err)
		}
		if _, err := k.o.Operations.Submit(ctx, j, k.o.StageTasks()...); err != nil {
			return nil, bb.Wrap("stage-in", l.In[i].URL, err)
		}
		ids = append(ids, j.ID)
	}
	return ids, nil
}

// attemptOf are the words for a stage-in's attempt, of which the first goes without.
func attemptOf(stage, attempt int) []string {
	words := []string{fmt.Sprint(stage)}
	if attempt > 0 {
		words = append(words, fmt.Sprint(attempt))
	}
	return words
}

// awaitStageIns waits until all have ended, and fails if one did that the job needs. If a scheduler
// manages the job, a stage-in whose store did not answer is begun again by the next open, since its nodes do
// not wait.
func (k *Controller) awaitStageIns(ctx context.Context, r call.Request, l *bb.Lifetime, ids []string) error {
	text, err := lifetimeMessage(l)
	if err != nil {
		return err
	}
	for i, id := range ids {
		var last ops.Status
		err := k.o.Operations.Watch(ctx, id, func(s ops.Status) {
			last = s
			_ = r.More(text, nil) // a sign of life for the client. If the client is gone, the request ends
		})
		if err == nil && last.State == ops.Done {
			err = k.o.StagedAway(ctx, userCred(l.UID, l.GID), &last)
		}
		if err == nil {
			err = stageFailure(&last)
		}
		if err == nil && l.In[i].Note == "" {
			continue
		}
		if ctx.Err() == nil {
			k.noteStageIn(ctx, l, i, err)
		}
		if err != nil && !l.In[i].ContinueOnError {
			return bb.Wrap("stage-in", l.In[i].URL, err)
		}
	}
	return nil
}

// noteStageIn notes why a stage-in failed (nil: it did not, after all). The first note stands.
func (k *Controller) noteStageIn(ctx context.Context, l *bb.Lifetime, i int, why error) {
	attempt := l.In[i].Attempt
	_, err := k.o.Records.Change(ctx, l.Key, stillOpen(func(now *bb.Lifetime) {
		s := &now.In[i]
		if s.Attempt != attempt {
			return
		}
		if s.Note = ""; why != nil {
			s.Note = why.Error()
		}
		if l.SchedulerManaged && !s.ContinueOnError && bb.KindOf(why) == bb.Unavailable {
			s.Attempt++
		}
	}))
	if err != nil {
		k.o.Log.Warn("the reason of a failed stage-in was not recorded", "job", l.Key, "err", err)
	}
}

// maxOthers is how many files an error names besides the first.
const maxOthers = 20

// othersOf names the files that failed besides the first, as far as an error has room for.
func othersOf(t *ops.Tally) string {
	var names []string
	for _, f := range t.Failed[1:min(len(t.Failed), 1+maxOthers)] {
		names = append(names, f.Path)
	}
	switch left := t.FailedTotal - 1 - int64(len(names)); {
	case len(names) == 0:
		return ""
	case left > 0:
		return fmt.Sprintf("; the others are %s and %d more", strings.Join(names, ", "), left)
	}
	return "; the others are " + strings.Join(names, ", ")
}

// stageFailure is the fault of a stage that has ended.
func stageFailure(s *ops.Status) error {
	t := &s.Tally
	switch {
	case s.State == ops.Cancelled:
		return bb.E(bb.Cancelled, string(s.Kind), s.URL, "it was cancelled")
	case len(t.Failed) > 0 && t.Failed[0].Path == "":
		return bb.E(t.Failed[0].Kind, string(s.Kind), s.URL, t.Failed[0].Reason)
	case len(t.Failed) > 0:
		f := &t.Failed[0]
		return bb.E(f.Kind, string(s.Kind), s.URL, bb.FailedFiles(t.FailedTotal, f.Path, f.Reason)+othersOf(t))
	case t.FailedTotal > 0:
		return bb.E(bb.Internal, string(s.Kind), s.URL, bb.Count(t.FailedTotal, "file")+" failed")
	}
	return nil
}

// Leave notes that a job has left a node, and the usage of this node's buffers by it.
// That needs no lifetime that is open, nor one that the node ever came to.
func (k *Controller) Leave(ctx context.Context, r call.Request, m *wire.LifetimeLeave) (proto.Message, error) {
	const op = "leave lifetime"
	if err := k.mayGovern(r, op, m.Key); err != nil {
		return nil, err
	}
	l, err := k.o.Records.Get(ctx, m.Key)
	if err != nil {
		return nil, err
	}
	node := bb.NodeID(m.Node)
	if node == "" {
		node = k.o.Node
	}
	err = k.o.Records.ChangeAttachment(ctx, m.Key, node, func(n *bb.Attachment) error {
		n.Failed = n.Failed || m.Failed
		if n.Attached || n.Since.IsZero() {
			n.Since = time.Now().Round(0).UTC()
		}
		if node == k.o.Node {
			n.Usage = k.usageOf(l.Buffer, n.Usage)
		}
		n.Attached = false
		return nil
	})
	if err != nil {
		return nil, bb.Wrap(op, m.Key, err)
	}
	return k.now(ctx, m.Key)
}

// End ends a lifetime, wherever the job still seems to be. For the caller it is over. When_left
// leaves it to the nodes to report that it has left them.
func (k *Controller) End(ctx context.Context, r call.Request, m *wire.LifetimeEnd) (proto.Message, error) {
	const op = "end lifetime"
	if err := k.mayGovern(r, op, m.Key); err != nil {
		return nil, err
	}
	_, err := k.o.Records.Change(ctx, m.Key, func(l *bb.Lifetime) error {
		if l.State == bb.LifetimeOpen {
			now := time.Now().Round(0).UTC()
			if l.Over.IsZero() {
				l.Over = now
			}
			l.Succeeded = l.Succeeded && !m.Failed
			if !m.WhenLeft || m.Hurry {
				l.State, l.Ended = bb.LifetimeDraining, now
			}
		}
		if m.Hurry && l.State != bb.LifetimeGone {
			l.Hurry, l.Next = true, time.Time{}
		}
		return nil
	})
	if err != nil {
		return nil, bb.Wrap(op, m.Key, err)
	}
	return k.now(ctx, m.Key)
}

func (k *Controller) now(ctx context.Context, key string) (proto.Message, error) {
	l, err := k.o.Records.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return lifetimeMessage(&l)
}

// List sends the lifetimes that the user may see: its own, and all to the system.
func (k *Controller) List(ctx context.Context, r call.Request, m *wire.Lifetimes) (proto.Message, error) {
	if k.o.Cluster == nil {
		return &wire.Lifetime{}, nil
	}
	var all []bb.Lifetime
	var err error
	if m.Key == "" {
		all, err = k.o.Records.List(ctx)
	} else {
		all = make([]bb.Lifetime, 1)
		all[0], err = k.o.Records.Get(ctx, m.Key)
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		l := &all[i]
		if !r.Caller().Owns(l.UID) && !r.Caller().Governs || m.Job != "" && l.Job != m.Job {
			continue
		}
		k.addUsage(l)
		text, err := lifetimeMessage(l)
		if err != nil {
			return nil, err
		}
		if err := r.More(text, nil); err != nil {
			return nil, err
		}
	}
	return &wire.Lifetime{}, nil
}

func lifetimeMessage(l *bb.Lifetime) (*wire.Lifetime, error) {
	text, err := json.Marshal(l)
	if err == nil && len(text) > wire.MaxMessage {
		short := *l // of a job with thousands of nodes, only those that are attached
		short.Nodes = slices.DeleteFunc(slices.Clone(l.Nodes), func(n bb.Attachment) bool { return !n.Attached })
		short.Nodes = short.Nodes[:min(len(short.Nodes), maxNodes)]
		text, err = json.Marshal(&short)
	}
	m := &wire.Lifetime{Json: text, Superseded: wire.FromSuperseded(l.Superseded)}
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Usage.Dropped > 0 && len(m.Dropped) < maxNodes {
			m.Dropped = append(m.Dropped, &wire.DroppedFiles{Node: string(n.Node), Files: n.Usage.Dropped, Bytes: n.Usage.DroppedBytes})
		}
	}
	return m, err
}
