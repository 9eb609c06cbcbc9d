package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func run(t *testing.T, events string, allowed ...string) (*result, string) {
	t.Helper()
	names := map[string]bool{}
	for _, a := range allowed {
		names[a] = true
	}
	var out strings.Builder
	r := newResult(names)
	r.read(strings.NewReader(events), &out)
	r.summarise(&out, time.Second)
	return r, out.String()
}

func TestSkipsFailUnlessAllowed(t *testing.T) {
	const skip = `{"Action":"output","Package":"p","Test":"TestA","Output":"no server\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`
	if r, out := run(t, skip); r.ok() || !strings.Contains(out, "no server") || !strings.Contains(out, "not allowed: p TestA") {
		t.Errorf("a skip passed:\n%s", out)
	}
	if r, out := run(t, skip, "p TestA"); !r.ok() {
		t.Errorf("an allowed skip failed:\n%s", out)
	}
}

func TestFailureShowsItsOutput(t *testing.T) {
	r, out := run(t, `not json
{"Action":"output","Package":"p","Test":"TestA","Output":"got 1\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p"}
`)
	for _, want := range []string{"not json", "got 1", "failed: p TestA", "FAIL: 1 tests passed in 1 packages"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if r.ok() {
		t.Error("a failure passed")
	}
}

func TestLongestAreListed(t *testing.T) {
	var events strings.Builder
	for i := range 20 {
		fmt.Fprintf(&events, `{"Action":"pass","Package":"p","Test":"Test%d","Elapsed":%d}`+"\n", i, i)
	}
	events.WriteString(`{"Action":"pass","Package":"p","Test":"TestA/part","Elapsed":99}` + "\n")
	_, out := run(t, events.String())
	if !strings.Contains(out, "long:   19.0 s  p Test19\nlong:   18.0 s  p Test18\n") || strings.Count(out, "long:") != 9 {
		t.Errorf("nine took more than ten seconds, the longest first:\n%s", out)
	}
}

func TestUnendedShowsItsOutput(t *testing.T) {
	_, out := run(t, `{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: test timed out after 20m0s\n"}
{"Action":"output","Package":"q","Test":"TestC","Output":"goes on\n"}
{"Action":"fail","Package":"p"}
`)
	if !strings.Contains(out, "did not end: TestB\npanic: test timed out") || strings.Contains(out, "TestA") || strings.Contains(out, "goes on") {
		t.Errorf("of p, TestB alone printed something:\n%s", out)
	}
}
