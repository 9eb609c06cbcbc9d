package copying

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCompare(t *testing.T) {
	file := func(size int64) item { return item{size: size, mode: 0o644, when: time.Unix(1, 0)} }
	dir := item{dir: true, mode: 0o755}
	for name, test := range map[string]struct {
		from, to map[string]item
		remove   bool
		differs  string // contents that are not the same
		want     string
		failed   int
	}{
		"nothing":               {},
		"new":                   {from: map[string]item{"d": dir, "d/f": file(1), "a": file(1)}, want: "copy a, mkdir d, copy d/f"},
		"equal":                 {from: map[string]item{"a": file(1)}, to: map[string]item{"a": file(1)}},
		"another size":          {from: map[string]item{"a": file(2)}, to: map[string]item{"a": file(1)}, want: "copy a"},
		"another content":       {from: map[string]item{"a": file(1)}, to: map[string]item{"a": file(1)}, differs: "a", want: "copy a"},
		"another mode":          {from: map[string]item{"a": {size: 1, mode: 0o600, when: time.Unix(1, 0)}}, to: map[string]item{"a": file(1)}, want: "settle a"},
		"another time":          {from: map[string]item{"a": {size: 1, mode: 0o644}}, to: map[string]item{"a": file(1)}, want: "settle a"},
		"more there":            {from: map[string]item{}, to: map[string]item{"a": file(1)}},
		"more there, to remove": {from: map[string]item{}, to: map[string]item{"a": file(1), "d": dir, "d/e": dir, "d/e/f": file(1)}, remove: true, want: "remove d/e/f, remove d/e, remove d, remove a"},
		"a file for a directory": {
			from: map[string]item{"d": dir}, to: map[string]item{"d": file(1)}, want: "", failed: 1,
		},
		"a directory for a file, to remove": {
			from: map[string]item{"d": file(1)}, to: map[string]item{"d": dir, "d/f": file(1)}, remove: true, want: "remove d/f, remove d, copy d",
		},
		"not to be read": {from: map[string]item{"broken": file(1)}, to: map[string]item{"broken": file(1)}, failed: 1},
	} {
		steps, failed := compare(test.from, test.to, test.remove, func(below string) (bool, error) {
			if below == "broken" {
				return false, errors.New("cannot be read")
			}
			return below != test.differs, nil
		})
		var got []string
		for _, s := range steps {
			got = append(got, s.do+" "+s.below)
		}
		if all := strings.Join(got, ", "); all != test.want || len(failed) != test.failed {
			t.Errorf("%s: %q, want %q; failed: %v", name, all, test.want, failed)
		}
	}
}
