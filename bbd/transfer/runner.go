// Package transfer has stages and drains as operations of all daemons. It runs their tasks, follows them,
// and has the messages about them. It must never depend on the work of a task.
package transfer

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/bbd/cluster"
	"forebay/internal/bb"
	"forebay/meta/ops"
)

// In a cluster, stage-ins, stage-outs and drains are operations of all daemons (meta/ops):
//
//	daemon of the client ── submits ──▶ queue ──▶ any daemon: lists, and adds tasks
//	        │                             │   ╲──▶ any daemon with room: copies files in
//	        │                             ╰──────▶ an owner: flushes, or copies its files out
//	        ╰── follows the operation and reports to its client
//
// A task that a daemon did not end is assigned to another, or again to the owner that it
// is meant for. If that is gone, the coordinator adopts its tasks, which can do the part that
// concerns clean files and reports of the others that their owner is away.
const (
	tasksAtOnce   = 2  // that any daemon may do
	ownAtOnce     = 64 // that this node has to do; drains wait more than they work
	maxAttempts   = 3  // of a task that cannot be begun, as when a store does not answer
	againAfter    = 2 * time.Second
	takeOverEvery = 2 * time.Second
	// An owner whose last gossip is so old will not do its tasks soon.
	takeOverAfter = 10 * time.Second
	housekeeping  = time.Hour // old operations are forgotten
	lastWords     = 5 * time.Second
)

// Run runs tasks until the service's context ends.
func (s *Service) Run() {
	var group sync.WaitGroup
	group.Go(func() { s.runTasks("", tasksAtOnce) })
	group.Go(func() { s.runTasks(s.o.Node, ownAtOnce) })
	group.Go(s.takeOver)
	group.Wait()
}

// pause waits. It returns false when the service ends.
func (s *Service) pause(t time.Duration) bool {
	select {
	case <-time.After(t):
		return true
	case <-s.ctx.Done():
		return false
	}
}

// runTasks runs the tasks of this node, or those that any node may run.
func (s *Service) runTasks(of bb.NodeID, atOnce int64) {
	slots := semaphore.NewWeighted(atOnce)
	var group sync.WaitGroup
	defer group.Wait()
	for slots.Acquire(s.ctx, 1) == nil {
		if !s.accepts(of) {
			slots.Release(1)
			if !s.pause(200 * time.Millisecond) {
				return
			}
			continue
		}
		l, err := s.o.Operations.Next(s.ctx, of, s.o.Node)
		if err != nil {
			slots.Release(1)
			if !s.pause(time.Second) {
				return
			}
			continue
		}
		group.Go(func() {
			defer slots.Release(1)
			s.runTask(l)
		})
	}
}

// accepts reports whether this daemon should accept a task now.
func (s *Service) accepts(of bb.NodeID) bool {
	if of != "" {
		return s.o.Ready()
	}
	return cluster.AcceptsTasks(s.o.Self(), s.o.Cluster.Members())
}

// takeOver runs the tasks of nodes that are gone, while this daemon is the coordinator.
func (s *Service) takeOver() {
	cleaned, swept := time.Now(), make(map[bb.InstanceID]bool)
	var sweeps sync.WaitGroup
	defer sweeps.Wait()
	for s.pause(takeOverEvery) {
		members := s.o.Cluster.Members()
		if cluster.Coordinator(members) != s.o.Node {
			continue
		}
		for _, m := range members {
			if m.State.Gone() && time.Since(m.Since) > takeOverAfter {
				s.runTasksOf(m.Node)
				if m.Instance != 0 && !swept[m.Instance] {
					swept[m.Instance] = true
					sweeps.Go(s.o.Gone)
				}
			}
		}
		if time.Since(cleaned) > housekeeping {
			cleaned = time.Now()
			if _, err := s.o.Operations.List(s.ctx); err != nil {
				s.o.Log.Debug("forgetting old jobs", "err", err)
			}
		}
	}
}

// runTasksOf runs the tasks of a node that is gone.
func (s *Service) runTasksOf(node bb.NodeID) {
	for {
		l, err := s.o.Operations.NextWithin(s.ctx, node, s.o.Node, takeOverEvery)
		if l == nil || err != nil {
			return
		}
		s.runTask(l)
	}
}

// runTask runs one task.
func (s *Service) runTask(l *ops.Lease) {
	last := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(s.ctx), lastWords)
	}
	defer func() {
		ctx, cancel := last()
		defer cancel()
		l.Release(ctx)
	}()
	tally, err := s.o.Run(l)
	if l.Context().Err() != nil {
		return // it is another's now, or will be
	}
	if err != nil && bb.KindOf(err) == bb.Unavailable && l.Attempt < maxAttempts {
		s.o.Log.Info("a task of a job is put off", "job", l.Operation.ID, "task", l.Task.ID, "err", err)
		ctx, cancel := last()
		defer cancel()
		if err := l.Nak(ctx, againAfter); err != nil {
			s.o.Log.Warn("giving a task back", "job", l.Operation.ID, "err", err)
		}
		return
	}
	if err != nil {
		// A failure without a path is the whole task's.
		tally.Failed = append(tally.Failed, ops.Failure{Kind: bb.KindOf(err), Reason: err.Error()})
		tally.FailedTotal++
	}
	if err := l.Done(s.ctx, tally); err != nil {
		s.o.Log.Warn("ending a task of a job", "job", l.Operation.ID, "task", l.Task.ID, "err", err)
	}
}
