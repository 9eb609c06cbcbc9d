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
	return livesPrefix + key + ".node." + nodeToken(node)
}

// lifeOf returns the lifetime that a record belongs to.
func lifeOf(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, livesPrefix), ".")
	return id
}

// BatchJobs are the batch jobs of a cluster, in a bucket that is made when first needed. It
// is safe for concurrent use.
type BatchJobs struct {
	c  *conn
	mu struct {
		sync.Mutex
		records *bucket // nil until it is needed
	}
}

// newBatchJobs returns the batch jobs on a server.
func newBatchJobs(c *conn) *BatchJobs { return &BatchJobs{c: c} }

func (j *BatchJobs) records(ctx context.Context) (*bucket, error) {
	j.mu.Lock()
	b := j.mu.records
	j.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b = j.c.bucket(lifetimesBucket, bucketOptions{Age: lifetimesAge, Gone: neverGone})
	if err := b.ensure(ctx); err != nil {
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
	return seal(key, &metapb.Lifetime{Json: text})
}

func openLife[T any](r *record) (v T, err error) {
	var m metapb.Lifetime
	if err := open(r.key, r.data, &m); err != nil {
		return v, err
	}
	if err := json.Unmarshal(m.GetJson(), &v); err != nil {
		return v, bb.E(bb.Checksum, "decode", r.key, err.Error())
	}
	return v, nil
}

// BeginLifetime stores a lifetime, which has no nodes yet, if there is none of its key,
// and returns the one that there is.
func (j *BatchJobs) BeginLifetime(ctx context.Context, l bb.Lifetime) (bb.Lifetime, error) {
	const op = "begin lifetime"
	if err := checkID(op, l.Key); err != nil {
		return bb.Lifetime{}, err
	}
	b, err := j.records(ctx)
	if err != nil {
		return bb.Lifetime{}, opError(op, l.Key, err)
	}
	l.Nodes = nil
	data, err := sealLife(runKey(l.Key), &l)
	if err != nil {
		return bb.Lifetime{}, err
	}
	if _, _, err := b.create(ctx, runKey(l.Key), data, 0); err != nil && !errors.Is(err, errConflict) {
		return bb.Lifetime{}, opError(op, l.Key, err)
	}
	return j.Lifetime(ctx, l.Key)
}

// Lifetime returns a lifetime with its nodes. NotFound if there is none.
func (j *BatchJobs) Lifetime(ctx context.Context, key string) (bb.Lifetime, error) {
	const op = "lifetime"
	if err := checkID(op, key); err != nil {
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
		return nil, opError(op, "", err)
	}
	v := livesView{b: b}
	if err := b.scan(ctx, filter, func(r *record) error { v.add(r); return nil }); err != nil {
		return nil, opError(op, "", err)
	}
	return v.all(), nil
}

// livesView is what is known of lifetimes.
type livesView struct {
	b     *bucket
	seqs  map[string]uint64
	runs  map[string]bb.Lifetime
	stays map[string]map[string]bb.LifetimeNode // by lifetime and key
}

// add takes a record, unless it knows a newer one.
func (v *livesView) add(r *record) {
	if v.seqs == nil {
		v.seqs, v.runs, v.stays = map[string]uint64{}, map[string]bb.Lifetime{}, map[string]map[string]bb.LifetimeNode{}
	}
	if r.seq <= v.seqs[r.key] {
		return
	}
	id := lifeOf(r.key)
	if strings.HasSuffix(r.key, ".run") {
		delete(v.runs, id)
		if !r.live() {
			delete(v.stays, id)
			delete(v.seqs, r.key)
			return
		}
		v.seqs[r.key] = r.seq
		l, err := openLife[bb.Lifetime](r)
		if err != nil {
			v.b.unreadable(r.key, err)
			return
		}
		v.runs[id] = l
		return
	}
	delete(v.stays[id], r.key)
	if !r.live() {
		delete(v.seqs, r.key)
		return
	}
	v.seqs[r.key] = r.seq
	n, err := openLife[bb.LifetimeNode](r)
	if err != nil {
		v.b.unreadable(r.key, err)
		return
	}
	if v.stays[id] == nil {
		v.stays[id] = map[string]bb.LifetimeNode{}
	}
	v.stays[id][r.key] = n
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
		return opError("watch lifetimes", "", err)
	}
	v := livesView{b: b}
	err = b.watch(ctx, livesPrefix+">", v.add, func() bool {
		fn(v.all())
		return false
	})
	return opError("watch lifetimes", "", err)
}

// ChangeLifetime changes a lifetime as change says, which may be called again and does not
// see its nodes, and returns it, without these. An error of change ends it.
func (j *BatchJobs) ChangeLifetime(ctx context.Context, key string, change func(*bb.Lifetime) error) (l bb.Lifetime, err error) {
	const op = "change lifetime"
	if err := checkID(op, key); err != nil {
		return l, err
	}
	err = j.changeLife(ctx, op, runKey(key), func(r *record) (any, error) {
		if !r.live() {
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
	if err := checkID(op, key); err != nil {
		return err
	}
	return j.changeLife(ctx, op, stayKey(key, node), func(r *record) (v any, err error) {
		n := bb.LifetimeNode{Node: node}
		if r.live() {
			if n, err = openLife[bb.LifetimeNode](r); err != nil {
				return nil, err
			}
		}
		return &n, change(&n)
	})
}

func (j *BatchJobs) changeLife(ctx context.Context, op, key string, change func(*record) (any, error)) error {
	b, err := j.records(ctx)
	if err != nil {
		return opError(op, key, err)
	}
	for try := range maxTries {
		yield(ctx, try)
		r, err := b.get(ctx, key)
		if err != nil {
			return opError(op, key, err)
		}
		v, err := change(&r)
		if err != nil {
			return err
		}
		data, err := sealLife(key, v)
		if err != nil {
			return err
		}
		if _, err = b.put(ctx, key, data, r.seq); !errors.Is(err, errConflict) {
			return opError(op, key, err)
		}
	}
	return opError(op, key, errConflict)
}

// ForgetLifetime deletes what is known of a lifetime. Nobody may change it any more.
func (j *BatchJobs) ForgetLifetime(ctx context.Context, key string) error {
	const op = "forget lifetime"
	if err := checkID(op, key); err != nil {
		return err
	}
	b, err := j.records(ctx)
	if err != nil {
		return opError(op, key, err)
	}
	var keys []record
	if err := b.scan(ctx, livesPrefix+key+".>", func(r *record) error { keys = append(keys, *r); return nil }); err != nil {
		return opError(op, key, err)
	}
	// The run's comes last: stays without it are nobody's.
	slices.SortFunc(keys, func(a, b record) int { return strings.Compare(a.key, b.key) })
	for i := range keys {
		if !keys[i].live() {
			continue
		}
		if err := taken(b.remove(ctx, keys[i].key, keys[i].seq)); err != nil {
			return opError(op, key, err)
		}
	}
	return nil
}
