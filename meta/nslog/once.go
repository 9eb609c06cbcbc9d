package nslog

import (
	"context"
	"errors"
	"fmt"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/once"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
)

const (
	forgetAt    = 64   // outcomes that are not needed any more go so many at a time
	maxOutcomes = 4096 // numbers that the outcomes of a session span
)

// result is the answer to a change.
type result struct {
	entry     bb.Entry
	replaced  *bb.Entry
	revisions []uint64 // of records, where the change is of them alone; else nil
}

// change carries out a change, once if it has an ID.
func (e *Engine) change(ctx context.Context, op, name string, run func(*owner.Round) (result, error)) (result, error) {
	id, has := once.IDOf(ctx)
	var r result // of the round's goroutine, until the change is answered
	err := e.owner.Do(ctx, op, name, func(b *owner.Round) (err error) {
		if !has {
			r, err = run(b)
			return err
		}
		if !b.Touch(record.OutcomeKey(id.Session, id.Number)) {
			return owner.ErrPostponed
		}
		var done bool
		if r, done, err = outcome(b.Table, id); done || err != nil {
			return err
		}
		if err := e.refused.Answer(id); err != nil {
			return err
		}
		before := b.Len()
		if r, err = run(b); err == nil && b.Len() > before {
			err = remember(b, id, &r)
		}
		if !errors.Is(err, owner.ErrPostponed) {
			e.refused.Note(id, refusal(err))
		}
		return err
	})
	if err != nil {
		return result{}, err
	}
	return r, nil
}

// refusal is the error of a change that is not carried out later either. A revision that was not the entry's
// never will be. That need not be stored, and may be another try of an Update. A record's may be,
// where the key has none.
func refusal(err error) error {
	if errors.Is(err, kv.ErrRevision) && !errors.Is(err, errRecordRevision) {
		return nil
	}
	return err
}

// answered returns the outcome of a change that was carried out before.
func (e *Engine) answered(ctx context.Context) (r result, done bool, err error) {
	id, has := once.IDOf(ctx)
	if !has {
		return r, false, nil
	}
	err = e.owner.Read(ctx, "look up an outcome", e.o.Buffer, func(t *table.Table) (err error) {
		r, done, err = outcome(t, id)
		return err
	})
	return r, done, err
}

// outcome returns the answer to a change, if it was carried out.
func outcome(t *table.Table, id once.ID) (r result, done bool, err error) {
	item, ok := t.Get(record.OutcomeKey(id.Session, id.Number))
	if !ok {
		return r, false, once.CheckFloor(t, id)
	}
	o, err := record.OpenOutcome(item.Value)
	if err != nil || len(o) == 0 {
		return r, false, err
	}
	if record.KindOf(o[0].Key) == record.Other {
		for _, f := range o {
			r.revisions = append(r.revisions, f.Revision)
		}
		return r, true, nil
	}
	entries := make([]bb.Entry, len(o))
	for i, f := range o {
		if entries[i], err = decode(pages.Item{Key: f.Key, Value: f.Value, Revision: f.Revision}); err != nil {
			return r, false, err
		}
	}
	r.entry = entries[0]
	if len(entries) > 1 {
		r.replaced = &entries[1]
	}
	return r, true, nil
}

// Outcome returns the entry in the answer to the change with the context's ID, and whether it was
// carried out.
func (e *Engine) Outcome(ctx context.Context) (bb.Entry, bool, error) {
	r, done, err := e.answered(ctx)
	return r.entry, done, err
}

// remember adds the effect that stores the outcome of a change, and those that remove the outcomes
// that the client has answered for.
func remember(b *owner.Round, id once.ID, r *result) error {
	o, err := outcomeOf(r)
	if err != nil {
		return err
	}
	var old [][]byte
	lowest := id.Number
	b.Table.Outcomes(id.Session, 1, func(number uint64, item pages.Item) bool {
		lowest = min(lowest, number)
		if number >= id.Answered || len(old) == 2*forgetAt {
			return false
		}
		old = append(old, item.Key)
		return true
	})
	floorKey := record.OutcomeKey(id.Session, 0)
	switch {
	case len(old) >= forgetAt && b.Touch(floorKey):
		for _, key := range old {
			b.Remove(key)
		}
		_, highest := record.OutcomeOf(old[len(old)-1])
		b.Store(floorKey, record.FloorValue(highest+1))
	case id.Number-lowest > maxOutcomes:
		return bb.E(bb.Busy, "change", id.Session.String(), fmt.Sprintf("the session has more than %d changes that it has not answered for", maxOutcomes))
	}
	b.Store(record.OutcomeKey(id.Session, id.Number), o.Value())
	return nil
}

// outcomeOf returns the stored part of the answer to a change.
func outcomeOf(r *result) (o record.Outcome, err error) {
	for _, revision := range r.revisions {
		o = append(o, record.Effect{Key: record.OtherKey(""), Revision: revision})
	}
	for _, e := range []*bb.Entry{&r.entry, r.replaced} {
		if e == nil || r.revisions != nil {
			continue
		}
		key, value, err := encode(e)
		if err != nil {
			return nil, err
		}
		o = append(o, record.Effect{Key: key, Value: value, Revision: e.Revision})
	}
	return o, nil
}

// EndSession drops the outcomes of a session, which does not send changes any more.
func (e *Engine) EndSession(ctx context.Context, s record.Session) error {
	for more := true; more; {
		err := e.owner.Do(ctx, "end session", s.String(), func(b *owner.Round) (err error) {
			delete(e.refused, s)
			n := 0
			more = false
			b.Table.Outcomes(s, 0, func(_ uint64, item pages.Item) bool {
				if n++; n > maxOutcomes {
					more = true
				} else if !b.Touch(item.Key) {
					err = owner.ErrPostponed
				} else {
					b.Remove(item.Key)
				}
				return !more && err == nil
			})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
