package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/slurm/slurmctl"
)

// Pool is a pool in Slurm's form: counts of granules.
type Pool struct {
	ID          string `json:"id"`
	Units       string `json:"units"`
	Granularity int64  `json:"granularity"` // bytes
	Quantity    int64  `json:"quantity"`
	Free        int64  `json:"free"`
}

// poolsFile holds the last Pools, for slurm_bb_pools, since it runs inside slurmctld, where
// requests are forbidden.
const poolsFile = "pools.json"

// Pools requests the capacity from the daemons, and writes it where slurm_bb_pools finds it. Bytes
// granted to jobs count as used whether they have written yet or not. Others' bytes in memory count
// too.
func (h *Hooks) Pools(ctx context.Context) ([]Pool, error) {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	nodes, err := admin.Nodes(ctx, c)
	if err != nil {
		return nil, err
	}
	lives, err := admin.Lifetimes(ctx, c, "")
	if err != nil {
		return nil, err
	}
	pools := poolsOf(nodes, grantedOf(lives), &h.Settings)
	text, err := json.Marshal(struct {
		Pools []Pool `json:"pools"`
	}{pools})
	if err != nil {
		return nil, err
	}
	return pools, writeWhole(filepath.Join(h.Settings.Folder, poolsFile), append(text, '\n'), 0o644)
}

// grantedOf counts by pool the bytes granted to jobs with buffers.
func grantedOf(lives []admin.Lifetime) map[string]int64 {
	granted := map[string]int64{}
	for i := range lives {
		if l := &lives[i]; l.Governed && l.State != admin.LifetimeGone {
			granted[l.Pool] += l.Granted
		}
	}
	return granted
}

// poolsOf adds up the pools of the daemons that accept writes.
func poolsOf(nodes []admin.Node, granted map[string]int64, s *Settings) []Pool {
	var pools []Pool
	for _, name := range s.Pools {
		var total, used int64
		for i := range nodes {
			n := &nodes[i]
			if n.State != "ready" || n.Refused != "" {
				continue
			}
			tier := n.Memory
			if name == "disk" {
				tier = n.Disk
			}
			total += tier.Capacity
			// Clean memory can be evicted, and is free for Slurm.
			used += tier.Dirty
		}
		quantity := total / s.Granule
		taken := (max(used, granted[name]) + s.Granule - 1) / s.Granule
		pools = append(pools, Pool{ID: name, Units: "bytes", Granularity: s.Granule, Quantity: quantity, Free: max(0, quantity-taken)})
	}
	return pools
}

// Reaped is a job that Reap has ended.
type Reaped struct {
	Job    string `json:"job"`
	Buffer string `json:"buffer,omitempty"`
	Answer
}

// Quiet is how long Slurm must have had no record of a lifetime's job before the lifetime is ended.
// Slurm may start the hooks long after a job's end.
const Quiet = 2 * time.Minute

// Reap compares the daemons' records of jobs with Slurm's, and ends those without a record in
// Slurm. Slurm stops after three teardowns, loses one if a job is cancelled at the wrong moment,
// all of them with its state, and those of the last half minute when slurmctld is killed. The
// daemons save the data first, as ever. A job that Slurm had in any check within quiet is left
// alone.
func (h *Hooks) Reap(ctx context.Context, quiet time.Duration) ([]Reaped, error) {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	// In this order, since Slurm has a job's record before its setup runs.
	lives, err := admin.Lifetimes(ctx, c, "")
	if err != nil {
		return nil, err
	}
	jobs, err := h.Slurm.Jobs(ctx)
	if err != nil {
		return nil, err // without Slurm's list, all jobs would seem gone
	}
	now, done := time.Now(), []Reaped{}
	h.reconciler.Cluster, h.reconciler.Governed = h.Settings.Cluster, true
	for _, e := range h.reconciler.Compare(lives, jobs, now, quiet) {
		a := Answer{State: stateDone, Message: "ended"}
		if _, err := admin.EndLifetime(ctx, c, e.Key, e.EndOptions); err != nil {
			a = failed(err)
		}
		h.log("job %s (%s) is over for Slurm, and was not for the daemons: %s", e.Job, e.Key, a.Message)
		done = append(done, Reaped{Job: e.Job, Buffer: e.Buffer, Answer: a})
	}
	if quiet > 0 { // one check proves nothing
		h.tellAbandoned(ctx, jobs, now, quiet)
		err = h.finish(ctx, jobs, lives, now, quiet)
	}
	return done, errors.Join(err, h.dropFiles(jobsByID(jobs), now.Add(-quiet)))
}

