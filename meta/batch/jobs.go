// Package batch has the records of batch jobs: a job's request, its state, and its attachment to
// each node. It must never decide about the end of a job, nor the work at that.
//
// Thousands of nodes may come to a job at once, so each has a record of its own:
//
//	bucket forebay_lifetimes    lives.KEY.run          the job's, without its nodes
//	                            lives.KEY.node.NODE    its attachment to a node
//
// Each is changed by compare-and-set alone. A job's record is made first and deleted last.
package batch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/conn"
	"forebay/meta/kv"
	"forebay/meta/retry"
)

const (
	bucketName = "forebay_lifetimes"
	prefix     = "lives."
	age        = 90 * 24 * time.Hour // of records and of markers of deleted ones, as no job takes longer
)

func runKey(key string) string { return prefix + key + ".run" }

func attachmentKey(key string, node bb.NodeID) string {
	return prefix + key + ".node." + kv.NodeToken(node)
}

// jobOf returns the batch job that a record belongs to.
func jobOf(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), ".")
	return id
}

// Jobs are the batch jobs of a cluster, in a bucket that is made when first needed. It
// is safe for concurrent use.
type Jobs struct {
	c  *conn.Conn
	mu struct {
		sync.Mutex
		records *kv.Bucket // nil until it is needed
	}
}

// New returns the batch jobs on a server.
func New(c *conn.Conn) *Jobs { return &Jobs{c: c} }

func (j *Jobs) records(ctx context.Context) (*kv.Bucket, error) {
	j.mu.Lock()
	b := j.mu.records
	j.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b = kv.New(j.c, bucketName, kv.BucketOptions{Age: age, Gone: kv.NeverGone})
	if err := b.Ensure(ctx); err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.records == nil {
		j.mu.records = b
	}
	return j.mu.records, nil
}

// Begin stores a batch job without nodes if there is none of its key, and returns the stored one.
func (j *Jobs) Begin(ctx context.Context, l bb.Lifetime) (bb.Lifetime, error) {
	const op = "begin lifetime"
	if err := kv.CheckID(op, l.Key); err != nil {
		return bb.Lifetime{}, err
	}
	b, err := j.records(ctx)
	if err != nil {
		return bb.Lifetime{}, kv.Wrap(op, l.Key, err)
	}
	l.Nodes = nil
	data, err := sealRun(&l)
	if err != nil {
		return bb.Lifetime{}, err
	}
	if _, _, err := b.Create(ctx, runKey(l.Key), data, 0); err != nil && !errors.Is(err, kv.ErrRevision) {
		return bb.Lifetime{}, kv.Wrap(op, l.Key, err)
	}
	return j.Get(ctx, l.Key)
}

// Get returns a lifetime with its nodes. NotFound if there is none.
func (j *Jobs) Get(ctx context.Context, key string) (bb.Lifetime, error) {
	const op = "lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return bb.Lifetime{}, err
	}
	all, err := j.list(ctx, op, prefix+key+".>")
	if err != nil {
		return bb.Lifetime{}, err
	}
	if len(all) == 0 {
		return bb.Lifetime{}, notFound(op, key)
	}
	return all[0], nil
}

func notFound(op, key string) error {
	return bb.E(bb.NotFound, op, key, "no such job is known").WithRemedy("the record of a job is removed a week after its buffers")
}

// List returns all batch jobs, the newest first.
func (j *Jobs) List(ctx context.Context) ([]bb.Lifetime, error) {
	return j.list(ctx, "lifetimes", prefix+">")
}

func (j *Jobs) list(ctx context.Context, op, filter string) ([]bb.Lifetime, error) {
	b, err := j.records(ctx)
	if err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	v := view{b: b}
	if err := b.Scan(ctx, filter, func(r *kv.Record) error { v.add(r); return nil }); err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	return v.all(), nil
}

// view is the records of batch jobs that were read.
type view struct {
	b           *kv.Bucket
	seqs        map[string]uint64
	runs        map[string]bb.Lifetime
	attachments map[string]map[string]bb.Attachment // by job and key
}

