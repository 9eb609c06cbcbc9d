package copying

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Bytes pass at the requested rate, in pieces of any size.
func TestLimitRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, piece := range []int{1000, 1 << 20, 3 << 20} {
			began, l := time.Now(), newLimit(1<<20)
			for sent := 0; sent < 12<<20; sent += piece {
				if err := pass(t.Context(), l, min(piece, 12<<20-sent)); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took < 11*time.Second || took > 13*time.Second {
				t.Errorf("12 MiB in pieces of %d at 1 MiB/s took %v", piece, took)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := pass(ctx, newLimit(1), 100); err == nil {
			t.Error("nothing ended the wait")
		}
		if err := pass(t.Context(), nil, 1<<40); err != nil {
			t.Error(err)
		}
	})
}

func TestFilter(t *testing.T) {
	for name, test := range map[string]struct {
		rules string // + includes, - excludes
		paths string // ! is not included
	}{
		"none":                   {"", "a a/b"},
		"a name":                 {"-*.tmp", "a !a.tmp d d/b !d/b.tmp"},
		"a path":                 {"-d/*.tmp", "a.tmp d !d/b.tmp e e/d e/d/b.tmp"},
		"anchored":               {"-/a", "!a d d/a"},
		"at any depth":           {"-**/x/y", "d d/x !d/x/y x !x/y"},
		"the first one decides":  {"+keep.tmp -*.tmp", "keep.tmp !a.tmp"},
		"and not the last":       {"-*.tmp +keep.tmp", "!keep.tmp"},
		"only":                   {"+*/ +*.pt -*", "d/ d/a.pt !d/a.txt"},
		"directories":            {"-d/", "!d/ !d/a e/ e/d"},
		"what is in an excluded": {"-d +d/a", "!d/ !d/a dd"},
		"escaped":                {`-\*`, `!* a`},
	} {
		var f filter
		for r := range strings.FieldsSeq(test.rules) {
			if err := (ruleFlag{&f, r[0] == '+'}).Set(r[1:]); err != nil {
				t.Fatal(err)
			}
		}
		wants := f.walker()
		for p := range strings.FieldsSeq(test.paths) {
			p, not := strings.CutPrefix(p, "!")
			p, slash := strings.CutSuffix(p, "/")
			dir := slash || !strings.Contains(p, ".") && strings.Contains(test.paths, p+"/")
			if got := wants(p, dir); got == not {
				t.Errorf("%s: %q is wanted: %v", name, p, got)
			}
		}
	}
	for _, bad := range []string{"", "/", "[a", "{a"} {
		if err := (ruleFlag{&filter{}, true}).Set(bad); err == nil {
			t.Errorf("%q was taken for a pattern", bad)
		}
	}
}
