package origin

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/lockrank"
	"forebay/bbd/store"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
	"forebay/internal/lockorder"
)

// Objects are the objects of a buffer on its store.
type Objects interface {
	// Path returns the path of a file now, which may have been renamed since its entry was read.
	Path(ctx context.Context, e *bb.Entry) (string, error)
	// FormerNames returns the names under which the store may still have a file that the namespace
	// has at a path, the newest first. They are those from before renames that the store has yet to
	// follow. Away is a daemon that has to carry one of them out and does not answer, or "" for
	// none.
	FormerNames(ctx context.Context, path string) (names []string, away bb.NodeID, err error)
	// Open opens an object from an offset on, decompressed.
	Open(ctx context.Context, path, codec string, offset int64) (io.ReadCloser, error)
}

// Object is a file's object on the store, for one reader. It goes on where the last read ended, since to
// begin in the middle of an object may cost as much as to read up to there.
//
// A flush may replace the object that is open. Its bytes may then have been evicted, and joined with
// those around them, and are not in the old object. Or the object is of a file that this one is about to
// replace on the store. So bytes that have the wrong checksum are read once more, from an object opened
// anew.
type Object struct {
	Of    *Sources
	Entry *bb.Entry // of the file, as its reader has it

	mu     lockorder.Mutex[lockrank.Object]
	from   io.ReadCloser // nil: nothing is open
	cancel context.CancelFunc
	at     int64
	named  naming // of the object to open next
}

// naming is whether a file's object has the file's name on the store.
type naming bool

// Names on the store follow those here a little later. The object that has a file's name meanwhile may
// be one that a rename replaces. It is another file's, and has the wrong checksum. A request for
// pending renames costs more than most reads, so it is made only after such a mismatch.
const (
	trust    naming = false
	distrust naming = true
)

