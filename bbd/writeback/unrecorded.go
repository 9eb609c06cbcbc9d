package writeback

import (
	"context"
	"io"
	"time"

	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Unrecorded returns the store's content of a dirty file if that is all of it, since its owner may
// have died between the end of the flush and its record. Nil if it is not.
func (b *Buffer) Unrecorded(ctx context.Context, e *bb.Entry) (*bb.Flushed, error) {
	if b.files.Spec().Backing == "" {
		return nil, nil
	}
	path, err := b.pathAt(ctx, e.Place())
	if err != nil {
		return nil, ignoreNotFound(err)
	}
	held, err := b.quiesce(ctx, path)
	if err != nil {
		return nil, err
	}
	defer held.Release()
	s, err := b.o.Open(ctx, b.name)
	if err != nil {
		return nil, err
	}
	// The name in the store, and all else that a flush would record.
	f := bb.Flushed{Generation: e.Generation, Codec: b.files.Spec().Codec, At: time.Now(), By: b.o.Owners.Of(e)}
	name := path + codec.Suffix(f.Codec)
	o, err := s.Stat(ctx, name)
	if err != nil || f.Codec == codec.None && o.Size != e.Size {
		return nil, ignoreNotFound(err)
	}
	as := *e
	as.Flushed = f
	sum, size, err := b.objectSum(ctx, &as, path)
	if err != nil || sum != e.Checksum || size != e.Size {
		// An object that cannot be decompressed is some other content too.
		if kind := bb.KindOf(err); kind == bb.Unavailable || kind == bb.Cancelled {
			return nil, err
		}
		return nil, nil
	}
	f.ETag, f.Size, f.Checksum = o.ETag, o.Size, sum
	if f.Codec != codec.None {
		stored, err := s.Get(ctx, name, 0, -1)
		if err != nil {
			return nil, err
		}
		defer stored.Close()
		var packed summed
		if _, err := io.Copy(&packed, stored); err != nil {
			return nil, err
		}
		f.Checksum = uint64(packed)
	}
	return &f, nil
}

func ignoreNotFound(err error) error {
	if bb.KindOf(err) == bb.NotFound {
		return nil
	}
	return err
}

// objectSum returns checksum and size of the store's object of a file, decompressed.
func (b *Buffer) objectSum(ctx context.Context, e *bb.Entry, path string) (sum uint64, size int64, err error) {
	from, err := b.o.Flusher.Read(ctx, b.name, path, e.Flushed.Codec, 0)
	if err != nil {
		return 0, 0, err
	}
	defer from.Close()
	var all summed
	size, err = io.Copy(&all, from)
	return uint64(all), size, err
}

// summed is the checksum of the bytes that are written to it.
type summed uint64

func (s *summed) Write(p []byte) (int, error) {
	*s = summed(checksum.Update(uint64(*s), p))
	return len(p), nil
}
