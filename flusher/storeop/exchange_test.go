package storeop

import (
	"testing"

	"forebay/internal/bb"
)

// TestFateOf: an object without a record goes where its file's object goes, or waits for the flush of the file that has
// its name.
func TestFateOf(t *testing.T) {
	t.Parallel()
	on := func(codec string) bb.Flushed { return bb.Flushed{Generation: 1, Codec: codec} }
	fresh := Exchanged{File: 1, Flushes: "zstd"}
	flushed := Exchanged{File: 2, Flushes: "zstd", Flushed: on("zstd")}
	other := Exchanged{File: 3, Flushes: "zstd", Flushed: on("")}
	link := Exchanged{File: 4, Flushed: on("")}
	newLink := Exchanged{File: 5}
	dir := Exchanged{Dir: true}
	for name, c := range map[string]struct {
		former, present Exchanged
		want            Fate
	}{
		"a rewritten file and a flushed one":          {flushed, flushed, Moves},
		"a rewritten file and a new one":              {flushed, fresh, Moves},
		"a rewritten file and a directory":            {flushed, dir, Moves},
		"a new file and a flushed one":                {fresh, flushed, Replaced},
		"two new files":                               {fresh, fresh, Stays},
		"a new file and a directory":                  {fresh, dir, Goes},
		"a new file and a link":                       {fresh, link, Goes},
		"a new file and a new link":                   {fresh, newLink, Goes},
		"a file whose object has another codec":       {other, fresh, Stays},
		"a new file and one flushed by another codec": {fresh, other, Goes},
		"a link without an object of that name":       {newLink, fresh, Stays},
	} {
		if got := FateOf(&c.former, &c.present, "zstd"); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
