package alloc

import (
	"slices"
	"testing"

	"forebay/bbd/admit"
)

// TestPerUser gives each user without a grant one attempt, before anything is spilled, and
// has nothing evicted by age.
func TestPerUser(t *testing.T) {
	const mib = admit.Unit
	state := admit.State{
		Buffers: map[string]admit.Buffer{"full": {Used: 8 * mib, Capacity: 8 * mib}},
		Waiting: []admit.Request{
			{ID: 1, User: "a", Buffer: "x", Bytes: 2 * mib},
			{ID: 2, User: "a", Buffer: "x", Bytes: 3 * mib},
			{ID: 3, User: "b", Buffer: "full", Bytes: 4 * mib},
			{ID: 4, User: "b", Buffer: "y", Bytes: 5 * mib},
			{ID: 5, User: "c", Buffer: "z", Bytes: mib},
		},
	}
	got := perUser([]admit.Action{
		{Kind: admit.Grant, Request: 5, Bytes: mib},
		{Kind: admit.Evict, Bytes: 9 * mib},
		{Kind: admit.Spill, Bytes: 7 * mib},
		{Kind: admit.Wait, Request: 1},
		{Kind: admit.Wait, Request: 2},
		{Kind: admit.Wait, Request: 3},
		{Kind: admit.Wait, Request: 4},
	}, &state)
	want := []admit.Action{
		{Kind: admit.Grant, Request: 5, Bytes: mib},
		{Kind: admit.Grant, Request: 1, Bytes: 2 * mib},
		{Kind: admit.Grant, Request: 4, Bytes: 5 * mib},
		{Kind: admit.Spill, Bytes: 7 * mib},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
