package writeback

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/namespace"
)

// TestStoreOps: the store's operation for a rename or a removal never removes a durable object
// under a name before something else is durable there, unless the name itself goes.
func TestStoreOps(t *testing.T) {
	t.Parallel()
	plain, packed := bb.Flushed{Generation: 1}, bb.Flushed{Generation: 2, Codec: "zstd"}
	for name, test := range map[string]struct {
		op   namespace.StoreOp
		want []string
	}{
		"rename": {namespace.StoreOp{Op: namespace.OpRename, Flushed: packed}, []string{"rename a b zstd"}},
		"rename over a flushed one": {
			namespace.StoreOp{Op: namespace.OpRename, Flushed: packed, Replaced: packed},
			[]string{"rename a b zstd"},
		},
		"rename over one with another suffix": {
			namespace.StoreOp{Op: namespace.OpRename, Flushed: plain, Replaced: packed},
			[]string{"rename a b ", "remove b  zstd"},
		},
		"rename after an attempt": {namespace.StoreOp{Op: namespace.OpRename}, []string{"remove a  s2"}},
		"rename of what had replaced a flushed one": {
			namespace.StoreOp{Op: namespace.OpRename, Left: bb.Flushed{Generation: 1, Codec: "s2"}},
			[]string{"remove a  s2"},
		},
		"and that with another suffix": {namespace.StoreOp{Op: namespace.OpRename, Left: packed}, []string{"remove a  s2", "remove a  zstd"}},
		"removal":                      {namespace.StoreOp{Op: namespace.OpRemove, Flushed: packed}, []string{"remove a  zstd"}},
		"removal after an attempt":     {namespace.StoreOp{Op: namespace.OpRemove}, []string{"remove a  s2"}},
		"removal of what had replaced a flushed one": {
			namespace.StoreOp{Op: namespace.OpRemove, Left: packed}, []string{"remove a  s2", "remove a  zstd"},
		},
		"directory":              {namespace.StoreOp{Op: namespace.OpRename, IsDir: true}, []string{"rename a b  tree"}},
		"removal of a directory": {namespace.StoreOp{Op: namespace.OpRemove, IsDir: true}, []string{"remove a   tree"}},
		"noted by an older release": {
			namespace.StoreOp{Op: namespace.OpRename, Replaced: packed}, []string{"remove b  zstd"},
		},
	} {
		op := test.op
		op.Revision, op.OldPath = 7, "a"
		if op.Op == namespace.OpRename {
			op.NewPath = "b"
		}
		var got []string
		ops := StoreOps(&op, "s2")
		for i, o := range ops {
			s := fmt.Sprintf("%s %s %s %s", o.Kind, o.Old, o.New, o.Codec)
			if o.Tree {
				s += " tree"
			}
			got = append(got, s)
			if o.ID != 7 || o.More != (i < len(ops)-1) {
				t.Errorf("%s: %+v is number %d of %d", name, o, i, len(ops))
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestStoreFollows: a rename's replaced file needs no operation on the store.
func TestStoreFollows(t *testing.T) {
	t.Parallel()
	was := bb.Flushed{Generation: 1}
	file, dir := bb.TypeFile, bb.TypeDirectory
	for _, test := range []struct {
		e    bb.Entry
		path string
		want bool
	}{
		{bb.Entry{Type: file}, "f", false},
		{bb.Entry{Type: file, Flushed: was}, "f", true},
		{bb.Entry{Type: file, Before: &bb.Before{Replaced: was}}, "f", true},
		{bb.Entry{Type: file, Lost: true}, "f", true},
		{bb.Entry{Type: file, Before: &bb.Before{Attempts: []bb.Content{{Size: 1}}}}, "f", true},
		{bb.Entry{Type: dir}, "d", true},
		{bb.Entry{Type: dir}, bb.HiddenDir + "/t1", false},
	} {
		if got := StoreFollows(&test.e, test.path); got != test.want {
			t.Errorf("%+v at %s: %v", test.e, test.path, got)
		}
	}
}

// noting notes operations at the node "me", of which some were submitted to its flusher.
func noting(ops []namespace.StoreOp, submitted ...*namespace.StoreOp) *pendingOps {
	n := newPendingOps(nil)
	for i := range ops {
		n.add(&ops[i], ops[i].By == "me")
	}
	for _, op := range submitted {
		n.submitted(op)
	}
	return n
}

// TestNotBehind: an operation waits for those of other daemons before it that concern the same
// names, and for those that wait for such a one. Nothing else waits.
func TestNotBehind(t *testing.T) {
	t.Parallel()
	remove := func(by bb.NodeID, path string) namespace.StoreOp {
		return namespace.StoreOp{Op: namespace.OpRemove, OldPath: path, By: by}
	}
	rename := func(by bb.NodeID, from, to string) namespace.StoreOp {
		return namespace.StoreOp{Op: namespace.OpRename, OldPath: from, NewPath: to, By: by}
	}
	for name, test := range map[string]struct {
		ops  []namespace.StoreOp
		next []int
		wait bool
	}{
		"nothing":          {nil, nil, false},
		"one's own":        {[]namespace.StoreOp{remove("me", "a"), remove("me", "a")}, []int{0, 1}, false},
		"another's before": {[]namespace.StoreOp{remove("other", "a"), remove("me", "a"), remove("me", "b")}, []int{2}, true},
		"another's after":  {[]namespace.StoreOp{remove("me", "a"), remove("other", "a")}, []int{0}, false},
		"below":            {[]namespace.StoreOp{remove("other", "d/e/f"), remove("me", "d/e/g"), remove("me", "d")}, []int{1}, true},
		"above":            {[]namespace.StoreOp{remove("other", "d"), remove("me", "d/e/f"), remove("me", "dd")}, []int{2}, true},
		"by the new name":  {[]namespace.StoreOp{rename("other", "x", "a"), rename("me", "b", "a"), rename("me", "b", "c")}, nil, true},
		"behind one that waits": {
			[]namespace.StoreOp{remove("other", "a"), rename("me", "a", "b"), rename("me", "b", "c"), remove("me", "c"), remove("me", "d")},
			[]int{4},
			true,
		},
	} {
		for i := range test.ops {
			test.ops[i].Revision, test.ops[i].Seq = uint64(i), uint64(i)
		}
		next, wait := noting(test.ops).submittable()
		var got []int
		for _, op := range next {
			got = append(got, int(op.Revision))
		}
		if !slices.Equal(got, test.next) || wait != test.wait {
			t.Errorf("%s: %v, wait %v, want %v, %v", name, got, wait, test.next, test.wait)
		}
	}
}

// TestNotBehindAny compares with the rule taken word by word.
func TestNotBehindAny(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 14))
	paths := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "dd", "d/ee", "b/a"}
	for range 3000 {
		ops := make([]namespace.StoreOp, rnd.IntN(12))
		for i := range ops {
			op := namespace.StoreOp{Op: namespace.OpRemove, Revision: uint64(i), Seq: uint64(i), OldPath: paths[rnd.IntN(len(paths))], By: []bb.NodeID{"me", "me", "other"}[rnd.IntN(3)]}
			if rnd.IntN(2) == 0 {
				op.Op, op.NewPath = namespace.OpRename, paths[rnd.IntN(len(paths))]
			}
			ops[i] = op
		}
		var want []uint64
		var submitted []*namespace.StoreOp
		blocked := map[int]bool{}
		for i := range ops {
			behind := false
			for j := range i {
				behind = behind || (blocked[j] || ops[j].By != "me") && concern(&ops[i], &ops[j])
			}
			switch {
			case ops[i].By != "me":
			case behind:
				blocked[i] = true
			case rnd.IntN(3) == 0:
				submitted = append(submitted, &ops[i])
			default:
				want = append(want, ops[i].Revision)
			}
		}
		noted := noting(ops, submitted...)
		next, wait := noted.submittable()
		var got []uint64
		for _, op := range next {
			got = append(got, op.Revision)
		}
		if !slices.Equal(got, want) || wait != (len(blocked) > 0) {
			t.Fatalf("%+v, submitted %v: %v, want %v; wait %v", ops, submitted, got, want, wait)
		}
		for _, path := range paths {
			busy := slices.ContainsFunc(ops, func(op namespace.StoreOp) bool {
				known := slices.ContainsFunc(submitted, func(h *namespace.StoreOp) bool { return h.Revision == op.Revision })
				return !known && concern(&op, &namespace.StoreOp{OldPath: path})
			})
			if op := noted.concerning(path); (op != nil) != busy {
				t.Fatalf("%+v, submitted %v: %+v concerns %s, want one: %v", ops, submitted, op, path, busy)
			}
		}
	}
}

// concern reports whether two operations concern the same names.
func concern(a, b *namespace.StoreOp) bool {
	for _, p := range pathsOf(a) {
		for _, q := range pathsOf(b) {
			if p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") {
				return true
			}
		}
	}
	return false
}
