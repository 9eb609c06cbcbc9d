package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"forebay/client"
	"forebay/internal/bb"
)

// Pool is a pool as Slurm wants it: counts of granules.
type Pool struct {
	ID          string `json:"id"`
	Units       string `json:"units"`
	Granularity int64  `json:"granularity"` // bytes
	Quantity    int64  `json:"quantity"`
	Free        int64  `json:"free"`
}

// poolsFile holds the last Pools, for slurm_bb_pools: it runs inside slurmctld, where
// nobody may be asked.
const poolsFile = "pools.json"

// Pools asks the daemons how much there is, and writes it where slurm_bb_pools finds it.
// What jobs were promised counts as used whether they have written yet or not; what
// others hold in memory counts too.
func (h *Hooks) Pools(ctx context.Context) ([]Pool, error) {
	c, err := h.Dial(ctx, client.User{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	list, err := h.records().live()
	if err != nil {
		h.log("records: %v", err)
	}
	granted := map[string]int64{}
	for _, r := range list {
		granted[r.Pool] += r.Granted
	}
	pools := poolsOf(nodes, granted, &h.Settings)
	text, err := json.Marshal(struct {
		Pools []Pool `json:"pools"`
	}{pools})
	if err != nil {
		return nil, err
	}
	return pools, writeWhole(filepath.Join(h.Settings.Folder, poolsFile), append(text, '\n'), 0o644)
}

// live returns the records of jobs whose buffers are there.
func (rs records) live() ([]*record, error) {
	now, err := rs.all("")
	old, err2 := rs.all("old")
	var list []*record
	for _, r := range slices.Concat(slices.Collect(maps.Values(now)), slices.Collect(maps.Values(old))) {
		if !r.over() {
			list = append(list, r)
		}
	}
	return list, errors.Join(err, err2)
}

// poolsOf counts what the daemons that take writes have.
func poolsOf(nodes []client.Node, granted map[string]int64, s *Settings) []Pool {
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
			// What is clean in memory can be evicted, and is free for Slurm.
			used += tier.Dirty
		}
		quantity := total / s.Granule
		taken := (max(used, granted[name]) + s.Granule - 1) / s.Granule
		pools = append(pools, Pool{ID: name, Units: "bytes", Granularity: s.Granule, Quantity: quantity, Free: max(0, quantity-taken)})
	}
	return pools
}

// Reaped is what Reap has found of one job.
type Reaped struct {
	Job    string `json:"job"`
	Buffer string `json:"buffer,omitempty"`
	Answer
}

// keepRecords is how long it is remembered how a job that is over has ended.
const keepRecords = 7 * 24 * time.Hour

// Reap compares what is remembered with what Slurm knows, and ends what Slurm has
// forgotten: it gives up after three teardowns, loses one when a job is cancelled at the
// wrong moment, all of them with its state, and those of the last half minute when
// slurmctld is killed. Data are copied out first, as ever. A job is left alone for as long
// as a verb works for it, and for quiet afterwards.
func (h *Hooks) Reap(ctx context.Context, quiet time.Duration) ([]Reaped, error) {
	jobs, err := h.Slurm.Jobs(ctx)
	if err != nil {
		return nil, err // without its word, everything would look forgotten
	}
	known := map[string]*JobInfo{}
	for i := range jobs {
		known[jobs[i].ID] = &jobs[i]
	}
	var (
		mu   sync.Mutex // guards done
		done []Reaped
		work errgroup.Group
	)
	work.SetLimit(reapAtOnce)
	for _, sub := range []string{"", "old"} {
		list, bad := h.records().all(sub)
		err = errors.Join(err, bad)
		for _, file := range slices.Sorted(maps.Keys(list)) {
			r, j := list[file], known[list[file].Job.ID]
			switch verdict(r, j, sub != "", time.Now(), quiet) {
			case forget:
				err = errors.Join(err, h.records().forget(file, r))
			case end:
				work.Go(func() error {
					a := h.reap(ctx, r, j, file)
					mu.Lock()
					defer mu.Unlock()
					done = append(done, Reaped{Job: r.Job.ID, Buffer: r.Buffer, Answer: a})
					return nil
				})
			}
		}
	}
	_ = work.Wait() // each says in its answer how it went
	slices.SortFunc(done, func(a, b Reaped) int { return strings.Compare(a.Job, b.Job) })
	return done, err
}

