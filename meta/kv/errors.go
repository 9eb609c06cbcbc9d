package kv

import (
	"context"
	"errors"

	"forebay/internal/bb"
	"forebay/meta/conn"
)

// The errors of package conn for a request that was not answered, or was refused, apply to changes of a bucket, too.
var (
	ErrUncertain = conn.ErrUncertain
	ErrNoServer  = conn.ErrNoServer
	ErrMaybeDone = conn.ErrMaybeDone // ErrUncertain of a change
	ErrRevision  = conn.ErrRevision  // the key has another revision
	// ErrInProcess: another change of the key is on its way to the copies. Nothing was changed, and
	// it is open whether the other change will be.
	ErrInProcess = conn.ErrInProcess
	ErrNoBucket  = conn.ErrNoStream
)

// Wrap translates the connection's errors into those of an operation.
func Wrap(op, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrRevision):
		return &bb.Error{Kind: bb.Busy, Op: op, Path: path, Err: ErrConflict, Remedy: "read it again and retry"}
	case errors.Is(err, ErrNoBucket):
		return bb.E(bb.NotFound, op, path, "the namespace has no entries of the buffer: it has been destroyed, or the namespace's server has lost them").
			WithRemedy("if bbctl buffer list shows the buffer, put a copy of the server's folder back: nodes keep what they hold")
	}
	return conn.Wrap(op, path, err)
}

// ErrConflict is in the chain of the bb.Busy error of a change that was refused
// because another writer changed the same record first.
var ErrConflict = errors.New("it was changed by another writer meanwhile")

// IgnoreConflict ignores a conflict, since another writer has changed or deleted the key.
func IgnoreConflict(_ uint64, err error) error {
	if errors.Is(err, ErrRevision) {
		return nil
	}
	return err
}

// MayRepeat reports whether a change of unknown outcome may be made again. It is for changes of
// which two executions have the result of one.
func MayRepeat(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, ErrUncertain)
}
