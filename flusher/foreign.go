package flusher

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// What a buffer replaces, renames or removes on a store is compared with what it knows as its own:
// first by the entity tag, in the store's own step, and then by the content, where the tag says no.
// A tag changes without the content when a store copies for a rename, and an answer that is lost,
// or a process that ends, leaves an object that no record names.

// known says which objects under a name are the buffer's own.
type known struct {
	flushed []bb.Flushed // that are recorded
	unrecorded
	codec string // of all of them
}

// unrecorded are contents of which no record says that they are under a name.
type unrecorded struct {
	made     []bb.Content // that Puts have made, or may have, as a store has them
	attempts []bb.Content // that flushes may have put, before they are compressed
}

func (u unrecorded) and(o unrecorded) unrecorded {
	return unrecorded{bb.AddContents(u.made, o.made...), bb.AddContents(u.attempts, o.attempts...)}
}

// versions are those that a store can compare.
func (k *known) versions() (all []backing.Version) {
	for _, f := range k.flushed {
		if f.Generation != 0 && f.ETag != "" {
			all = append(all, backing.Version{ETag: f.ETag, Size: f.Size})
		}
	}
	return all
}

// stored are the contents as a store has them.
func (k *known) stored() []bb.Content {
	all := k.made
	for _, f := range k.flushed {
		if f.Generation != 0 {
			all = append(all[:len(all):len(all)], bb.Content{Size: f.Size, Checksum: f.Checksum})
		}
	}
	if k.codec == codec.None {
		all = append(all[:len(all):len(all)], k.attempts...)
	}
	return all
}

// find looks at an object, and reports whether it is one of those. Nothing is there: the zero
// Version. An error says nothing of whose it is.
func (k *known) find(ctx context.Context, store backing.Store, object string, progress func()) (is backing.Version, ours bool, err error) {
	o, err := store.Stat(ctx, object)
	if bb.KindOf(err) == bb.NotFound {
		return is, false, nil
	}
	if err != nil {
		return is, false, err
	}
	is = o.Version()
	if slices.Contains(k.versions(), is) {
		return is, true, nil
	}
	stored := k.stored()
	fits := false
	for _, c := range stored {
		fits = fits || c.Size == o.Size
	}
	if fits {
		content := bb.Content{Size: o.Size, Checksum: o.Checksum}
		if !o.HasChecksum {
			if content, err = contentOf(ctx, store, object, codec.None, progress); err != nil {
				return is, false, err
			}
		}
		if slices.Contains(stored, content) {
			return is, true, nil
		}
	}
	if k.codec == codec.None || len(k.attempts) == 0 {
		return is, false, nil
	}
	content, err := contentOf(ctx, store, object, k.codec, progress)
	if bb.KindOf(err) == bb.Checksum {
		return is, false, nil // no such codec has made it
	}
	return is, slices.Contains(k.attempts, content), err
}

// contentOf reads an object, decompressed. What is not compressed like that is bb.Checksum.
func contentOf(ctx context.Context, store backing.Store, object, codecName string, progress func()) (c bb.Content, err error) {
	packed, err := store.Get(ctx, object, 0, -1)
	if err != nil {
		return c, err
	}
	defer packed.Close()
	r := io.ReadCloser(packed)
	if codecName != codec.None {
		if r, err = codec.NewReader(codecName, packed); err != nil {
			return c, err
		}
		defer r.Close()
	}
	part := make([]byte, 1<<20)
	for {
		n, err := r.Read(part)
		c.Size += int64(n)
		c.Checksum = checksum.Update(c.Checksum, part[:n])
		progress()
		if err == io.EOF {
			return c, nil
		}
		if err != nil {
			return c, bb.Wrap("compare", object, err)
		}
	}
}

// changedMeanwhile is the error of an operation whose object was another one a moment ago.
func changedMeanwhile(op, object string) error {
	return bb.E(bb.Busy, op, object, "the store's object changes meanwhile")
}

// putKeeping puts an object. One that is in the way, and is not by its tag what may be replaced, is
// replaced if its content is this buffer's. ErrForeign is certain: no Put of ours has made it.
func (fl *flight) putKeeping(store backing.Store, object string, src backing.Source, opts backing.PutOptions, job Job, before bb.Flushed,
) (backing.Object, error) {
	o, err := store.Put(fl.ctx, object, src, opts)
	if opts.Keep && errors.Is(err, backing.ErrForeign) {
		k := known{
			flushed: []bb.Flushed{before}, codec: fl.f.opts.Policy(fl.key.Buffer).Codec,
			unrecorded: fl.q.unrecordedOf(object).and(unrecorded{made: []bb.Content{{Size: src.Size(), Checksum: src.Checksum()}}}),
		}
		if a, ok := job.(Attempted); ok {
			k.unrecorded = k.and(unrecorded{attempts: a.Attempts()})
		}
		there, ours, lookErr := k.find(fl.ctx, store, object, fl.progress)
		switch {
		case lookErr != nil:
			err = lookErr
		case ours || there == (backing.Version{}):
			opts.Replaces = there.ETag
			if o, err = store.Put(fl.ctx, object, src, opts); errors.Is(err, backing.ErrForeign) {
				err = changedMeanwhile("put", object)
			}
		}
	}
	if err != nil {
		fl.noteMade(object, bb.Content{Size: src.Size(), Checksum: src.Checksum()})
	}
	return o, err
}