// add adds a record, unless it has a newer one.
func (v *view) add(r *kv.Record) {
	if v.seqs == nil {
		v.seqs, v.runs, v.attachments = map[string]uint64{}, map[string]bb.Lifetime{}, map[string]map[string]bb.Attachment{}
	}
	if r.Seq <= v.seqs[r.Key] {
		return
	}
	id := jobOf(r.Key)
	if strings.HasSuffix(r.Key, ".run") {
		delete(v.runs, id)
		if !r.Live() {
			delete(v.attachments, id)
			delete(v.seqs, r.Key)
			return
		}
		v.seqs[r.Key] = r.Seq
		l, err := openRun(r)
		if err != nil {
			v.b.Unreadable(r.Key, err)
			return
		}
		v.runs[id] = l
		return
	}
	delete(v.attachments[id], r.Key)
	if !r.Live() {
		delete(v.seqs, r.Key)
		return
	}
	v.seqs[r.Key] = r.Seq
	n, err := openAttachment(r)
	if err != nil {
		v.b.Unreadable(r.Key, err)
		return
	}
	if v.attachments[id] == nil {
		v.attachments[id] = map[string]bb.Attachment{}
	}
	v.attachments[id][r.Key] = n
}

func (v *view) all() []bb.Lifetime {
	list := make([]bb.Lifetime, 0, len(v.runs))
	for id, l := range v.runs {
		l.Nodes = []bb.Attachment{}
		for _, n := range v.attachments[id] {
			l.Nodes = append(l.Nodes, n)
		}
		slices.SortFunc(l.Nodes, func(a, b bb.Attachment) int { return cmp.Compare(a.Node, b.Node) })
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b bb.Lifetime) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.Key, b.Key))
	})
	return list
}

// Watch calls fn with all batch jobs, now and soon after any of them has changed, until ctx ends,
// and returns the cause. fn runs on the caller's goroutine.
func (j *Jobs) Watch(ctx context.Context, fn func([]bb.Lifetime)) error {
	b, err := j.records(ctx)
	if err != nil {
		return kv.Wrap("watch lifetimes", "", err)
	}
	v := view{b: b}
	err = b.Watch(ctx, prefix+">", v.add, func() bool {
		fn(v.all())
		return false
	})
	return kv.Wrap("watch lifetimes", "", err)
}

// Change changes a batch job by change, which may be called again and gets no nodes, and returns
// it, without these. An error of change ends it.
func (j *Jobs) Change(ctx context.Context, key string, change func(*bb.Lifetime) error) (l bb.Lifetime, err error) {
	const op = "change lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return l, err
	}
	err = j.change(ctx, op, runKey(key), func(r *kv.Record) ([]byte, error) {
		if !r.Live() {
			return nil, notFound(op, key)
		}
		if l, err = openRun(r); err != nil {
			return nil, err
		}
		if err := change(&l); err != nil {
			return nil, err
		}
		l.Nodes = nil
		return sealRun(&l)
	})
	return l, err
}

// ChangeAttachment changes a job's stay on a node, which need not have begun.
func (j *Jobs) ChangeAttachment(ctx context.Context, key string, node bb.NodeID, change func(*bb.Attachment) error) error {
	const op = "change lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return err
	}
	return j.change(ctx, op, attachmentKey(key, node), func(r *kv.Record) (data []byte, err error) {
		n := bb.Attachment{Node: node}
		if r.Live() {
			if n, err = openAttachment(r); err != nil {
				return nil, err
			}
		}
		if err := change(&n); err != nil {
			return nil, err
		}
		return sealAttachment(r.Key, &n)
	})
}

func (j *Jobs) change(ctx context.Context, op, key string, change func(*kv.Record) ([]byte, error)) error {
	b, err := j.records(ctx)
	if err != nil {
		return kv.Wrap(op, key, err)
	}
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		r, err := b.Get(ctx, key)
		if err != nil {
			return kv.Wrap(op, key, err)
		}
		data, err := change(&r)
		if err != nil {
			return err
		}
		if _, err = b.Put(ctx, key, data, r.Seq); !errors.Is(err, kv.ErrRevision) {
			return kv.Wrap(op, key, err)
		}
	}
	return kv.Wrap(op, key, kv.ErrRevision)
}

// Forget deletes the records of a batch job. It may not be changed any more.
func (j *Jobs) Forget(ctx context.Context, key string) error {
	const op = "forget lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return err
	}
	b, err := j.records(ctx)
	if err != nil {
		return kv.Wrap(op, key, err)
	}
	var keys []kv.Record
	if err := b.Scan(ctx, prefix+key+".>", func(r *kv.Record) error { keys = append(keys, *r); return nil }); err != nil {
		return kv.Wrap(op, key, err)
	}
	// The run's comes last, since attachments without it belong to no job.
	slices.SortFunc(keys, func(a, b kv.Record) int { return strings.Compare(a.Key, b.Key) })
	for i := range keys {
		if !keys[i].Live() {
			continue
		}
		if err := kv.IgnoreConflict(b.Remove(ctx, keys[i].Key, keys[i].Seq)); err != nil {
			return kv.Wrap(op, key, err)
		}
	}
	return nil
}
