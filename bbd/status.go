package bbd

import (
	"cmp"
	"context"
	"slices"
	"time"

	"forebay/bbd/access"
	"forebay/bbd/buffer"
	"forebay/bbd/call"
	"forebay/bbd/handle"
	"forebay/bbd/rpc"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/flusher/backing/health"
	"forebay/internal/bb"
)

// newStatuses makes the service that answers requests for the status.
func (d *Daemon) newStatuses() *status.Service {
	return status.New(d.ctx, status.Options{
		Node: d.cfg.Node, Cluster: d.cluster, Entries: statusEntries{d}, Own: d.statusFor, Go: d.wg.Go,
		Enter: func(ctx context.Context, v call.Visitor, op, buffer string) error {
			_, err := d.bufferFor(ctx, v, op, buffer)
			return err
		},
	})
}

// statusEntries are the entries of all buffers, for package status.
type statusEntries struct{ d *Daemon }

// Buffers returns all buffers that there are.
func (s statusEntries) Buffers(ctx context.Context) ([]bb.Buffer, error) {
	return s.d.work.buffers.Specs(ctx)
}

// Scan calls visit with each entry of a buffer, its owner, and the node that has a second copy.
func (s statusEntries) Scan(ctx context.Context, buffer string, visit func(e *bb.Entry, owner, replica bb.NodeID)) error {
	b, err := s.d.buffer(ctx, buffer)
	if err != nil {
		return err
	}
	return b.Tree().ScanAll(ctx, func(e bb.Entry) error {
		visit(&e, b.Owner(&e), b.Replica(&e))
		return nil
	})
}

// Status describes the daemon at this moment.
func (d *Daemon) Status() status.Status { return d.statusFor(access.Caller{System: true}, "") }

// statusFor leaves out the parts that a user has no right to see.
func (d *Daemon) statusFor(c access.Caller, only string) status.Status {
	stats := d.store.Stats()
	s := d.statusOfStart()
	s.Instance, s.Life, s.Earlier = d.store.Instance().String(), d.unfinished.Life(), d.unfinished.Earlier()
	s.State = d.state.Load().(string)
	s.Memory, s.Disk = status.OfTier(stats.Memory), status.OfTier(stats.Disk)
	s.Waiting, s.Counters = d.alloc.Status(c), d.observe.Counters()
	s.Memory.Populating, s.Memory.Dir = stats.Populating, stats.MemoryDir
	for _, b := range d.buffers.All() {
		spec := b.Spec()
		if (only == "" || only == spec.Name) && c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			s.Buffers = append(s.Buffers, d.bufferStatus(b, spec, stats.Buffers[spec.Name]))
		}
	}
	s.NATS.Logs = d.logStatus(s.Buffers)
	for _, b := range d.aside.Buffers() {
		if (only == "" || only == b.Spec.Name) && c.Permits(b.Spec.UID, b.Spec.GID, b.Spec.Mode, access.Execute) {
			s.SetAside = append(s.SetAside, status.OfAside(&b))
		}
	}
	for _, damage := range d.store.Damage() {
		s.Damaged = append(s.Damaged, damage.What)
	}
	if c.System {
		s.Foreign = status.OfForeign(d.store.Foreign(), d.store.Owner())
		s.WithoutBuffer = status.OfBufferless(d.aside.Files())
	}
	s.Sessions, s.StoreWorkers = d.sessionStatus(c), d.workerStatus(c)
	return s
}

// logStatus describes the namespaces that are logs which daemons share, of the buffers that a user may see.
func (d *Daemon) logStatus(visible []status.Buffer) (all []status.Log) {
	if d.meta == nil {
		return nil
	}
	for _, l := range d.meta.Logs() {
		if slices.ContainsFunc(visible, func(b status.Buffer) bool { return b.Name == l.Buffer }) {
			all = append(all, status.OfLog(&l))
		}
	}
	return all
}

// statusOfStart is the status of a daemon that is starting. Parts that it has not opened yet are
// unknown.
func (d *Daemon) statusOfStart() status.Status {
	return status.Status{
		Node: d.cfg.Node, Version: d.cfg.Version, State: "starting", Since: d.since, Admin: d.listening.admin,
		Buffers: []status.Buffer{}, Sessions: []status.Session{}, NATS: status.OfNamespace(d.health.Status(), time.Now()),
	}
}

func (d *Daemon) bufferStatus(b *buffer.Buffer, spec bb.Buffer, stored store.BufferStats) status.Buffer {
	facts := status.Facts{
		Spec: spec, Stored: stored, Open: b.Files().Count(), Flushes: d.flusher.BufferStats(spec.Name),
		Conflicts: d.flusher.Conflicts(spec.Name, status.MaxConflicts), Lacking: b.Replicas().Lacking(), Unexplained: b.Reassertion().Unexplained(), Ruled: b.Rules().Stats(),
	}
	if spec.Backing != "" {
		facts.Health = d.stores.Health(spec.Name).Status()
	}
	if facts.Health.Condition == health.Silent {
		facts.Silent = d.stores.SilentTargets(spec.BackingID)
	}
	return status.OfBuffer(&facts, time.Now())
}

// workerStatus describes the store workers that a user may see. It returns nil if this daemon has none.
func (d *Daemon) workerStatus(c access.Caller) *status.Workers {
	workers := d.cfg.Backing.Workers
	if workers == nil {
		return nil
	}
	return status.OfWorkers(workers.Counts(), workers.Status(), c, time.Now())
}

func (d *Daemon) sessionStatus(c access.Caller) []status.Session {
	all := []status.Session{}
	for _, s := range d.server.Sessions() {
		if !c.Owns(s.Caller().UID) {
			continue
		}
		all = append(all, status.Session{
			ID: s.ID(), Client: s.Client(), UID: s.Caller().UID, PID: s.PID(), Since: s.Since(), Mapped: s.Local(), Path: pathOf(s),
			Handles: s.Held(handle.Handles), Leases: s.Held(handle.Leases), InFlight: s.InFlight(),
		})
	}
	return all
}

// pathOf names the way that a session's bytes travel.
func pathOf(s *rpc.Session) string {
	if s.Local() {
		return "shm"
	}
	return cmp.Or(clientOf(s).admission.Path(), "messages")
}
