package leftovers

import (
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
	"forebay/meta/gossip"
)

// An instance has ended if a member had it that is gone, and none has it that is not.
func TestGoneFrom(t *testing.T) {
	members := []gossip.Member{
		{Node: "lives", Instance: 1, State: gossip.Ready},
		{Node: "died", Instance: 2, State: gossip.Dead},
		{Node: "silent", Instance: 3, State: gossip.Suspect},
		{Node: "renamed", Instance: 1, State: gossip.Dead},
		{Node: "unknown", State: gossip.Dead},
	}
	for id, want := range map[bb.InstanceID]bool{1: false, 2: true, 3: false, 4: false, 0: false} {
		if got := goneFrom(members, id); got != want {
			t.Errorf("instance %d: %t, want %t", id, got, want)
		}
	}
}

// Lines of earlier starts that cannot be read are left out, and the newest instances count.
func TestParseInstances(t *testing.T) {
	if got := parseInstances("00000000000000ff\n\nnonsense\n0\n1\n00000000000000"); !slices.Equal(got, []bb.InstanceID{0xff, 1}) {
		t.Errorf("%v", got)
	}
	if got := parseInstances(strings.Repeat("1\n", 5) + strings.Repeat("2\n", maxInstances)); len(got) != maxInstances || got[0] != 2 {
		t.Errorf("%d, the first is %v", len(got), got[0])
	}
}
