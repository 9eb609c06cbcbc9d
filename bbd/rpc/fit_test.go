package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"forebay/internal/wire"
)

// A drain that could not save files with long names lists as many names as fit.
func TestFitted(t *testing.T) {
	long := strings.Repeat("n", 4000)
	p := &wire.Progress{Done: true, FailedTotal: 1000, HeldTotal: 1000, OpenTotal: 1000}
	for range 1000 {
		p.Failed = append(p.Failed, &wire.Failure{Path: long, Reason: long})
		p.Held, p.Open = append(p.Held, long), append(p.Open, long)
	}
	got := fitted(p).(*wire.Progress)
	if n := proto.Size(got); n > wire.MaxMessage {
		t.Errorf("%d bytes", n)
	}
	if len(got.Failed) == 0 || len(got.Held) == 0 || len(got.Open) == 0 || !got.Done || got.FailedTotal != 1000 || got.HeldTotal != 1000 || got.OpenTotal != 1000 {
		t.Errorf("%d failed, %d held, %d open; totals %d, %d, %d", len(got.Failed), len(got.Held), len(got.Open), got.FailedTotal, got.HeldTotal, got.OpenTotal)
	}
	if len(p.Failed) != 1000 {
		t.Error("the message of others was changed")
	}
	for _, m := range []proto.Message{&wire.Progress{Held: []string{"a"}}, &wire.Empty{}} {
		if fitted(m) != m {
			t.Errorf("%T that fits was copied", m)
		}
	}
	if _, err := wire.AppendFrame(nil, wire.Type_TYPE_DRAIN, 0, 1, fitted(p), 0); err != nil {
		t.Error(err)
	}
}
