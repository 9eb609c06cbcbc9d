package flusher

import (
	"context"
	"io"

	"forebay/flusher/content"
)

// Read is content.Open of a file in a buffer's store. codecName is bb.Flushed.Codec.
func (f *Flusher) Read(ctx context.Context, buffer, path, codecName string, offset int64) (io.ReadCloser, error) {
	store, err := f.opts.Stores(ctx, buffer)
	if err != nil {
		return nil, err
	}
	return content.Open(ctx, store, path, codecName, offset)
}
