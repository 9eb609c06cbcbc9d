package file

import (
	"reflect"
	"testing"

	"forebay/bbd/store"
)

func TestCommitExtents(t *testing.T) {
	own := []store.NewExtent{{FileOffset: 0, Length: 10}, {FileOffset: 90, Length: 10}}
	last := []store.NewExtent{{FileOffset: 99, Length: 1}}
	for name, c := range map[string]struct {
		commit Commit
		size   int64
		want   []store.NewExtent
	}{
		"no size":                {Commit{Extents: own}, 50, own},
		"a longer file":          {Commit{Last: last, Extents: own}, 200, own},
		"a file of the size":     {Commit{Last: last}, 100, nil},
		"a shorter file":         {Commit{Last: last}, 99, last},
		"its own bytes win":      {Commit{Last: last, Extents: own}, 0, []store.NewExtent{last[0], own[0], own[1]}},
		"nothing to be extended": {Commit{}, 0, nil},
	} {
		if got := c.commit.extents(c.size); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
