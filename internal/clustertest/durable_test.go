package clustertest

import (
	"slices"
	"strings"
	"testing"
)

// The rules of durabletest are applied to journals, reads of the store and observers' findings.
func TestCheckContents(t *testing.T) {
	old, grown := Version{2 << 32, 100}, Version{2 << 32, 300}
	held := func(v Version) map[string][]byte { return map[string][]byte{"a/1": Content(v.Seed, v.Size)} }
	for name, c := range map[string]struct {
		tell func(s *story)
		want string // "": nothing is wrong
	}{
		"drained": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: old})
			s.add("a", Record{Op: Sync, Path: "a/1", Version: grown})
			s.sees("n1", "a/1", Seen{Version: grown})
			s.world = World{Drained: true, Store: held(grown)}
		}, ""},
		"drained, and an older version is in the store": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: old})
			s.add("a", Record{Op: Sync, Path: "a/1", Version: grown})
			s.sees("n1", "a/1", Seen{Version: grown})
			s.world = World{Drained: true, Store: held(old)}
		}, "stored: a/1"},
		"in the store once, and not any more": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: old})
			s.world.Looks = []StoreLook{{s.now + 10, s.now + 20, held(old)}}
			s.now += 30
			s.add("a", Record{Op: Sync, Path: "a/1", Version: grown})
			s.sees("n1", "a/1", Seen{Version: grown})
			s.world.Store = map[string][]byte{}
		}, "stays durable: a/1"},
		"in the store once, and removed": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: old})
			s.world.Looks = []StoreLook{{s.now + 10, s.now + 20, held(old)}}
			s.now += 30
			s.add("a", Record{Op: Remove, Path: "a/1"})
			s.sees("n1", "a/1", noFile)
			s.world.Store = map[string][]byte{}
		}, ""},
		"a cut version on the way": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: grown})
			s.world.Looks = []StoreLook{{s.now + 10, s.now + 20, held(Version{grown.Seed, 200})}}
			s.now += 30
			s.sees("n1", "a/1", Seen{Version: grown})
			s.world = World{Drained: true, Store: held(grown), Looks: s.world.Looks}
		}, "stored: a/1"},
		"absent and not named": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: old, Holders: []string{"n2"}})
			s.world.Gone = map[string]int64{"n2": s.now}
			s.sees("n1", "a/1", noFile)
		}, "named: a/1"},
		"lost and named": {func(s *story) {
			s.add("a", Record{Op: Put, Path: "a/1", Version: old, Holders: []string{"n2"}})
			s.world = World{Gone: map[string]int64{"n2": s.now}, Store: map[string][]byte{}, Drained: true, Unsaved: []string{"a/1"}}
			s.sees("n1", "a/1", lostFile)
			s.observed[0].Lost = []string{"a/1"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{now: 1000}
			c.tell(s)
			got := Check(s.journals, s.observed, s.world).Contents
			if bad := slices.ContainsFunc(got, func(v string) bool { return c.want != "" && strings.HasPrefix(v, "broken promise: "+c.want) }); bad != (c.want != "") || c.want == "" && len(got) > 0 {
				t.Errorf("want %q: %q", c.want, got)
			}
		})
	}
}
