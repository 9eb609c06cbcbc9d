package batch

import (
	"slices"
	"testing"
	"time"

	"forebay/internal/bb"
)

func TestEnded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	before := now.Add(-time.Second)
	long := now.Add(-stragglers)
	here := bb.Attachment{Node: "here", Attached: true}
	dead := bb.Attachment{Node: "dead", Attached: true}
	left := bb.Attachment{Node: "left", Since: before}
	leftLong := bb.Attachment{Node: "left", Since: long}
	failed := bb.Attachment{Node: "left", Since: before, Failed: true}
	visited := bb.Attachment{Node: "visited"} // by bytes alone
	type nodes = []bb.Attachment
	for name, c := range map[string]struct {
		nodes        nodes
		expect       int
		over, failed bool
		governed     bool
		said         bool // by the batch system
	}{
		"it has not come anywhere":         {nodes: nodes{}, expect: 1},
		"it is there":                      {nodes: nodes{here}, expect: 1},
		"its only node is gone":            {nodes: nodes{dead}, expect: 1},
		"it has left":                      {nodes: nodes{left}, expect: 1, over: true},
		"it has failed and left":           {nodes: nodes{failed}, expect: 1, over: true, failed: true},
		"one to go":                        {nodes: nodes{left, here}, expect: 2},
		"one to go, long ago":              {nodes: nodes{leftLong, here}, expect: 2},
		"one to come":                      {nodes: nodes{left}, expect: 2},
		"one that never came":              {nodes: nodes{leftLong}, expect: 2, over: true},
		"the other is gone":                {nodes: nodes{left, dead}, expect: 2, failed: true},
		"the other is gone, long ago":      {nodes: nodes{leftLong, dead}, expect: 2, over: true, failed: true},
		"nobody said how many":             {nodes: nodes{left}, expect: 0, over: true},
		"one has failed, one is still on":  {nodes: nodes{failed, here}, expect: 2, failed: true},
		"one left, one is gone, one there": {nodes: nodes{leftLong, dead, here}, expect: 3},
		"only bytes came":                  {nodes: nodes{visited}},
		"bytes came besides":               {nodes: nodes{left, visited}, expect: 2},
		"governed: it has left":            {nodes: nodes{left}, expect: 1, governed: true},
		"governed: it is said to be over":  {nodes: nodes{left}, expect: 1, over: true, governed: true, said: true},
		"governed: it has not left":        {nodes: nodes{left, here}, expect: 2, governed: true, said: true},
		"governed: on a node that is gone": {nodes: nodes{dead}, expect: 1, over: true, governed: true, said: true},
		"governed: it never came":          {nodes: nodes{visited}, over: true, governed: true, said: true},
	} {
		l := &bb.Lifetime{Nodes: c.nodes, ExpectedNodes: c.expect, SchedulerManaged: c.governed}
		if c.said {
			l.Over = now
		}
		over, bad := ended(l, now, func(n *bb.Attachment) bool { return n.Node == "dead" })
		if over != c.over || over && bad != c.failed {
			t.Errorf("%s: over %v, failed %v", name, over, bad)
		}
	}
}

// A buffer that is reported a second time, by an attempt that continues where one was cut off,
// counts once.
func TestReported(t *testing.T) {
	t.Parallel()
	line := func(path string, bytes int64) bb.LossLine { return bb.LossLine{Path: path, Bytes: bytes} }
	one, two := line("bb://one/f", 10), line("bb://two/g", 7)
	fresh := reported(bb.LossReport{}, "one", []bb.LossLine{one}, bb.LossSum{Total: 1, Bytes: 10})
	both := reported(fresh, "two", []bb.LossLine{two}, bb.LossSum{Total: 1, Bytes: 7})
	// More files than a bill names.
	many := slices.Repeat([]bb.LossLine{two}, maxLosses)
	large := reported(fresh, "two", many, bb.LossSum{Total: 5000, Bytes: 35000})
	older := bb.LossReport{Files: []bb.LossLine{one, two}, Total: 2, Bytes: 17}
	for name, c := range map[string]struct {
		before       bb.LossReport
		buffer       string
		lines        []bb.LossLine
		sum          bb.LossSum
		files        int
		total, bytes int64
	}{
		"the first":                        {bb.LossReport{}, "one", []bb.LossLine{one}, bb.LossSum{Total: 1, Bytes: 10}, 1, 1, 10},
		"another buffer":                   {fresh, "two", []bb.LossLine{two}, bb.LossSum{Total: 1, Bytes: 7}, 2, 2, 17},
		"the first again":                  {fresh, "one", []bb.LossLine{one}, bb.LossSum{Total: 1, Bytes: 10}, 1, 1, 10},
		"the first of two again":           {both, "one", []bb.LossLine{one}, bb.LossSum{Total: 1, Bytes: 10}, 2, 2, 17},
		"the last of two again":            {both, "two", []bb.LossLine{two}, bb.LossSum{Total: 1, Bytes: 7}, 2, 2, 17},
		"again, with more":                 {both, "two", []bb.LossLine{two, two}, bb.LossSum{Total: 2, Bytes: 14}, 3, 3, 24},
		"again, with nothing":              {both, "two", nil, bb.LossSum{}, 1, 1, 10},
		"more than is named":               {fresh, "two", many, bb.LossSum{Total: 5000, Bytes: 35000}, maxLosses, 5001, 35010},
		"more than is named, again":        {large, "two", many, bb.LossSum{Total: 5000, Bytes: 35000}, maxLosses, 5001, 35010},
		"the other one, of many":           {large, "one", []bb.LossLine{one}, bb.LossSum{Total: 1, Bytes: 10}, maxLosses, 5001, 35010},
		"a bill of an older release again": {older, "two", []bb.LossLine{two}, bb.LossSum{Total: 1, Bytes: 7}, 2, 2, 17},
	} {
		got := reported(c.before, c.buffer, c.lines, c.sum)
		if len(got.Files) != c.files || got.Total != c.total || got.Bytes != c.bytes {
			t.Errorf("%s: %d lines, %d files, %d bytes; want %d, %d, %d", name, len(got.Files), got.Total, got.Bytes, c.files, c.total, c.bytes)
		}
		if mentions(&got, c.buffer) != (c.sum.Total > 0) {
			t.Errorf("%s: it mentions %s: %v", name, c.buffer, mentions(&got, c.buffer))
		}
	}
}
