package plan

import "iter"

// Index finds the operations of K that concern the same names as others do (Names.Overlap), at a
// cost that does not grow with how many there are. The zero value is empty.
type Index[K comparable] struct {
	exact map[string]map[K]struct{} // by the paths that they concern
	below map[string]map[K]struct{} // by all directories that those are in
}

// Add adds an operation that concerns paths.
func (x *Index[K]) Add(k K, paths ...string) {
	if x.exact == nil {
		x.exact, x.below = map[string]map[K]struct{}{}, map[string]map[K]struct{}{}
	}
	for _, p := range paths {
		add(x.exact, p, k)
		for dir := range directories(p) {
			add(x.below, dir, k)
		}
	}
}

func add[K comparable](m map[string]map[K]struct{}, path string, k K) {
	if m[path] == nil {
		m[path] = map[K]struct{}{}
	}
	m[path][k] = struct{}{}
}

// Remove takes an operation out that was added with the same paths.
func (x *Index[K]) Remove(k K, paths ...string) {
	for _, p := range paths {
		remove(x.exact, p, k)
		for dir := range directories(p) {
			remove(x.below, dir, k)
		}
	}
}

func remove[K comparable](m map[string]map[K]struct{}, path string, k K) {
	delete(m[path], k)
	if len(m[path]) == 0 {
		delete(m, path)
	}
}

// Overlapping yields the operations that concern one of some paths, or a path in or above one, in
// no order. It may yield one more than once.
func (x *Index[K]) Overlapping(paths ...string) iter.Seq[K] {
	return func(yield func(K) bool) {
		for _, p := range paths {
			if !each(x.exact[p], yield) || !each(x.below[p], yield) {
				return
			}
			for dir := range directories(p) {
				if !each(x.exact[dir], yield) {
					return
				}
			}
		}
	}
}

func each[K comparable](set map[K]struct{}, yield func(K) bool) bool {
	for k := range set {
		if !yield(k) {
			return false
		}
	}
	return true
}
