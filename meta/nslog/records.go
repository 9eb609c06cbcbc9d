package nslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/pages"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
	"forebay/meta/retry"
)

// Records are those that another package keeps beside the entries, each under a key, which is
// tokens with dots between them. They are in the log and in the table as entries are. A change
// that does not find the revisions that it expects changes nothing, and its error is
// kv.ErrRevision. A key that has no record has revision 0. It is safe for concurrent use.
type Records struct{ e *Engine }

// Records returns the records of other packages.
func (e *Engine) Records() *Records { return &Records{e} }

// Get returns the record of a key, or one without data if there is none.
func (r *Records) Get(ctx context.Context, key string) (found kv.Record, err error) {
	err = r.e.owner.Read(ctx, "record", key, func(t *table.Table) error {
		item, _ := t.Get(record.OtherKey(key))
		found = kv.Record{Key: key, Seq: item.Revision, Data: bytes.Clone(item.Value)}
		return nil
	})
	return found, err
}

// Scan calls fn with all records, as they were at one moment, whose keys match a filter: "*"
// stands for one token, and ">" for all that follow. Fn may use the namespace, and keep a
// record's data. Its error ends the scan, and is returned unless it is kv.ErrStop.
func (r *Records) Scan(ctx context.Context, filter string, fn func(*kv.Record) error) error {
	found, err := r.matching(ctx, filter)
	for i := 0; i < len(found) && err == nil; i++ {
		err = fn(&found[i])
	}
	if errors.Is(err, kv.ErrStop) {
		return nil
	}
	return err
}

func (r *Records) matching(ctx context.Context, filter string) (found []kv.Record, err error) {
	prefix := record.FixedPart(filter)
	err = r.e.owner.Read(ctx, "records", filter, func(t *table.Table) error {
		found = found[:0]
		t.Others(record.OtherKey(prefix), func(item pages.Item) bool {
			key := string(item.Key[1:])
			if record.Matches(key, filter) {
				found = append(found, kv.Record{Key: key, Seq: item.Revision, Data: bytes.Clone(item.Value)})
			}
			return strings.HasPrefix(key, prefix)
		})
		return nil
	})
	return found, err
}

// Create stores data under a key that has no record. Otherwise it returns kv.ErrRevision, and the
// record that there is.
func (r *Records) Create(ctx context.Context, key string, data []byte, _ uint64) (uint64, kv.Record, error) {
	for try := range retry.MaxTries {
		retry.Yield(ctx, try)
		revision, err := r.Put(ctx, key, data, 0)
		if !errors.Is(err, kv.ErrRevision) {
			return revision, kv.Record{}, err
		}
		if there, err := r.Get(ctx, key); err != nil || there.Live() {
			return 0, there, errors.Join(err, kv.ErrRevision)
		}
	}
	return 0, kv.Record{}, kv.Wrap("create", key, kv.ErrRevision)
}

// Put stores data under a key that has a revision, and returns the new one.
func (r *Records) Put(ctx context.Context, key string, data []byte, expected uint64) (uint64, error) {
	return r.one(ctx, kv.Change{Key: key, Data: data, Expected: expected})
}

// Remove removes the record of a key that has a revision.
func (r *Records) Remove(ctx context.Context, key string, expected uint64) (uint64, error) {
	return r.one(ctx, kv.Change{Key: key, Expected: expected})
}

func (r *Records) one(ctx context.Context, c kv.Change) (uint64, error) {
	revisions, err := r.Commit(ctx, []kv.Change{c})
	if err != nil {
		return 0, err
	}
	return revisions[0], nil
}

// Commit carries out all changes, of which no two are of one key, or none. It returns the revision
// of each, and 0 for a removal or a check.
func (r *Records) Commit(ctx context.Context, changes []kv.Change) ([]uint64, error) {
	answer, err := r.e.change(ctx, "change records", changes[0].Key, func(b *owner.Round) (answer result, err error) {
		answer.revisions, err = changeRecords(b, changes)
		return answer, err
	})
	if err != nil {
		return nil, refused(err)
	}
	return answer.revisions, nil
}

// refused undoes the translation of a conflict.
func refused(err error) error {
	if errors.Is(err, kv.ErrConflict) {
		return kv.ErrRevision
	}
	return err
}

// Unreadable counts or logs a record that cannot be decoded.
func (r *Records) Unreadable(key string, err error) {
	if r.e.o.Unreadable != nil {
		r.e.o.Unreadable(key, err)
	}
}

// errRecordRevision is kv.ErrRevision of a record. A key without one can have its revision again.
var errRecordRevision = fmt.Errorf("a record: %w", kv.ErrRevision)

// changeRecords adds the effects of changes of records.
func changeRecords(b *owner.Round, changes []kv.Change) ([]uint64, error) {
	for i := range changes {
		key, touch := record.OtherKey(changes[i].Key), b.Touch
		if of := changes[i].Check; of != "" {
			key, touch = record.OtherKey(of), b.See
		}
		if !touch(key) {
			return nil, owner.ErrPostponed
		}
		if item, _ := b.Table.Get(key); item.Revision != changes[i].Expected {
			return nil, errRecordRevision
		}
	}
	revisions := make([]uint64, len(changes))
	for i := range changes {
		switch c := &changes[i]; {
		case c.Check != "":
		case len(c.Data) > 0:
			revisions[i] = b.Revision()
			b.Store(record.OtherKey(c.Key), c.Data)
		case c.Expected != 0:
			b.Remove(record.OtherKey(c.Key))
		}
	}
	return revisions, nil
}

// PutWith is Put that also changes records of another package in the same change. A conflict is
// kv.ErrRevision.
func (e *Engine) PutWith(ctx context.Context, entry *bb.Entry, records ...kv.Change) error {
	key, value, err := encode(entry)
	if err != nil {
		return err
	}
	stored := *entry
	answer, err := e.change(ctx, "put", entry.Name, func(b *owner.Round) (answer result, err error) {
		if err := checkPut(b, "put", key, &stored); err != nil {
			return answer, err
		}
		if _, err := changeRecords(b, records); err != nil {
			return answer, err
		}
		answer.entry = stored
		answer.entry.SetRevision(b.StoreEntry(key, value))
		return answer, nil
	})
	if err != nil {
		return refused(err)
	}
	entry.SetRevision(answer.entry.Revision)
	return nil
}
