package conn

import (
	"errors"
	"fmt"

	"forebay/internal/bb"
)

var (
	// ErrUncertain: the connection broke, or the server was silent, after a request was sent. The
	// request may have been carried out.
	ErrUncertain = errors.New("the server did not answer")
	ErrNoServer  = errors.New("no connection to the server")
	// ErrMaybeDone is ErrUncertain of a change.
	ErrMaybeDone = fmt.Errorf("%w: %w", ErrUncertain, bb.ErrUnknownOutcome)

	// ErrRevision: the message that a publish expects to be the newest is not.
	ErrRevision = errors.New("the key has another revision")
	// ErrInProcess: another message under the same subject is on its way to the copies. Nothing was
	// stored, and it is open whether the other message will be.
	ErrInProcess = errors.New("the key is being changed")
	ErrNoStream  = errors.New("the stream does not exist")
)

// Wrap translates the connection's errors into those of an operation.
func Wrap(op, path string, err error) error {
	if errors.Is(err, ErrUncertain) && bb.KindOf(err) == bb.Internal {
		return &bb.Error{Kind: bb.Unavailable, Op: op, Path: path, Err: err, Remedy: "check whether it was done"}
	}
	return bb.Wrap(op, path, err)
}
