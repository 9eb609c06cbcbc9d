package plan

import (
	"iter"
	"strings"
)

// Names is a set of paths that some operations concern. The zero value is empty.
type Names struct {
	exact map[string]bool
	above map[string]bool // all directories that a path is in
}

// Add adds paths.
func (n *Names) Add(paths ...string) {
	if n.exact == nil {
		n.exact, n.above = map[string]bool{}, map[string]bool{}
	}
	for _, p := range paths {
		n.exact[p] = true
		for dir := range directories(p) {
			n.above[dir] = true
		}
	}
}

// Overlap reports whether one of some paths is in the set, or lies in or above one that is. The
// path "" is above all.
func (n *Names) Overlap(paths ...string) bool {
	for _, p := range paths {
		if n.exact[p] || n.above[p] {
			return true
		}
		for dir := range directories(p) {
			if n.exact[dir] {
				return true
			}
		}
	}
	return false
}

// directories yields the directories that a path lies in, the root ("") too.
func directories(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if p == "" {
			return
		}
		for i := strings.LastIndexByte(p, '/'); i > 0; i = strings.LastIndexByte(p[:i], '/') {
			if !yield(p[:i]) {
				return
			}
		}
		yield("")
	}
}
