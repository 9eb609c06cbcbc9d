package dedup

import "testing"

// TestBound: no more records of commits are kept than allowed, the newest always, and commits
// without a number never.
func TestBound(t *testing.T) {
	t.Parallel()
	r := Table{most: 100}
	for i := range uint64(1000) {
		r.Add(1, 1, ID{i + 1, 5})
		if n := len(r.last); n > r.most {
			t.Fatalf("%d are remembered, at most %d", n, r.most)
		}
		if !r.Seen(1, 1, ID{i + 1, 5}) || !r.Seen(1, 1, ID{i + 1, 4}) {
			t.Fatal("the newest is not remembered")
		}
		if r.Seen(1, 1, ID{i + 1, 6}) || r.Seen(1, 2, ID{i + 1, 5}) || r.Seen(2, 1, ID{i + 1, 5}) {
			t.Fatal("one that was not carried out is remembered")
		}
	}
	if r.Seen(1, 1, ID{0, 0}) {
		t.Error("a commit without a number")
	}
}
