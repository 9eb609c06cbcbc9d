package uncertain

import (
	"testing"

	"forebay/flusher/backing"
)

func TestFind(t *testing.T) {
	late := Content{10, 7}
	there := func(etag string, size int64, sum uint64) *backing.Object {
		return &backing.Object{ETag: etag, Size: size, Checksum: sum, HasChecksum: true}
	}
	puts := []Content{late}
	for name, x := range map[string]struct {
		d    Name
		o    *backing.Object
		want Finding
	}{
		"gone, and is":                {Name{Puts: puts, Gone: true}, nil, AsItShould},
		"gone, and came back":         {Name{Puts: puts, Gone: true}, there("a", 10, 7), CameBack},
		"gone, and is another's":      {Name{Puts: puts, Gone: true}, there("a", 10, 8), AsItShould},
		"newer, and is":               {Name{Puts: puts, ETag: "b"}, there("b", 10, 8), AsItShould},
		"newer, and was overwritten":  {Name{Puts: puts, ETag: "b"}, there("a", 10, 7), Changed},
		"newer, and was removed":      {Name{ETag: "b"}, nil, Changed},
		"newer, and another's is":     {Name{Puts: puts, ETag: "b"}, there("c", 11, 7), AsItShould},
		"nothing was confirmed since": {Name{Puts: puts}, there("a", 10, 7), AsItShould},
	} {
		if got := x.d.Find(x.o); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
