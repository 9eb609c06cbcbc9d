package plan

import (
	"fmt"
	"testing"
)

func TestEvenOut(t *testing.T) {
	t.Parallel()
	three := []string{"a", "b", "c"}
	// led makes streams with leaders by counts, and copies on all of three servers.
	led := func(counts ...int) (streams []Stream) {
		for server, n := range counts {
			for range n {
				s := Stream{Name: fmt.Sprint(len(streams)), Leader: three[server]}
				for other, name := range three {
					if other != server {
						s.Able = append(s.Able, name)
					}
				}
				streams = append(streams, s)
			}
		}
		return streams
	}
	for _, x := range []struct {
		what    string
		streams []Stream
		most    int
		want    map[string]int // number of streams that each leads afterwards
		moved   int
	}{
		{"no streams", nil, 9, map[string]int{}, 0},
		{"one stream", led(1), 9, map[string]int{"a": 1}, 0},
		{"two on one server: its share is less than one", led(2), 9, map[string]int{"a": 1, "b": 1}, 1},
		{"as drawn", led(12, 7, 5), 99, map[string]int{"a": 12, "b": 7, "c": 5}, 0},
		{"twice its share", led(16, 8, 0), 99, map[string]int{"a": 16, "b": 8}, 0},
		{"after a rolling restart", led(23, 1, 0), 99, map[string]int{"a": 8, "b": 8, "c": 8}, 15},
		{"a few at once", led(23, 1, 0), 8, map[string]int{"a": 15, "b": 5, "c": 4}, 8},
		{"nobody else can", []Stream{{"1", "a", nil}, {"2", "a", nil}, {"3", "a", nil}, {"4", "b", []string{"c"}}}, 9, map[string]int{"a": 3, "b": 1}, 0},
		{"one has no leader", append(led(3), Stream{"x", "", three}), 9, map[string]int{"a": 1, "b": 1, "c": 1, "": 1}, 2},
	} {
		got := map[string]int{}
		leader := map[string]string{}
		for _, s := range x.streams {
			leader[s.Name] = s.Leader
		}
		all := HandOvers(x.streams, x.most)
		for _, h := range all {
			if leader[h.Stream] != h.From {
				t.Errorf("%s: %s is not led by %s", x.what, h.Stream, h.From)
			}
			leader[h.Stream] = h.To
		}
		for _, server := range leader {
			got[server]++
		}
		if len(all) != x.moved || fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%s: after %d are handed over they lead %v, want %v after %d", x.what, len(all), got, x.want, x.moved)
		}
	}
}
