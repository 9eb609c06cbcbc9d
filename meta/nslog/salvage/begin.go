package salvage

import (
	"context"

	"forebay/internal/bb"
	"forebay/meta/nslog/owner"
	"forebay/meta/nslog/record"
)

// recordBytes bounds, about, the effects of a record that Begin stores.
const recordBytes = 128 << 10

// Begin stores entries in an unused log, with a root for where there is none among them. Applied of
// the options is not used.
func Begin(ctx context.Context, log owner.Log, found *Entries, root *bb.Entry, o owner.Options) error {
	o.Applied, o.Unused = func([]byte) {}, true
	w, err := owner.Open(ctx, log, o)
	if err != nil {
		return err
	}
	defer w.Close()
	if len(found.Dirs) == 0 || found.Dirs[0].Dir != bb.RootDir {
		if err := storeEntries(ctx, w, []bb.Entry{*root}); err != nil {
			return err
		}
	}
	for _, some := range [][]bb.Entry{found.Dirs, found.Files, found.Specials} {
		if err := storeEntries(ctx, w, some); err != nil {
			return err
		}
	}
	if err := storeAll(ctx, w, len(found.Records), func(b *owner.Round, i int) error {
		b.Store(record.OtherKey(found.Records[i].Key), found.Records[i].Data)
		return nil
	}); err != nil {
		return err
	}
	return storeAll(ctx, w, len(found.Ops), func(b *owner.Round, i int) error {
		b.Store(record.OpKey(b.Revision()|1), record.OpValue(&found.Ops[i]))
		return nil
	})
}

func storeEntries(ctx context.Context, w *owner.Owner, entries []bb.Entry) error {
	return storeAll(ctx, w, len(entries), func(b *owner.Round, i int) error {
		e := &entries[i]
		value, err := record.AppendEntry(nil, e)
		if err == nil {
			b.StoreEntry(record.AppendEntryKey(nil, e.Parent, e.Name), value)
		}
		return err
	})
}

// storeAll calls store with the numbers of n items, many of them in one change.
func storeAll(ctx context.Context, w *owner.Owner, n int, store func(b *owner.Round, i int) error) error {
	for next := 0; next < n; {
		stored := next // of the round's goroutine, until the change is answered
		err := w.Do(ctx, "restore", "", func(b *owner.Round) error {
			stored = next
			for begun := b.Bytes(); stored < n && b.Bytes()-begun < recordBytes; stored++ {
				if err := store(b, stored); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		next = stored
	}
	return nil
}
