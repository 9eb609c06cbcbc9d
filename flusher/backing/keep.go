package backing

import (
	"errors"

	"forebay/internal/bb"
)

// ErrForeign tells, as a target of errors.Is, that a Put with PutOptions.Keep found an object
// under the name that is not the one it may replace.
var ErrForeign = errors.New("conflict: the store holds something that this buffer did not write")

// Foreign returns the error of a Put that keeps what is under a name.
func Foreign(name string) error {
	return (&bb.Error{Kind: bb.Exists, Op: "put", Path: name, Err: ErrForeign}).
		WithRemedy("rename the file in the buffer (bbctl mv), or move what is on the store away; the bytes stay in the buffer")
}

// MayReplace reports whether a Put may go on over what is there; "": nothing is.
func (o *PutOptions) MayReplace(etag string) bool {
	return !o.Keep || etag == "" || etag == o.Replaces
}
