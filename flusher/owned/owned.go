// Package owned distinguishes a buffer's own objects on a store from those of others. It must never change a store, nor
// know the reason of a question.
package owned

import (
	"context"
	"maps"
	"slices"
	"strings"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/flusher/content"
	"forebay/internal/bb"
)

// Before a buffer replaces, renames or removes an object on a store, the object is compared with
// the buffer's own: first by the entity tag, in the store's own step, and then by the content,
// where the tag differs. A tag changes without the content when a store copies for a rename, and an
// answer that is lost, or a process that ends, leaves an object that no record names.

// Known lists the objects under a name that are the buffer's own.
type Known struct {
	Flushed []bb.Flushed // that are recorded
	Unrecorded
	Codec string // of all of them
}

// Unrecorded are contents under a name without a record.
type Unrecorded struct {
	Made     []bb.Content // that Puts have made, or may have, as a store has them
	Attempts []bb.Content // that flushes may have put, before they are compressed
}

// And returns both together.
func (u Unrecorded) And(o Unrecorded) Unrecorded {
	return Unrecorded{bb.AddContents(u.Made, o.Made...), bb.AddContents(u.Attempts, o.Attempts...)}
}

// Versions are the versions that a store can compare.
func (k *Known) Versions() (all []backing.Version) {
	for _, f := range k.Flushed {
		if f.Generation != 0 && f.ETag != "" {
			all = append(all, backing.Version{ETag: f.ETag, Size: f.Size})
		}
	}
	return all
}

// stored are the contents as a store has them.
func (k *Known) stored() []bb.Content {
	all := k.Made
	for _, f := range k.Flushed {
		if f.Generation != 0 {
			all = append(all[:len(all):len(all)], bb.Content{Size: f.Size, Checksum: f.Checksum})
		}
	}
	if k.Codec == codec.None {
		all = append(all[:len(all):len(all)], k.Attempts...)
	}
	return all
}

// Find reads an object, and reports whether it is one of those. The Version is zero if nothing is
// there. After an error the owner is unknown.
func (k *Known) Find(ctx context.Context, store backing.Store, object string, progress func()) (is backing.Version, ours bool, err error) {
	o, err := store.Stat(ctx, object)
	if bb.KindOf(err) == bb.NotFound {
		return is, false, nil
	}
	if err != nil {
		return is, false, err
	}
	is = o.Version()
	if slices.Contains(k.Versions(), is) {
		return is, true, nil
	}
	stored := k.stored()
	fits := false
	for _, c := range stored {
		fits = fits || c.Size == o.Size
	}
	if fits {
		there := bb.Content{Size: o.Size, Checksum: o.Checksum}
		if !o.HasChecksum {
			if there, err = content.Sum(ctx, store, object, codec.None, progress); err != nil {
				return is, false, err
			}
		}
		if slices.Contains(stored, there) {
			return is, true, nil
		}
	}
	if k.Codec == codec.None || len(k.Attempts) == 0 {
		return is, false, nil
	}
	there, err := content.Sum(ctx, store, object, k.Codec, progress)
	if bb.KindOf(err) == bb.Checksum {
		return is, false, nil // no such codec has made it
	}
	return is, slices.Contains(k.Attempts, there), err
}

// Changed is the error of an operation whose object was another one a moment ago.
func Changed(op, object string) error {
	return bb.E(bb.Busy, op, object, "the store's object changes meanwhile")
}

// Ledger lists the contents that may be under names without a record. It is guarded by its owner's
// lock.
type Ledger map[string]Unrecorded

// Note records contents that may be under a name.
func (l Ledger) Note(object string, u Unrecorded) { l[object] = l[object].And(u) }

// Moved moves the contents of a name along with a rename of the object. A rename to "" is its removal.
func (l Ledger) Moved(from, to string) {
	u, ok := l[from]
	delete(l, from)
	if to != "" && ok {
		l.Note(to, u)
	}
}

// MovedBelow is Moved of all that is below a directory.
func (l Ledger) MovedBelow(from, to string) {
	for object, u := range maps.Clone(l) {
		if bb.Within(object, from) {
			delete(l, object)
			l.Note(to+strings.TrimPrefix(object, from), u)
		}
	}
}
