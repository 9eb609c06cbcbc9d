package meta

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

// Lifetimes of batch jobs, in a bucket of their own: thousands of nodes may come to a job
// at once, so each has a record of its own.
//
//	bucket forebay_lifetimes    lives.KEY.run          the job's, without its nodes
//	                            lives.KEY.node.NODE    its stay on a node
//
// Each is changed by compare-and-set alone. A run's record is made first and deleted last.
const (
	lifetimesBucket = "forebay_lifetimes"
	livesPrefix     = "lives."
	lifetimesAge    = 90 * 24 * time.Hour // of records and of markers of deleted ones: no job takes longer
)

func runKey(key string) string { return livesPrefix + key + ".run" }

func stayKey(key string, node bb.NodeID) string {
	return livesPrefix + key + ".node." + kv.NodeToken(node)
}

// lifeOf returns the lifetime that a record belongs to.
func lifeOf(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, livesPrefix), ".")
	return id
}

// BatchJobs are the batch jobs of a cluster, in a bucket that is made when first needed. It
// is safe for concurrent use.
type BatchJobs struct {
	c  *kv.Conn
	mu struct {
		sync.Mutex
		records *kv.Bucket // nil until it is needed
	}
}

// newBatchJobs returns the batch jobs on a server.
func newBatchJobs(c *kv.Conn) *BatchJobs { return &BatchJobs{c: c} }

func (j *BatchJobs) records(ctx context.Context) (*kv.Bucket, error) {
	j.mu.Lock()
	b := j.mu.records
	j.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b = j.c.Bucket(lifetimesBucket, kv.BucketOptions{Age: lifetimesAge, Gone: kv.NeverGone})
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

func sealLife(key string, v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "encode", Path: key, Err: err}
	}
	return kv.Seal(key, &metapb.Lifetime{Json: text})
}

func openLife[T any](r *kv.Record) (v T, err error) {
	var m metapb.Lifetime
	if err := kv.Open(r.Key, r.Data, &m); err != nil {
		return v, err
	}
	if err := json.Unmarshal(m.GetJson(), &v); err != nil {
		return v, bb.E(bb.Checksum, "decode", r.Key, err.Error())
	}
	return v, nil
}

// BeginLifetime stores a lifetime, which has no nodes yet, if there is none of its key,
// and returns the one that there is.
func (j *BatchJobs) BeginLifetime(ctx context.Context, l bb.Lifetime) (bb.Lifetime, error) {
	const op = "begin lifetime"
	if err := kv.CheckID(op, l.Key); err != nil {
		return bb.Lifetime{}, err
	}
	b, err := j.records(ctx)
	if err != nil {
		return bb.Lifetime{}, kv.Wrap(op, l.Key, err)
	}
	l.Nodes = nil
	data, err := sealLife(runKey(l.Key), &l)
	if err != nil {
		return bb.Lifetime{}, err
	}
	if _, _, err := b.Create(ctx, runKey(l.Key), data, 0); err != nil && !errors.Is(err, kv.ErrRevision) {
		return bb.Lifetime{}, kv.Wrap(op, l.Key, err)
	}
	return j.Lifetime(ctx, l.Key)
}

// Lifetime returns a lifetime with its nodes. NotFound if there is none.
func (j *BatchJobs) Lifetime(ctx context.Context, key string) (bb.Lifetime, error) {
	const op = "lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return bb.Lifetime{}, err
	}
	all, err := j.lives(ctx, op, livesPrefix+key+".>")
	if err != nil {
		return bb.Lifetime{}, err
	}
	if len(all) == 0 {
		return bb.Lifetime{}, noLifetime(op, key)
	}
	return all[0], nil
}

func noLifetime(op, key string) error {
	return bb.E(bb.NotFound, op, key, "no such job is known").WithRemedy("what is known of a job is forgotten a week after its buffers are gone")
}

// Lifetimes returns all lifetimes, the newest first.
func (j *BatchJobs) Lifetimes(ctx context.Context) ([]bb.Lifetime, error) {
	return j.lives(ctx, "lifetimes", livesPrefix+">")
}

func (j *BatchJobs) lives(ctx context.Context, op, filter string) ([]bb.Lifetime, error) {
	b, err := j.records(ctx)
	if err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	v := livesView{b: b}
	if err := b.Scan(ctx, filter, func(r *kv.Record) error { v.add(r); return nil }); err != nil {
		return nil, kv.Wrap(op, "", err)
	}
	return v.all(), nil
}

// livesView is what is known of lifetimes.
type livesView struct {
	b     *kv.Bucket
	seqs  map[string]uint64
	runs  map[string]bb.Lifetime
	stays map[string]map[string]bb.LifetimeNode // by lifetime and key
}