// What cannot be ended is not in the way of the others: it is tried for so long each time.
const (
	reapAtOnce = 8
	reapTime   = time.Minute
)

type fate int

const (
	leave fate = iota
	end
	forget
)

// Quiet is how long nobody has worked for a job that is to be reaped. Between two of its
// hooks Slurm may take its time.
const Quiet = 2 * time.Minute

// verdict says what is to become of a record.
func verdict(r *record, j *JobInfo, old bool, now time.Time, quiet time.Duration) fate {
	if r.over() {
		if now.Sub(r.Stages["teardown"].Since) > keepRecords {
			return forget
		}
		return leave
	}
	latest := r.Created
	for _, t := range []time.Time{r.seen, r.Stages["setup"].Since, r.Stages["data-out"].Since, r.Stages["teardown"].Since} {
		if t.After(latest) {
			latest = t
		}
	}
	switch {
	case now.Sub(latest) < quiet:
	case old, j == nil, !r.sameLife(j), j.over():
		return end
	}
	return leave
}

// reap ends what a job has left.
func (h *Hooks) reap(ctx context.Context, r *record, j *JobInfo, file string) Answer {
	if !r.done("post-run") && j != nil && r.sameLife(j) {
		r.Well = j.endedWell() // it is over, so nothing of it runs
	}
	ctx, cancel := context.WithTimeout(ctx, reapTime)
	defer cancel()
	a := h.teardown(ctx, r, false)
	h.log("job %s is over for Slurm, its buffer %s was still there: %s %s", r.Job.ID, r.Buffer, a.State, a.Message)
	if a.State != stateDone {
		return a
	}
	if r.file != "" {
		if err := os.Remove(file); err != nil {
			return failed(err)
		}
	}
	return a
}

// Status tells about a job in a few lines, for scontrol show bbstat and for people.
func (h *Hooks) Status(ctx context.Context, job string) (string, error) {
	r, err := h.records().load(job)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "job %s of %s", r.Job.ID, r.Job.User)
	if r.Buffer != "" {
		fmt.Fprintf(&b, ", buffer bb://%s", r.Buffer)
	}
	b.WriteByte('\n')
	for _, verb := range []string{"setup", "data-in", "pre-run", "post-run", "data-out", "teardown"} {
		if s, ok := r.Stages[verb]; ok {
			fmt.Fprintf(&b, "%-9s %-7s since %s", verb, s.State, s.Since.Local().Format(time.DateTime))
			if s.Message != "" {
				fmt.Fprintf(&b, "  %s", s.Message)
			}
			b.WriteByte('\n')
		}
	}
	if r.over() {
		return b.String(), nil
	}
	h.progress(ctx, r, &b)
	return b.String(), nil
}

// progress adds what the daemons do for the job now. That they cannot be asked is said.
func (h *Hooks) progress(ctx context.Context, r *record, b *strings.Builder) {
	c, err := h.dial(ctx, r)
	if err != nil {
		fmt.Fprintf(b, "the daemons do not answer: %v\n", err)
		return
	}
	defer c.Close()
	all, err := c.Jobs(ctx)
	if err != nil && bb.KindOf(err) != bb.Unsupported {
		fmt.Fprintf(b, "the daemons do not say: %v\n", err)
		return
	}
	for i := range all {
		if j := &all[i]; j.Buffer == r.Buffer && j.State == "running" {
			fmt.Fprintf(b, "%s: %d of %d files, %d of %d bytes", j.Kind, j.FilesDone, j.Files, j.BytesDone, j.Bytes)
			if j.LastError != "" {
				fmt.Fprintf(b, ", %s", j.LastError)
			}
			b.WriteByte('\n')
		}
	}
}
