package oplog

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	"forebay/meta/kv"
	"forebay/meta/namespace"
	"forebay/meta/nsbucket/record"
)

// follower follows the operations of a namespace that are pending (StoreOp). Its reads grow with
// the changes, not with the pending operations. A server that may have been set back is read from
// the start. It is used by one goroutine at a time.
type follower struct {
	log   *Log
	valid trust
	from  uint64                       // the sequence to go on from; 0: nothing was read
	byKey map[string]namespace.StoreOp // that Read has returned, and that did not go since
}

// trust changes when sequences that were read may have been given to other changes.
type trust struct{ distrusted, reconnects uint64 }

func (l *Log) trust() trust {
	return trust{l.distrusted.Load(), l.b.Reconnects()}
}

// PendingOps returns a follower that has read nothing yet.
func (l *Log) PendingOps() namespace.OpReader {
	return l.follow()
}

func (l *Log) follow() *follower {
	return &follower{log: l, byKey: map[string]namespace.StoreOp{}}
}

// Read returns the operations that became pending since the last call, in the order in which they
// happened, and those that are not pending any more. An operation that another node has taken over
// went at its old revision and came at its new one. Changes acknowledged before the call are read.
// An error loses nothing. The next call returns it.
func (p *follower) Read(ctx context.Context) (came, went []namespace.StoreOp, err error) {
	now := p.log.trust()
	read := p.changes
	if p.from == 0 || p.valid != now {
		read = p.all
	}
	changed, from, err := read(ctx)
	if errors.Is(err, kv.ErrSetBack) || err == nil && p.log.trust() != now {
		now = p.log.trust() // older than the result of all; at worst it is read once more
		changed, from, err = p.all(ctx)
	}
	if err != nil {
		return nil, nil, kv.Wrap("store operations", p.log.buffer, err)
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
	slices.SortFunc(came, func(a, b namespace.StoreOp) int { return cmp.Compare(a.Seq, b.Seq) })
	return came, went, nil
}

// all reads everything. It returns the operations that are pending, nil for the keys of those
// that were, and the sequence to go on from.
func (p *follower) all(ctx context.Context) (now map[string]*namespace.StoreOp, from uint64, err error) {
	records, last, err := p.log.opRecords(ctx)
	if err != nil {
		return nil, 0, err
	}
	for key := range p.byKey {
		if _, ok := records[key]; !ok {
			records[key] = kv.Record{Key: key}
		}
	}
	now, err = p.log.openOps(records)
	return now, last + 1, err
}

// changes is all of those keys alone that have changed.
func (p *follower) changes(ctx context.Context) (now map[string]*namespace.StoreOp, from uint64, err error) {
	from = p.from
	records := map[string]kv.Record{}
	err = p.log.b.ChangedSince(ctx, record.OpPrefix+"*", from, func(r *kv.Record) {
		records[r.Key], from = *r, r.Seq+1
	})
	if err != nil {
		return nil, 0, err
	}
	now, err = p.log.openOps(records)
	return now, from, err
}