// add takes a record, unless it knows a newer one.
func (v *livesView) add(r *kv.Record) {
	if v.seqs == nil {
		v.seqs, v.runs, v.stays = map[string]uint64{}, map[string]bb.Lifetime{}, map[string]map[string]bb.LifetimeNode{}
	}
	if r.Seq <= v.seqs[r.Key] {
		return
	}
	id := lifeOf(r.Key)
	if strings.HasSuffix(r.Key, ".run") {
		delete(v.runs, id)
		if !r.Live() {
			delete(v.stays, id)
			delete(v.seqs, r.Key)
			return
		}
		v.seqs[r.Key] = r.Seq
		l, err := openLife[bb.Lifetime](r)
		if err != nil {
			v.b.Unreadable(r.Key, err)
			return
		}
		v.runs[id] = l
		return
	}
	delete(v.stays[id], r.Key)
	if !r.Live() {
		delete(v.seqs, r.Key)
		return
	}
	v.seqs[r.Key] = r.Seq
	n, err := openLife[bb.LifetimeNode](r)
	if err != nil {
		v.b.Unreadable(r.Key, err)
		return
	}
	if v.stays[id] == nil {
		v.stays[id] = map[string]bb.LifetimeNode{}
	}
	v.stays[id][r.Key] = n
}

func (v *livesView) all() []bb.Lifetime {
	list := make([]bb.Lifetime, 0, len(v.runs))
	for id, l := range v.runs {
		l.Nodes = []bb.LifetimeNode{}
		for _, n := range v.stays[id] {
			l.Nodes = append(l.Nodes, n)
		}
		slices.SortFunc(l.Nodes, func(a, b bb.LifetimeNode) int { return cmp.Compare(a.Node, b.Node) })
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b bb.Lifetime) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.Key, b.Key))
	})
	return list
}

// WatchLifetimes calls fn with all lifetimes, now and soon after any of them has changed,
// until ctx ends; it returns why. fn runs on the caller's goroutine.
func (j *BatchJobs) WatchLifetimes(ctx context.Context, fn func([]bb.Lifetime)) error {
	b, err := j.records(ctx)
	if err != nil {
		return kv.Wrap("watch lifetimes", "", err)
	}
	v := livesView{b: b}
	err = b.Watch(ctx, livesPrefix+">", v.add, func() bool {
		fn(v.all())
		return false
	})
	return kv.Wrap("watch lifetimes", "", err)
}

// ChangeLifetime changes a lifetime as change says, which may be called again and does not
// see its nodes, and returns it, without these. An error of change ends it.
func (j *BatchJobs) ChangeLifetime(ctx context.Context, key string, change func(*bb.Lifetime) error) (l bb.Lifetime, err error) {
	const op = "change lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return l, err
	}
	err = j.changeLife(ctx, op, runKey(key), func(r *kv.Record) (any, error) {
		if !r.Live() {
			return nil, noLifetime(op, key)
		}
		if l, err = openLife[bb.Lifetime](r); err != nil {
			return nil, err
		}
		if err := change(&l); err != nil {
			return nil, err
		}
		l.Nodes = nil
		return &l, nil
	})
	return l, err
}

// ChangeStay changes a job's stay on a node, which need not have begun.
func (j *BatchJobs) ChangeStay(ctx context.Context, key string, node bb.NodeID, change func(*bb.LifetimeNode) error) error {
	const op = "change lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return err
	}
	return j.changeLife(ctx, op, stayKey(key, node), func(r *kv.Record) (v any, err error) {
		n := bb.LifetimeNode{Node: node}
		if r.Live() {
			if n, err = openLife[bb.LifetimeNode](r); err != nil {
				return nil, err
			}
		}
		return &n, change(&n)
	})
}

func (j *BatchJobs) changeLife(ctx context.Context, op, key string, change func(*kv.Record) (any, error)) error {
	b, err := j.records(ctx)
	if err != nil {
		return kv.Wrap(op, key, err)
	}
	for try := range kv.MaxTries {
		kv.Yield(ctx, try)
		r, err := b.Get(ctx, key)
		if err != nil {
			return kv.Wrap(op, key, err)
		}
		v, err := change(&r)
		if err != nil {
			return err
		}
		data, err := sealLife(key, v)
		if err != nil {
			return err
		}
		if _, err = b.Put(ctx, key, data, r.Seq); !errors.Is(err, kv.ErrRevision) {
			return kv.Wrap(op, key, err)
		}
	}
	return kv.Wrap(op, key, kv.ErrRevision)
}

// ForgetLifetime deletes what is known of a lifetime. Nobody may change it any more.
func (j *BatchJobs) ForgetLifetime(ctx context.Context, key string) error {
	const op = "forget lifetime"
	if err := kv.CheckID(op, key); err != nil {
		return err
	}
	b, err := j.records(ctx)
	if err != nil {
		return kv.Wrap(op, key, err)
	}
	var keys []kv.Record
	if err := b.Scan(ctx, livesPrefix+key+".>", func(r *kv.Record) error { keys = append(keys, *r); return nil }); err != nil {
		return kv.Wrap(op, key, err)
	}
	// The run's comes last: stays without it are nobody's.
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
