package namespace

import (
	"fmt"
	"strings"

	"forebay/internal/bb"
	"forebay/internal/xattr"
	"forebay/meta/kv"
)

const maxHolders = 1024

// CheckEntry refuses entries that may neither be stored nor be used.
func CheckEntry(e *bb.Entry) error {
	invalid := func(why string) error { return bb.E(bb.Invalid, "entry", e.Name, why) }
	replaced := e.Replaced()
	switch {
	case e.Type != bb.TypeFile && e.Type != bb.TypeDirectory && !e.Type.Special():
		return invalid("has " + e.Type.String() + ", unknown to this release")
	case e.Type != bb.TypeDirectory && e.File == 0:
		return invalid("is " + e.Type.Noun() + " without an id")
	case (e.Type == bb.TypeSymlink) != (e.Target != ""):
		return invalid("is " + e.Type.Noun() + fmt.Sprintf(" with a target of %d bytes", len(e.Target)))
	case len(e.Target) > bb.MaxTarget || strings.Contains(e.Target, "\x00"):
		return invalid("has a target that no symbolic link can have")
	case e.Type == bb.TypeDirectory && e.Dir == 0:
		return invalid("is a directory without an id")
	case e.Xattrs != "" && (e.Type.Special() || xattr.List(e.Xattrs).Check() != nil):
		return invalid("has attributes that " + e.Type.Noun() + " cannot have")
	case e.Size < 0 || e.Size > bb.MaxFileSize || e.Flushed.Size < 0 || replaced.Size < 0:
		return invalid(fmt.Sprintf("has a size of %d bytes", e.Size))
	case len(e.Attempts()) > bb.MaxAttempts:
		return invalid(fmt.Sprintf("has %s to flush it, at most %d are allowed", bb.Count(len(e.Attempts()), "attempt"), bb.MaxAttempts))
	case len(e.Holders) > maxHolders:
		return invalid(fmt.Sprintf("has %d holders, at most %d are allowed", len(e.Holders), maxHolders))
	case len(e.Reason) > kv.MaxText || tooLong(&e.Flushed) || tooLong(&replaced):
		return invalid("has a text that is too long")
	case !kv.Representable(e.MTime) || !kv.Representable(e.Flushed.At) || !kv.Representable(replaced.At):
		return invalid("has a time before 1678 or after 2261")
	}
	return nil
}

func tooLong(f *bb.Flushed) bool {
	return len(f.ETag) > kv.MaxText || len(f.Codec) > kv.MaxText || len(f.Layout) > kv.MaxText
}
