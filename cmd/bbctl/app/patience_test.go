package app

import (
	"strings"
	"testing"
)

func TestWaitLine(t *testing.T) {
	for _, c := range []struct {
		path string
		args []string
		want string // a part; "": nothing is printed
	}{
		{"bbctl buffer create", []string{"b"}, "another node"},
		{"bbctl stage-in", []string{"s3://bucket/in", "bb://b/"}, "uses s3://bucket/in"},
		{"bbctl ls", []string{"bb://b"}, "another node"},
		{"bbctl put", []string{"-", "bb://b/f"}, ""},
		{"bbctl events", nil, ""},
		{"bbctl slurm prolog", nil, ""},
	} {
		got := waitLine(c.path, c.args)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s %q: %q, want %q in it", c.path, c.args, got, c.want)
		}
	}
}
