package durabletest

import "testing"

// A commit that was to be on the store, and was not acknowledged, may be lost with the memory.
func TestUnacknowledgedCommitMayBeLost(t *testing.T) {
	version := Of([]byte("bytes"))
	for outcome, wrong := range map[Outcome]bool{Unknown: false, Done: true} {
		commit := Event{Op: Close, Begin: 1, End: 4, Outcome: outcome, Keeps: OnStore, Changes: []Change{{Path: "a", Version: version}}}
		cut := Event{Op: Fault, Begin: 5, End: 5, Outcome: Done, Takes: InMemory}
		seen := Observation{Begin: 10, End: 11, Files: map[string]Found{"a": {Problem: Lost}}, Lost: []string{"a"}}
		got := Check([]Event{commit, cut}, []Observation{seen})
		if len(got) > 0 != wrong {
			t.Errorf("outcome %v: %v", outcome, got)
		}
	}
}
