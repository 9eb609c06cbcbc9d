package walk

import (
	"context"
	"fmt"
	"testing"

	"forebay/bbd/access"
	"forebay/internal/bb"
	"forebay/meta/txn"
)

// names is a namespace of which all directories have the same entries, two levels deep.
type names struct{ entries []bb.Entry }

func (n names) ListUnion(_ context.Context, _ txn.UnionDir, after string, _ int) ([]bb.Entry, bool, error) {
	for i, e := range n.entries {
		if e.Name > after {
			return n.entries[i : i+1], i+1 < len(n.entries), nil // a page of one
		}
	}
	return nil, false, nil
}

func (n names) UnionBelow(context.Context, txn.UnionDir, *bb.Entry) (txn.UnionDir, error) {
	return txn.RootUnion(), nil
}

// TestTree: a directory is visited before and after its entries, page by page, and one that the user
// may not read ends the walk.
func TestTree(t *testing.T) {
	t.Parallel()
	secret := bb.Entry{Type: bb.TypeDirectory, Name: "z", UID: 2, Mode: 0o700}
	n := names{[]bb.Entry{{Name: "a", Type: bb.TypeFile}, secret, {Name: "zz", Type: bb.TypeFile}}}
	var seen []string
	depth := 0
	w := Walk{Names: n, Buffer: "b", Caller: access.Caller{System: true}}
	w.Visit.Enter = func(p string, _ *bb.Entry) error {
		if seen, depth = append(seen, "<"+p), depth+1; depth > 2 {
			w.Names = names{}
		}
		return nil
	}
	w.Visit.File = func(p string, _ *bb.Entry) error { seen = append(seen, p); return nil }
	w.Visit.Leave = func(p string, _ *bb.Entry, held int) error {
		seen, w.Names = append(seen, fmt.Sprint(p, ">", held)), n
		return nil
	}
	root := bb.Entry{Type: bb.TypeDirectory, Mode: 0o755}
	if err := w.Tree(t.Context(), "d", &root, txn.RootUnion()); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(seen), "[<d d/a <d/z d/z/a <d/z/z d/z/z>0 d/z/zz d/z>3 d/zz d>3]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w = Walk{Names: n, Buffer: "b", Caller: access.Caller{UID: 1, GIDs: []uint32{1}}}
	if err := w.Tree(t.Context(), "", &root, txn.RootUnion()); bb.KindOf(err) != bb.Permission {
		t.Errorf("a directory of another user: %v", err)
	}
}
