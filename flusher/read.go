package flusher

import (
	"context"
	"errors"
	"io"

	"forebay/flusher/codec"
	"forebay/internal/bb"
)

// Read opens a file's content in the store from an offset on, decompressed. The
// codec is what bb.Flushed.Codec says. With one, what comes before the offset is
// read and thrown away. It does not verify: the caller knows the checksums.
func (f *Flusher) Read(ctx context.Context, buffer, path, codecName string, offset int64) (io.ReadCloser, error) {
	store, err := f.opts.Stores(ctx, buffer)
	if err != nil {
		return nil, err
	}
	if codecName == codec.None {
		return store.Get(ctx, path, offset, -1)
	}
	if err := codec.Check(codecName); err != nil {
		return nil, err
	}
	packed, err := store.Get(ctx, path+codec.Suffix(codecName), 0, -1)
	if err != nil {
		return nil, err
	}
	plain, err := codec.NewReader(codecName, packed)
	if err != nil {
		return nil, errors.Join(err, packed.Close())
	}
	r := &both{plain, packed}
	if _, err := io.CopyN(io.Discard, r, offset); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, errors.Join(bb.Wrap("read", path, err), r.Close())
	}
	return r, nil
}

// both is a decompressing reader that closes what it reads from too.
type both struct {
	io.ReadCloser
	under io.Closer
}

func (b *both) Close() error { return errors.Join(b.ReadCloser.Close(), b.under.Close()) }
