package reassert

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"forebay/bbd/fate"
	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
)

// repairsAtOnce bounds the repairs of entries that are in flight at a start.
const repairsAtOnce = 16

// Recovered is a start's result for the files of a buffer that no entry explains.
type Recovered struct {
	Kept []bb.FileID // may not be dropped
	Gone []bb.Entry  // restored entries of incomplete files, with the missing bytes as their reason
	Was  fate.Reassertion
}

// Recover settles the files that no entry explains, and recovers those that get one.
//
// Many are settled at once. Each costs some calls of the namespace, and all are settled before the
// daemon serves clients. A later repair would be too late. Until then a client would find the name
// of an acknowledged file absent, or could make another file of that name, neither with an error
// (contract 9a). A file's directories are made by its own repair, before its entry. One that
// another repair has made meanwhile is used.
func (b *Buffer) Recover(ctx context.Context, inv *fate.Inventory) (Recovered, error) {
	var all recovery
	older := 0
	var forgotten []decided
	for _, h := range inv.Held() {
		k := b.known(inv, h)
		becomes := fate.Decide(*h, k)
		switch {
		case becomes == fate.Adopt:
			continue
		case becomes == fate.Drop && k.Entry == nil && h.Origin == store.OriginOlder && h.Dirty > 0:
			older++
		case becomes == fate.Drop && fate.OnStoreAlone(h, k):
			u := onStore(h)
			b.o.Log.Warn("only the store has a file whose entry the namespace had lost", "buffer", b.name, "path", u.Path, "bytes", u.Bytes, "file", u.File, "generation", u.Generation)
			all.add(&fate.Reassertion{OnStore: []fate.Unexplained{u}})
		}
		if becomes != fate.Keep && b.o.Unreadable() {
			continue // it may be one whose entry cannot be read
		}
		forgotten = append(forgotten, decided{h, becomes})
	}
	for _, some := range newestFirst(forgotten) {
		repairs, repairing := errgroup.WithContext(ctx)
		repairs.SetLimit(repairsAtOnce)
		for _, f := range some {
			repairs.Go(func() error { return b.recoverFile(repairing, inv, f.Held, f.becomes, &all) })
		}
		if err := repairs.Wait(); err != nil {
			return all.Recovered, err
		}
	}
	if len(all.Was.Left) > 0 {
		b.note(all.Was.Left)
	}
	if older > 0 {
		b.o.Log.Warn("files without an entry were dropped: the release that wrote them kept no identities", "buffer", b.name, "files", older)
	}
	return all.Recovered, nil
}

// decided is a file that no entry explains, and its fate.
type decided struct {
	*fate.Held
	becomes fate.Fate
}

// newestFirst parts files in two: the newest of each path, which gets it, and those that are
// settled after them. Two have one path where a directory was renamed, and another one made in its
// place.
func newestFirst(files []decided) (parts [2][]decided) {
	slices.SortFunc(files, func(x, y decided) int { return cmp.Compare(y.Acked, x.Acked) })
	taken := make(map[string]bool)
	for _, f := range files {
		part := 0
		if f.becomes == fate.Remake {
			if taken[f.Identity.Path] {
				part = 1
			}
			taken[f.Identity.Path] = true
		}
		parts[part] = append(parts[part], f)
	}
	return parts
}

// recovery gathers the results of files that are settled at once.
type recovery struct {
	mu lockorder.Mutex[lockrank.Leaf] // guards the fields below
	Recovered
}

func (all *recovery) add(r *fate.Reassertion) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.Was.Add(r)
}

// onStore describes a file that is dropped here, as the store has all of it.
func onStore(h *fate.Held) fate.Unexplained {
	return fate.Unexplained{File: h.File, Generation: h.Acked, Path: h.Identity.Path, Bytes: h.Evicted, Reason: "all of it was evicted: only the store has it"}
}

// recoverFile settles one file, and recovers it if it gets an entry.
func (b *Buffer) recoverFile(ctx context.Context, inv *fate.Inventory, h *fate.Held, becomes fate.Fate, all *recovery) error {
	var r fate.Reassertion
	e, err := b.apply(ctx, inv, h, becomes, &r)
	if bb.KindOf(err) == bb.Busy {
		// No reason to end the start. The bytes are kept, and the next drain looks again.
		b.o.Log.Warn("an entry was changed while the daemon started", "buffer", b.name, "path", h.Identity.Path, "file", h.File)
		r.Left = append(r.Left, fate.Unexplained{File: h.File, Generation: h.Acked, Bytes: h.Resident, Path: h.Identity.Path, Reason: "its entry was changed while the daemon started"})
		e, err = nil, nil
	}
	if err != nil {
		return err
	}
	missing := ""
	if e != nil && becomes != fate.Drop {
		missing = b.files.Recover(ctx, e)
	}
	all.add(&r)
	all.mu.Lock()
	defer all.mu.Unlock()
	if becomes != fate.Drop {
		all.Kept = append(all.Kept, h.File)
	}
	if missing != "" {
		e.Reason = missing
		all.Gone = append(all.Gone, *e)
	}
	return nil
}

// DropBufferless drops the files in memory of buffers that the namespace does not have, or
// has made anew under their names, and takes those out of files. It returns the files whose bytes may not be dropped,
// and calls keep with each. Gone reports whether the namespace has the mark of a buffer's destruction.
func DropBufferless(o *Options, specs []bb.Buffer, files map[string]map[bb.FileID]*fate.Held, gone func(buffer string) (bool, error), keep func(buffer string, u fate.Unexplained)) (kept []bb.FileID, err error) {
	byName := make(map[string]*bb.Buffer, len(specs))
	for i := range specs {
		byName[specs[i].Name] = &specs[i]
	}
	for name, list := range files {
		namesake := fate.Namesake{Buffer: byName[name]}
		if namesake.Buffer == nil && bb.CheckBufferName(name) == nil {
			if namesake.Gone, err = gone(name); err != nil {
				return kept, err
			}
		}
		for file, h := range list {
			switch fate.OfBufferless(h, namesake) {
			case fate.Drop:
				o.Store.Drop(file)
				delete(list, file)
			case fate.Keep:
				kept = append(kept, file)
				delete(list, file)
				keep(name, o.bufferless(name, h))
			}
		}
	}
	return kept, nil
}

// bufferless logs and describes bytes of a buffer that the namespace does not have.
func (o *Options) bufferless(buffer string, h *fate.Held) fate.Unexplained {
	u := fate.Unexplained{File: h.File, Generation: h.Newest, Bytes: h.Resident, Reason: "the namespace does not have its buffer"}
	if h.Identity != nil {
		u.Path = h.Identity.Path
	}
	if o.Unreadable() {
		u.Reason = fate.UnreadableRecord
	}
	o.Log.Error("bytes that no entry explains are kept", "buffer", buffer, "path", u.Path, "file", u.File, "bytes", u.Bytes, "reason", u.Reason)
	return u
}
