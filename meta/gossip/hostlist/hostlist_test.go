package hostlist

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"forebay/internal/bb"
)

func TestExpand(t *testing.T) {
	for list, want := range map[string]string{
		"n1":                                 "n1",
		"n1,n2,n1":                           "n1 n2",
		"n[001-003,7],gpu1[0-1]-ib":          "n001 n002 n003 n7 gpu10-ib gpu11-ib",
		"n[8-11]":                            "n8 n9 n10 n11",
		"n[08-11]":                           "n08 n09 n10 n11",
		"r[1-2]n[1-2].example.org":           "r1n1.example.org r1n2.example.org r2n1.example.org r2n2.example.org",
		"[1-2]":                              "1 2",
		"a-[0-1],b_2,nid[000998-001001]":     "a-0 a-1 b_2 nid000998 nid000999 nid001000 nid001001",
		"x[1,1,1]":                           "x1",
		"big[00000-00001,00100,09999-10000]": "big00000 big00001 big00100 big09999 big10000",
	} {
		got, err := Expand(list)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, %v", list, got, err)
		}
	}
	for _, list := range []string{
		"", ",", "n1,", "n[", "n]", "n[1", "n[]", "n[1-]", "n[-1]", "n[3-1]", "n[a-b]", "n[1,]", "n[[1]]", "n[1]]", "n 1",
		"n[0-65536]", "n[0-999][0-999]", "n[1-99999999999999999999]", "ü", strings.Repeat("n", 256), "n[0000000000001-2]",
	} {
		if got, err := Expand(list); !errors.Is(err, bb.Invalid) {
			t.Errorf("%s: got %v, %v", list, got, err)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"n[001-003,7],gpu1[0-1]-ib", "n[0-999][0-999]", "[", "n[1-", "a,b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		names, err := Expand(list)
		if err != nil {
			return
		}
		if len(names) == 0 || len(names) > maxHosts {
			t.Fatalf("%d names", len(names))
		}
		for _, n := range names {
			if n == "" || strings.ContainsFunc(n, notInHost) {
				t.Fatalf("name %q", n)
			}
		}
		again, err := Expand(strings.Join(names, ","))
		if err != nil || !slices.Equal(again, names) {
			t.Fatalf("%v became %v: %v", names, again, err)
		}
	})
}
