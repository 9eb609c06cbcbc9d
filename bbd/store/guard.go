package store

import (
	"forebay/internal/mapped"
)

// Guard runs f, which touches memory that the store has leased or pinned for the caller. If that
// memory's region was truncated, the error is bb.Lost.
func Guard(op, path string, f func() error) error { return guard(op, path, f) }

func guard(op, path string, f func() error) error { return mapped.Guard(op, path, f) }
