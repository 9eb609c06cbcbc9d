package main

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"forebay/client"
	"forebay/internal/durabletest"
)

// broken reports broken promises.
func broken(t *testing.T, violations []durabletest.Violation, where string) {
	t.Helper()
	for _, v := range violations {
		t.Errorf("%s: %v", where, v)
	}
}

// seen reads the file of a name. An absent or lost file is no error.
func seen(ctx context.Context, b *client.Buffer, name string) (durabletest.Found, error) {
	p, err := b.ReadFile(ctx, name)
	switch {
	case err == nil:
		return durabletest.Find(p), nil
	case errors.Is(err, fs.ErrNotExist):
		return durabletest.Found{}, nil
	case errors.Is(err, client.ErrLost):
		return durabletest.Found{Problem: durabletest.Lost, Text: err.Error()}, nil
	}
	return durabletest.Found{Problem: durabletest.Problem(client.KindOf(err).String()), Text: err.Error()}, err
}
