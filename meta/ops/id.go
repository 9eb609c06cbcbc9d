package ops

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// OptionCreated is the option of an operation that has the time, in Unix nanoseconds, at which its
// buffer was created, since another buffer may get the name.
const OptionCreated = "created"

// ID makes an id for an operation or a task of the parts that it is about. The same parts make the same
// id.
func ID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:10])
}
