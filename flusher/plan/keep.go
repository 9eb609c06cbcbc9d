package plan

import (
	"fmt"
	"path"
	"strings"

	"forebay/internal/bb"
)

// Keep patterns say which names are only passing and are not flushed. They use the
// wildcards of path.Match, which do not match a slash:
//
//	_temporary/   what is below a directory of that name, anywhere in the path
//	*.tmp         a file whose last name fits

// CheckPattern refuses a pattern that is malformed or could never match.
func CheckPattern(pattern string) error {
	invalid := func(reason string) error {
		return bb.E(bb.Invalid, "keep", fmt.Sprintf("%.64q", pattern), reason).
			WithRemedy("write a file's name, or a directory's with a trailing slash; * ? [a-z] are wildcards")
	}
	name := strings.TrimSuffix(pattern, "/")
	switch {
	case name == "":
		return invalid("names nothing")
	case len(pattern) > bb.MaxName:
		return invalid("is too long")
	case strings.ContainsAny(name, "/\x00"):
		return invalid("is more than one name")
	}
	if _, err := path.Match(name, "x"); err != nil {
		return invalid("has a malformed wildcard")
	}
	return nil
}

// Kept returns the first pattern that keeps a path back, and whether one does.
// Patterns that CheckPattern refuses match nothing.
func Kept(patterns []string, file string) (pattern string, kept bool) {
	dir, last := path.Split(file)
	for _, pattern := range patterns {
		name, isDir := strings.CutSuffix(pattern, "/")
		if !isDir && matches(name, last) || isDir && anyMatches(name, dir) {
			return pattern, true
		}
	}
	return "", false
}

func anyMatches(pattern, dir string) bool {
	for name := range strings.SplitSeq(dir, "/") {
		if name != "" && matches(pattern, name) {
			return true
		}
	}
	return false
}

func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}
