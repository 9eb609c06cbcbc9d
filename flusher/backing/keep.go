package backing

import (
	"errors"

	"forebay/internal/bb"
)

// ErrForeign is a target of errors.Is. A Put with PutOptions.Keep, a RemoveIf or a RenameIf found
// an object under a name that is not the one it may replace, remove or move.
var ErrForeign = errors.New("conflict: the store has a file that this buffer did not write")

// Foreign returns the error of an operation that keeps the object under a name.
func Foreign(op, name string) error {
	return (&bb.Error{Kind: bb.Exists, Op: op, Path: name, Err: ErrForeign}).
		WithRemedy("the bytes stay in the buffer: bbctl drain --overwrite PATH replaces what is on the store, bbctl stage-in takes it instead, bbctl mv gives the file another name")
}

// MayReplace reports whether a Put may replace the object that is there. "" stands for no object.
func (o *PutOptions) MayReplace(etag string) bool {
	return !o.Keep || etag == "" || etag == o.Replaces
}
