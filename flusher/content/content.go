// Package content reads the content of files from their objects on a store, decompressed. It must never depend on
// the objects of a buffer.
package content

import (
	"context"
	"errors"
	"io"

	"forebay/flusher/backing"
	"forebay/flusher/codec"
	"forebay/internal/bb"
	"forebay/internal/checksum"
)

// Open opens a file's content in the store from an offset on, decompressed. The codec is
// bb.Flushed.Codec. With one, the bytes before the offset are read and dropped. It does not verify.
// The caller has the checksums.
func Open(ctx context.Context, store backing.Store, path, codecName string, offset int64) (io.ReadCloser, error) {
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

// both is a decompressing reader that closes its source too.
type both struct {
	io.ReadCloser
	under io.Closer
}

func (b *both) Close() error { return errors.Join(b.ReadCloser.Close(), b.under.Close()) }

// Sum reads an object, decompressed. An object of another compression is bb.Checksum.
func Sum(ctx context.Context, store backing.Store, object, codecName string, progress func()) (c bb.Content, err error) {
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