// Read is of Origin. The runs are read one after the other.
func (o *Object) Read(ctx context.Context, runs []Run, place Place) error {
	for i := range runs {
		err := o.verified(func() error {
			if runs[i].Size() == 0 { // reads no bytes; fails if there is no object
				if err := o.fill(ctx, nil, runs[i].From); err != nil {
					return err
				}
			}
			return placeAll(ctx, o, runs[i:i+1], place)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// verified calls read, and once more if the bytes were not the file's.
func (o *Object) verified(read func() error) error {
	err := read()
	if bb.KindOf(err) != bb.Checksum {
		return err
	}
	o.endStream()
	if err = read(); bb.KindOf(err) == bb.Checksum {
		o.Close()
	}
	return err
}

// Layout reads the object once, and returns extents with the checksums that its bytes have. The bytes
// of all of them are those of the file.
func (o *Object) Layout(ctx context.Context) (extents []store.MirrorExtent, err error) {
	e := o.Entry
	p := make([]byte, min(e.Size, alloc.MaxExtent))
	err = o.Read(ctx, []Run{{0, e.Size}}, func(_ context.Context, r Run, from io.Reader) error {
		extents = nil
		var sum uint64
		for at := r.From; at < r.To; at += int64(len(p)) {
			p = p[:min(r.To-at, alloc.MaxExtent)]
			if _, err := io.ReadFull(from, p); err != nil {
				return err
			}
			x := store.MirrorExtent{FileOffset: at, Length: int64(len(p)), Checksum: checksum.Sum(p)}
			extents, sum = append(extents, x), checksum.Combine(sum, x.Checksum, x.Length)
		}
		if sum != e.Checksum {
			return bb.E(bb.Checksum, "read", o.Of.address(e.Name), "the store's object differs from the flushed content")
		}
		return nil
	})
	return extents, err
}

// fill is of filler.
func (o *Object) fill(ctx context.Context, p []byte, offset int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	goesOn := o.from != nil && offset >= o.at && (offset-o.at <= alloc.MaxExtent || o.Entry.Flushed.Codec != codec.None)
	err := o.readOn(ctx, p, offset, goesOn)
	if err != nil && goesOn && ctx.Err() == nil { // it may have been open for long
		err = o.readOn(ctx, p, offset, false)
	}
	return err
}

// readOn reads on, or anew from the offset. o.mu is held.
func (o *Object) readOn(ctx context.Context, p []byte, offset int64, goesOn bool) (err error) {
	var open context.Context
	if !goesOn {
		o.shut()
		// The stream outlives this request, which can stop it nevertheless.
		open, o.cancel = context.WithCancel(o.Of.ctx)
	}
	stop := context.AfterFunc(ctx, o.cancel)
	if !goesOn {
		o.at = offset
		o.from, err = o.open(open, offset)
	}
	if err == nil {
		// Memory that its user has cut short is an error here, so that the stream ends in any case.
		err = store.Guard("read", o.Entry.Name, func() error { return truncated(o.skipAndRead(p, offset)) })
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		o.shut()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	o.at = offset + int64(len(p))
	return nil
}

func (o *Object) skipAndRead(p []byte, offset int64) error {
	if _, err := io.CopyN(io.Discard, o.from, offset-o.at); err != nil {
		return err
	}
	_, err := io.ReadFull(o.from, p)
	return err
}

func truncated(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return bb.E(bb.Checksum, "read", "", "the store's object is shorter than the flushed content")
	}
	return err
}

// shut ends the stream. o.mu is held.
func (o *Object) shut() {
	if o.from != nil {
		o.from.Close()
		o.from = nil
	}
	if o.cancel != nil {
		o.cancel()
		o.cancel = nil
	}
}

// endStream ends a stream whose bytes are not the file's. The next one has them, if the store does.
func (o *Object) endStream() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut()
	o.named = distrust
}

// use sets the entry that names the object.
func (o *Object) use(e *bb.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Entry = e
}

// Close is of Origin.
func (o *Object) Close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut()
}

// pollEvery is how long a read waits before it looks up a renamed object again.
const pollEvery = 20 * time.Millisecond

// open opens the object from an offset on. Where the file lies now decides the object's name.
func (o *Object) open(ctx context.Context, offset int64) (io.ReadCloser, error) {
	s, e := o.Of, o.Entry
	for missing := ""; ; {
		path, err := s.o.Objects.Path(ctx, e)
		if err != nil {
			return nil, err
		}
		if o.named == trust || path == missing {
			from, err := s.o.Objects.Open(ctx, path, e.Flushed.Codec, offset)
			if bb.KindOf(err) != bb.NotFound || path == missing {
				return from, err
			}
		}
		// A rename of it may be under way, or left over by a daemon that is gone.
		names, away, opsErr := s.o.Objects.FormerNames(ctx, path)
		if opsErr != nil {
			return nil, opsErr
		}
		if away != "" {
			if from, err := o.openFormer(ctx, path, names, offset); bb.KindOf(err) != bb.NotFound {
				return from, err
			}
			return nil, bb.E(bb.Unavailable, "read", s.address(path), "node "+string(away)+", whose rename of its object on the store is pending, does not answer").
				WithRemedy("wait for it; if it will not return: bbctl node forget " + string(away))
		}
		if len(names) == 0 {
			missing = path // unless the rename has ended before this lookup
			continue
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// openFormer opens the object under a name from before renames that a daemon which is away has to carry out.
// While it has not, no daemon flushes another file under that name. So it must not have when the object is
// open.
func (o *Object) openFormer(ctx context.Context, path string, names []string, offset int64) (io.ReadCloser, error) {
	s := o.Of
	for _, name := range names {
		from, err := s.o.Objects.Open(ctx, name, o.Entry.Flushed.Codec, offset)
		if bb.KindOf(err) == bb.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		if now, _, err := s.o.Objects.FormerNames(ctx, path); err != nil || !slices.Equal(now, names) {
			return nil, errors.Join(err, from.Close(), bb.E(bb.Unavailable, "read", s.address(path), "it is being renamed on the store").WithRemedy("read it again"))
		}
		return from, nil
	}
	return nil, bb.NotFound
}
