package namespace

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	"forebay/meta/kv"
)

// pendingOps follows the operations of a namespace that are pending (StoreOp): what it reads
// grows with what changed, not with what is pending. A server that may have been set back is
// read from the start. It is used by one goroutine at a time.
type pendingOps struct {
	ns    *Namespace
	valid trust
	from  uint64             // the sequence to go on from; 0: nothing was read
	byKey map[string]StoreOp // that Read has returned, and that did not go since
}

// trust changes when sequences that were read may have been given to other changes.
type trust struct{ distrusted, reconnects uint64 }

func (ns *Namespace) trust() trust {
	return trust{ns.distrusted.Load(), ns.b.Reconnects()}
}

// PendingOps returns a follower that has read nothing yet.
func (ns *Namespace) PendingOps() OpReader {
	return ns.pendingOps()
}

func (ns *Namespace) pendingOps() *pendingOps {
	return &pendingOps{ns: ns, byKey: map[string]StoreOp{}}
}

// Read returns the operations that are pending and were not when it was called before, in the
// order in which they happened, and those that were and are not any more. One that another node
// has taken over went at its old revision and came at its new one. What is acknowledged before
// Read is called is read. Nothing is lost by an error: the next call returns it.
func (p *pendingOps) Read(ctx context.Context) (came, went []StoreOp, err error) {
	now := p.ns.trust()
	read := p.changes
	if p.from == 0 || p.valid != now {
		read = p.all
	}
	changed, from, err := read(ctx)
	if errors.Is(err, kv.ErrSetBack) || err == nil && p.ns.trust() != now {
		now = p.ns.trust() // older than what all reads: at worst it is read once more
		changed, from, err = p.all(ctx)
	}
	if err != nil {
		return nil, nil, kv.Wrap("store operations", p.ns.buffer, err)
	}
	p.valid, p.from = now, from
	for key, op := range changed {
		was, ok := p.byKey[key]
		if ok && op != nil && reflect.DeepEqual(*op, was) {
			continue
		}
		if ok {
			went = append(went, was)
			delete(p.byKey, key)
		}
		if op != nil {
			came = append(came, *op)
			p.byKey[key] = *op
		}
	}
	slices.SortFunc(came, func(a, b StoreOp) int { return cmp.Compare(a.Seq, b.Seq) })
	return came, went, nil
}

// all reads everything. It returns the operations that are pending, nil for the keys of those
// that were, and the sequence to go on from.
func (p *pendingOps) all(ctx context.Context) (now map[string]*StoreOp, from uint64, err error) {
	records, last, err := p.ns.opRecords(ctx)
	if err != nil {
		return nil, 0, err
	}
	for key := range p.byKey {
		if _, ok := records[key]; !ok {
			records[key] = kv.Record{Key: key}
		}
	}
	now, err = p.ns.openOps(records)
	return now, last + 1, err
}

// changes is all of those keys alone that have changed.
func (p *pendingOps) changes(ctx context.Context) (now map[string]*StoreOp, from uint64, err error) {
	from = p.from
	records := map[string]kv.Record{}
	err = p.ns.b.ChangedSince(ctx, opPrefix+"*", from, func(r *kv.Record) {
		records[r.Key], from = *r, r.Seq+1
	})
	if err != nil {
		return nil, 0, err
	}
	now, err = p.ns.openOps(records)
	return now, from, err
}
