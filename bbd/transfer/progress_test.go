package transfer

import (
	"testing"

	"forebay/internal/bb"
	"forebay/internal/wire"
)

// A file that one of several daemons could not save is named once in all messages together.
func TestSumNamesOnce(t *testing.T) {
	named := 0
	count := func(m *wire.Progress) error { named += len(m.Failed); return nil }
	for _, nodes := range []int{1, 3} {
		named = 0
		p := NewProgress(count)
		sum := NewSum(p, nodes)
		for i := range nodes {
			m := &wire.Progress{FilesTotal: 2, FilesDone: 1, FailedTotal: 1, Failed: []*wire.Failure{{Path: "f", Kind: uint32(bb.Busy)}}}
			p.last = p.last.Add(-2 * sendEvery) // it is time to report
			if err := sum.Set(i, m); err != nil {
				t.Fatal(err)
			}
		}
		answer := sum.Sum()
		if count(answer); named != nodes || answer.FailedTotal != int64(nodes) {
			t.Errorf("%d daemons: %d named, %d failed", nodes, named, answer.FailedTotal)
		}
	}
}
