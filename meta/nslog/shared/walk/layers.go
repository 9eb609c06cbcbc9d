package walk

import (
	"context"
	"errors"
	"slices"
	"strings"

	"forebay/internal/bb"
)

// List returns at most limit entries of a directory with names above after, and whether there are more.
type List func(ctx context.Context, dir bb.DirID, after string, limit int) (entries []bb.Entry, more bool, err error)

// Page is a page of several directories.
type Page struct {
	Dirs   []bb.DirID
	Hidden func(layer int, name string) bool
	After  string
	Limit  int
}

// Layers lists several directories as one, of which the first has priority. A name of a
// later one is left out if hidden reports so, or if an earlier one has it, unless both are
// directories. Then the attributes are the later one's. A directory that is gone is empty. If the
// last one is gone, it is NotFound. The directories are read one after the other, so that an entry
// that is renamed from an earlier one to a later one meanwhile is listed.
func Layers(ctx context.Context, list List, gone func() error, p Page) (entries []bb.Entry, more bool, err error) {
	at := map[string]int{}
	for i, dir := range p.Dirs {
		// The first names of all layers together are among the first so many of each.
		some, err := list.shown(ctx, dir, p.After, p.Limit, func(name string) bool { return p.Hidden(i, name) })
		if errors.Is(err, bb.NotFound) && i < len(p.Dirs)-1 && gone() == nil {
			continue
		}
		if err != nil {
			return nil, false, err
		}
		for _, e := range some {
			was, known := at[e.Name]
			switch {
			case !known:
				at[e.Name] = len(entries)
				entries = append(entries, e)
			case entries[was].IsDir() && e.IsDir():
				entries[was] = e
			}
		}
	}
	slices.SortFunc(entries, func(a, b bb.Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries[:min(p.Limit, len(entries))], len(entries) > p.Limit, nil
}

// shown returns entries of a directory with names above after that are not hidden, one more than
// limit or all.
func (list List) shown(ctx context.Context, dir bb.DirID, after string, limit int, hidden func(name string) bool) (shown []bb.Entry, err error) {
	for more := true; more && len(shown) <= limit; {
		var page []bb.Entry
		if page, more, err = list(ctx, dir, after, limit); err != nil {
			return nil, err
		}
		for _, e := range page {
			after = e.Name
			if !hidden(e.Name) {
				shown = append(shown, e)
			}
		}
	}
	return shown, nil
}
