package doubt

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
		d    Doubt
		o    *backing.Object
		want Finding
	}{
		"gone, and is":                {Doubt{Puts: puts, Gone: true}, nil, AsItShould},
		"gone, and came back":         {Doubt{Puts: puts, Gone: true}, there("a", 10, 7), CameBack},
		"gone, and is another's":      {Doubt{Puts: puts, Gone: true}, there("a", 10, 8), AsItShould},
		"newer, and is":               {Doubt{Puts: puts, ETag: "b"}, there("b", 10, 8), AsItShould},
		"newer, and was overwritten":  {Doubt{Puts: puts, ETag: "b"}, there("a", 10, 7), Changed},
		"newer, and was removed":      {Doubt{ETag: "b"}, nil, Changed},
		"newer, and another's is":     {Doubt{Puts: puts, ETag: "b"}, there("c", 11, 7), AsItShould},
		"nothing was confirmed since": {Doubt{Puts: puts}, there("a", 10, 7), AsItShould},
	} {
		if got := x.d.Find(x.o); got != x.want {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
}
