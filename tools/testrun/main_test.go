package main

import (
	"fmt"
	"os"
	"path/filepath"
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
	if !strings.Contains(out, "long:   19.0 s  p Test19\nlong:   18.0 s  p Test18\n") || strings.Count(out, "long:") != 14 {
		t.Errorf("fourteen took more than five seconds, the longest first:\n%s", out)
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

func TestRepeat(t *testing.T) {
	const (
		failed = `{"Action":"fail","Package":"p","Test":"TestA/part"}
{"Action":"fail","Package":"p","Test":"TestA"}
`
		ended  = `{"Action":"fail","Package":"p"}` + "\n"
		passed = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
	)
	output := func(text string) string {
		return fmt.Sprintf(`{"Action":"output","Package":"p","Test":"TestA","Output":%q}`, text) + "\n"
	}
	for name, c := range map[string]struct {
		events, second string
		most           int
		repeated, ok   bool
	}{
		"passes":          {failed + ended, passed, 2, true, true},
		"fails again":     {failed + ended, failed + ended, 2, true, false},
		"does not run":    {failed + ended, "", 2, true, false},
		"not asked":       {failed + ended, passed, 0, false, false},
		"too many":        {failed + `{"Action":"fail","Package":"p","Test":"TestB"}` + "\n" + ended, passed, 1, false, false},
		"broken promise":  {output("broken promise: kept: a: gone\n") + failed + ended, passed, 2, false, false},
		"data race":       {output("WARNING: DATA RACE\n") + failed + ended, passed, 2, false, false},
		"ended early":     {output("panic: no\n") + ended, passed, 2, false, false},
		"also not built":  {failed + ended + `{"Action":"fail","Package":"q"}` + "\n", passed, 2, false, false},
		"nothing to mend": {passed, passed, 2, false, true},
	} {
		r, _ := run(t, c.events)
		repeated := false
		var out strings.Builder
		r.repeat(c.most, &out, func(pkg, test string) (*result, error) {
			repeated = true
			if pkg != "p" || test != "TestA" {
				t.Errorf("%s: repeats %s of %s", name, test, pkg)
			}
			second, _ := run(t, c.second)
			return second, nil
		})
		if repeated != c.repeated || r.ok() != c.ok {
			t.Errorf("%s: repeated %t, then ok %t; want %t and %t", name, repeated, r.ok(), c.repeated, c.ok)
		}
		if r.summarise(&out, time.Second); c.repeated && c.ok && !strings.Contains(out.String(), "flaky: failed, and passed by itself: p TestA") {
			t.Errorf("%s: the summary hides it:\n%s", name, out.String())
		}
	}
}

func TestOnlyTest(t *testing.T) {
	for _, packages := range [][]string{{"./a", "./b/..."}, {"forebay/a", "forebay/b"}, {"forebay", "forebay/a"}} {
		args := append([]string{"-race", "-run", "TestB|TestC", "-timeout", "20m"}, packages...)
		got := strings.Join(onlyTest(args, "forebay/a", "TestB"), " ")
		if want := "-race -run TestB|TestC -timeout 20m -count=1 -run ^TestB$ forebay/a"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestOnlyTests reads a file of tests, whose packages run in its order.
func TestOnlyTests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "only")
	text := "# long\nforebay/b TestB\nforebay/a TestA/part # why\n\nforebay/b TestC\nforebay/a TestB\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted, packages, err := readTests(file)
	if err != nil || len(wanted) != 4 {
		t.Fatal(wanted, err)
	}
	if got, want := strings.Join(onlyTests(wanted, packages), " "), "-run ^(TestA|TestB|TestC)$ forebay/b forebay/a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMissingTestsFail(t *testing.T) {
	r, _ := run(t, `{"Action":"pass","Package":"p","Test":"TestA/part"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}
`)
	if r.missing(map[string]bool{"p TestA": true, "p TestA/part": true}); !r.ok() {
		t.Errorf("both ran: %v", r.failed)
	}
	if r.missing(map[string]bool{"p TestGone": true}); r.ok() || !strings.Contains(r.failed[0], "p TestGone") {
		t.Errorf("a test that did not run passed: %v", r.failed)
	}
}
