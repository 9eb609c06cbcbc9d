package flusher

import (
	"context"
	"errors"
	"io"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// A flush of a buffer that keeps what it did not write compares the object under the name
// with what was flushed: by its entity tag in the store's own step, and by its content where the tag
// says no. A tag changes without the content when a store copies for a rename, and an answer
// that is lost leaves an object of ours that no entry names.

// written is a content that a Put has made, or may have.
type written struct {
	size     int64
	checksum uint64
}

// isOneOf reports whether a content is among some that are known.
func (w written) isOneOf(known ...written) bool {
	for _, k := range known {
		if k != (written{}) && k == w {
			return true
		}
	}
	return false
}

// putKeeping puts an object. One that is in the way, and is not by its tag what may be
// replaced, is replaced if its content is this buffer's.
func (fl *flight) putKeeping(store backing.Store, object string, src backing.Source, opts backing.PutOptions, before bb.Flushed,
) (backing.Object, error) {
	if opts.Keep {
		defer fl.noteMade(object, written{src.Size(), src.Checksum()})
	}
	o, err := store.Put(fl.ctx, object, src, opts)
	if !opts.Keep || !errors.Is(err, backing.ErrForeign) {
		return o, err
	}
	known := []written{{before.Size, before.Checksum}, {src.Size(), src.Checksum()}, fl.q.madeOf(object)}
	there, statErr := store.Stat(fl.ctx, object)
	if statErr != nil || there.ETag == "" {
		return o, err
	}
	found, readErr := contentOf(fl.ctx, store, &there, known, fl.progress)
	if readErr != nil || !found.isOneOf(known...) {
		return o, err
	}
	opts.Replaces = there.ETag
	return store.Put(fl.ctx, object, src, opts)
}

// contentOf returns what an object holds. It is read only if its size is a known one and the
// store does not keep its checksum.
func contentOf(ctx context.Context, store backing.Store, o *backing.Object, known []written, progress func()) (written, error) {
	if o.HasChecksum {
		return written{o.Size, o.Checksum}, nil
	}
	fits := false
	for _, k := range known {
		fits = fits || k.size == o.Size && k != (written{})
	}
	if !fits {
		return written{}, nil
	}
	r, err := store.Get(ctx, o.Name, 0, -1)
	if err != nil {
		return written{}, err
	}
	defer r.Close()
	var found written
	part := make([]byte, 1<<20)
	for {
		n, err := r.Read(part)
		found.size += int64(n)
		found.checksum = checksum.Update(found.checksum, part[:n])
		progress()
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return written{}, err
		}
	}
}

// noteMade remembers what a Put may have made under a name, until that is recorded.
func (fl *flight) noteMade(object string, w written) {
	fl.f.mu.Lock()
	defer fl.f.mu.Unlock()
	if fl.named {
		fl.q.made[object] = w
	}
}

// forgetMade is called when the namespace, or the store, says what is under a name.
func (q *queue) forgetMade(object string) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	delete(q.made, object)
}

// madeOf returns what a Put may have made under a name.
func (q *queue) madeOf(object string) written {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return q.made[object]
}

// mayCarryOut reports whether a file's operation concerns an object of this buffer. A removal or
// rename of another one is left out. A rename onto another one fails.
func (q *queue) mayCarryOut(store backing.Store, op *StoreOp) (bool, error) {
	if op.Tree || !q.f.opts.Policy(q.buffer).KeepExisting {
		return true, nil
	}
	suffix := codec.Suffix(op.Codec)
	there, ours, err := q.isOurs(store, op.Old+suffix, op.Was)
	if err != nil || !there || !ours || op.Kind != OpRename {
		return ours || !there, err
	}
	there, ours, err = q.isOurs(store, op.New+suffix, op.Replaces)
	if err == nil && there && !ours {
		err = backing.Foreign("rename", op.New+suffix)
	}
	return true, err
}

// isOurs looks whether an object is what was flushed, or what a Put may have made.
func (q *queue) isOurs(store backing.Store, object string, flushed []bb.Flushed) (there, ours bool, err error) {
	o, err := store.Stat(q.ctx, object)
	if bb.KindOf(err) == bb.NotFound {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	known := []written{q.madeOf(object)}
	for _, f := range flushed {
		if f.Generation == 0 {
			continue
		}
		if f.ETag != "" && f.ETag == o.ETag {
			return true, true, nil
		}
		known = append(known, written{f.Size, f.Checksum})
	}
	found, err := contentOf(q.ctx, store, &o, known, func() {})
	return true, found.isOneOf(known...), err
}