// noteMade remembers what a Put may have made under a name, until that is recorded.
func (fl *flight) noteMade(object string, c bb.Content) {
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	if fl.named {
		fl.q.note(object, unrecorded{made: []bb.Content{c}})
	}
}

// note remembers what may be under a name. mu is held.
func (q *queue) note(object string, u unrecorded) { q.unrecorded[object] = q.unrecorded[object].and(u) }

// recorded is called when the namespace, or the store, says what is under a name.
func (q *queue) recorded(object string) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	delete(q.unrecorded, object)
}

func (q *queue) unrecordedOf(object string) unrecorded {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return q.unrecorded[object]
}

// follow has what may be under names follow an operation that was carried out. mu is held.
func (q *queue) follow(op *StoreOp) {
	if len(q.unrecorded) == 0 {
		return
	}
	if !op.Tree {
		suffix := codec.Suffix(op.Codec)
		u, ok := q.unrecorded[op.Old+suffix]
		delete(q.unrecorded, op.Old+suffix)
		if op.Kind == OpRename && ok {
			q.note(op.New+suffix, u)
		}
		return
	}
	for object, u := range maps.Clone(q.unrecorded) {
		if op.Kind == OpRename && bb.Within(object, op.Old) {
			delete(q.unrecorded, object)
			q.note(op.New+strings.TrimPrefix(object, op.Old), u)
		}
	}
}

// knownOf are the buffer's own objects under the two names of a file's operation.
func (q *queue) knownOf(op *StoreOp) (was, replaces known) {
	suffix := codec.Suffix(op.Codec)
	was = known{op.Was, q.unrecordedOf(op.Old + suffix).and(unrecorded{attempts: op.Attempts}), op.Codec}
	if op.Kind == OpRename {
		replaces = known{op.Replaces, q.unrecordedOf(op.New + suffix).and(unrecorded{attempts: op.ReplacedAttempts}), op.Codec}
	}
	return was, replaces
}

// indifferent reports whether a file's operation takes whatever is there.
func (q *queue) indifferent(op *StoreOp) bool {
	of := known{flushed: op.Was}
	return len(of.versions())+len(op.Attempts) == 0 && !q.f.opts.Policy(q.buffer).KeepExisting
}

// removeFile removes the object of a file from a store, if it is this buffer's.
func (q *queue) removeFile(store backing.Store, op *StoreOp) error {
	object := op.Old + codec.Suffix(op.Codec)
	was, _ := q.knownOf(op)
	if q.indifferent(op) {
		return store.Remove(q.ctx, object)
	}
	for _, v := range was.versions() {
		if err := store.RemoveIf(q.ctx, object, v); !errors.Is(err, backing.ErrForeign) {
			return err
		}
	}
	is, ours, err := was.find(q.ctx, store, object, func() {})
	if err != nil || !ours {
		return err
	}
	if err = store.RemoveIf(q.ctx, object, is); errors.Is(err, backing.ErrForeign) {
		return changedMeanwhile("remove", object)
	}
	return err
}

// renameFile moves the object of a file on a store, if it is this buffer's, over what is this
// buffer's, or over anything unless the buffer keeps what it did not write.
func (q *queue) renameFile(store backing.Store, op *StoreOp) error {
	suffix := codec.Suffix(op.Codec)
	old, newName := op.Old+suffix, op.New+suffix
	was, replaces := q.knownOf(op)
	if q.indifferent(op) {
		return ignoreNotFound(store.Rename(q.ctx, old, newName))
	}
	is, ours, err := was.find(q.ctx, store, old, func() {})
	if err != nil || !ours {
		return err
	}
	if old == newName {
		return nil
	}
	over := backing.Version{}
	if all := replaces.versions(); len(all) > 0 {
		over = all[0]
	}
	err = store.RenameIf(q.ctx, old, newName, is, over)
	if !errors.Is(err, backing.ErrForeign) {
		return ignoreNotFound(err)
	}
	over, ours, err = replaces.find(q.ctx, store, newName, func() {})
	if err != nil {
		return err
	}
	if !ours && over != (backing.Version{}) && q.f.opts.Policy(q.buffer).KeepExisting && !op.overwrite {
		return backing.Foreign("rename", newName)
	}
	if err = store.RenameIf(q.ctx, old, newName, is, over); errors.Is(err, backing.ErrForeign) {
		return changedMeanwhile("rename", old)
	}
	return ignoreNotFound(err)
}

// ignoreNotFound: a source that is missing was moved, or removed, by an earlier attempt.
func ignoreNotFound(err error) error {
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}
