package bb

import (
	"fmt"
	"path"
	"strings"
)

// Patterns of names select the files of a policy. They use the wildcards of path.Match,
// which do not match a slash:
//
//	_temporary/   entries below a directory of that name, anywhere in the path
//	*.tmp         a file whose last name fits

// CheckPattern refuses a pattern that is malformed or could never match.
func CheckPattern(pattern string) error {
	invalid := func(reason string) error {
		return E(Invalid, "pattern", fmt.Sprintf("%.64q", pattern), reason).
			WithRemedy("write a file's name, or a directory's with a trailing slash; * ? [a-z] are wildcards")
	}
	name := strings.TrimSuffix(pattern, "/")
	switch {
	case name == "":
		return invalid("names nothing")
	case len(pattern) > MaxName:
		return invalid("is too long")
	case strings.ContainsAny(name, "/\x00"):
		return invalid("is more than one name")
	}
	if _, err := path.Match(name, "x"); err != nil {
		return invalid("has a malformed wildcard")
	}
	return nil
}

// MatchPattern reports whether a pattern is about a file. One that CheckPattern refuses is about none.
func MatchPattern(pattern, file string) bool {
	dir, last := path.Split(file)
	if name, isDir := strings.CutSuffix(pattern, "/"); isDir {
		return anyMatches(name, dir)
	}
	return matches(pattern, last)
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

// TierRule places the files that a pattern is about.
type TierRule struct {
	Pattern string // see CheckPattern
	Tier    Tier
}

// TierOf returns the tier of a file's bytes: that of the first rule that matches, else memory.
func TierOf(rules []TierRule, file string) Tier {
	for _, r := range rules {
		if MatchPattern(r.Pattern, file) {
			return r.Tier
		}
	}
	return TierMemory
}
