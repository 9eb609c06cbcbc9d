package walk

import (
	"context"

	"forebay/internal/bb"
	"forebay/meta/nslog/shared/calls"
)

const partEntries = 512 // of a listing that one call asks for

// Part returns a part of a listing, of a size that fits into a message, and whether there is more.
type Part func(context.Context, *calls.Call) (entries []bb.Entry, more bool, err error)

// Parts returns at most limit entries of a directory with names above after, and whether there are more. An owner
// refuses a limit that is out of bounds.
func Parts(ctx context.Context, ask Ask, part Part, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error) {
	if limit < 1 || limit > bb.MaxPageSize {
		_, err := ask(ctx, &calls.Call{Op: calls.OpList, Dir: dir, Name: after, Number: limit})
		return nil, false, err
	}
	for more = true; more && len(entries) < limit; {
		var some []bb.Entry
		if some, more, err = part(ctx, &calls.Call{Op: calls.OpList, Dir: dir, Name: after, Number: min(limit-len(entries), partEntries)}); err != nil {
			return nil, false, err
		}
		if entries = append(entries, some...); len(entries) > 0 {
			after = entries[len(entries)-1].Name
		}
	}
	return entries, more, nil
}

// Scan calls fn with every entry of a directory that exists throughout.
func Scan(ctx context.Context, ask Ask, dir bb.DirID, fn func(bb.Entry) error) error {
	for after, more := "", true; more; {
		a, err := ask(ctx, &calls.Call{Op: calls.OpListAll, Dir: dir, Name: after, Number: partEntries})
		if err != nil {
			return err
		}
		more = a.Yes
		for i := range a.Entries {
			if err := fn(a.Entries[i]); err != nil {
				return err
			}
			after = a.Entries[i].Name
		}
	}
	return nil
}