// tellAbandoned notifies the users of jobs that Slurm may never continue.
func (h *Hooks) tellAbandoned(ctx context.Context, jobs []slurmctl.Job, now time.Time, quiet time.Duration) {
	attended := func(job string) bool { return h.attended(job, quiet) }
	var list []*slurmctl.Job
	list, h.abandoned = abandoned(jobs, attended, h.abandoned, now, quiet)
	for _, j := range list {
		if strings.Contains(j.AdminComment, abandonedNote) {
			continue
		}
		h.log("job %s is %s, and no hook is at work for it: Slurm has lost track of it, and its user has to cancel it", j.ID, j.Buffers)
		h.note(ctx, j.ID, abandonedNote)
	}
}

// finish makes Slurm end the stage-outs of finished jobs, each once. If it has lost the record of
// the buffer when it was killed, 22.05 ignores that.
func (h *Hooks) finish(ctx context.Context, jobs []slurmctl.Job, lives []admin.Lifetime, now time.Time, quiet time.Duration) (err error) {
	attended := func(job string) bool { return h.attended(job, quiet) }
	finished := map[string]bool{}
	for key, job := range finishable(jobs, lives, h.Settings.Cluster, attended, now, quiet) {
		finished[key] = true
		if h.finished[key] {
			continue
		}
		h.log("job %s (%s) has nothing left to be saved, and is still in STAGE_OUT: its end is requested from Slurm", job, key)
		err = errors.Join(err, h.Slurm.Finish(ctx, job))
	}
	h.finished = finished
	return err
}

// finishable are the jobs, by the keys of their lifetimes, that Slurm takes for staging out, though
// all of that has been over for quiet and no hook is at work. Slurm has not detected that the hook
// has ended.
func finishable(jobs []slurmctl.Job, lives []admin.Lifetime, cluster string, attended func(job string) bool, now time.Time, quiet time.Duration) map[string]string {
	staging := map[string]*slurmctl.Job{}
	for i := range jobs {
		if jobs[i].State == "STAGE_OUT" {
			staging[jobs[i].ID] = &jobs[i]
		}
	}
	found := map[string]string{}
	for i := range lives { // the newest first
		l := &lives[i]
		j := staging[l.Job]
		if j == nil || !l.Governed || l.Cluster != cluster || !ofRun(l, j, cluster) {
			continue
		}
		delete(staging, l.Job)
		if l.State == admin.LifetimeGone && now.Sub(l.Gone) >= quiet && !attended(l.Job) {
			found[l.Key] = l.Job
		}
	}
	return found
}

// Figures writes the work of buffers so far into the records of running jobs, where that was not
// done within every, that is, at the first check with any figures, and then every so often. Slurm
// accepts no change of the record of a job that is over.
func (h *Hooks) Figures(ctx context.Context, every time.Duration) error {
	c, err := h.Dial(ctx, client.User{})
	if err != nil {
		return err
	}
	defer c.Close()
	lives, err := admin.Lifetimes(ctx, c, "")
	if err != nil {
		return err
	}
	figured := map[string]time.Time{}
	for i := range lives {
		l := &lives[i]
		if l.Cluster != h.Settings.Cluster || l.State != admin.LifetimeOpen || l.Total() == (admin.Figures{}) {
			continue
		}
		if last, was := h.figured[l.Key]; was && time.Since(last) < every {
			figured[l.Key] = last
			continue
		}
		figured[l.Key] = time.Now()
		if bad := h.Slurm.Figures(ctx, l.Job, FiguresLine(l)); bad != nil {
			err = errors.Join(err, bad)
		}
	}
	h.figured = figured
	return err
}

// FiguresLine formats the work of a buffer for its job in NAME=value words: bytes that it absorbed,
// most bytes that were not on the store, seconds that writers were blocked, flushes that failed,
// and seconds that it saved at least against writing straight to the store ("unknown" until the
// store's speed was measured).
func FiguresLine(l *admin.Lifetime) string {
	f, saved := l.Total(), "unknown"
	if s, measured := l.Saved(); measured {
		saved = strconv.FormatFloat(s, 'f', 1, 64)
	}
	return fmt.Sprintf("%s%d peak_dirty=%d blocked_seconds=%.1f flush_failures=%d saved_seconds=%s", figuresPrefix, f.Absorbed, f.PeakDirty, f.Blocked, f.Failures, saved)
}

const figuresPrefix = "absorbed="
