package calls

import (
	"errors"
	"unicode/utf8"

	"forebay/internal/bb"
	"forebay/meta/kv"
)

// CheckNames refuses names that no message can have, as Invalid.
func CheckNames(c *Call) error {
	for _, name := range []string{c.Name, c.ToName, c.Entry.Name} {
		if !utf8.ValidString(name) {
			return bb.E(bb.Invalid, "name", name, "is not UTF-8")
		}
	}
	return nil
}

// Absent reports whether an error is the answer to the call that there is no such name. It holds until a change in the
// directory makes the name.
func (c *Call) Absent(err error) bool {
	return c.Op == OpLookup && errors.Is(err, bb.NotFound) && !errors.Is(err, kv.ErrNoBucket)
}
