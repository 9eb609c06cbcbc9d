// Command testrun runs `go test -json` with the arguments it is given, prints one line a package
// and the output of failed tests, and ends with a plain summary. It fails when a test fails, and
// when a test was skipped that the allow-list does not name. A test that quietly did not run proves
// nothing.
//
// With -again N, if N or fewer tests failed, they run once more, each by itself. A test that passes
// then is listed as flaky and does not fail the run. The machine was too busy for it, or it has a
// race that is still to be found. A violation that the durability oracle found, a data race, and a
// program that ended early are never repeated.
//
// With -only FILE, the tests that the file names run and no others, of the packages that it names,
// in the file's order. The longest test ends last, so it begins first. It fails when one of them
// did not pass, since a test that is gone did not pass.
//
//	testrun [-allow FILE] [-again N] -- FLAGS-OF-GO-TEST… PACKAGES…
//	testrun -only FILE [-allow FILE] [-again N] -- FLAGS-OF-GO-TEST…
//
// Both files hold a package path and a test name a line. # begins a comment.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	allow := flag.String("allow", "", "file that names the tests that may be skipped")
	only := flag.String("only", "", "file that names the tests to run, and their packages")
	again := flag.Int("again", 0, "repeat so many failed tests once, each by itself, and none if more failed")
	flag.Parse()
	allowed, _, err := readTests(*allow)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	wanted, packages, err := readTests(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	start := time.Now()
	r := newResult(allowed)
	args := flag.Args()
	if len(wanted) > 0 {
		args = append(args, onlyTests(wanted, packages)...)
	}
	if err := r.goTest(args); err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	r.repeat(*again, os.Stdout, func(pkg, test string) (*result, error) {
		second := newResult(allowed)
		return second, second.goTest(onlyTest(flag.Args(), pkg, test))
	})
	r.missing(wanted)
	r.summarise(os.Stdout, time.Since(start))
	if !r.ok() {
		os.Exit(1)
	}
}

// goTest runs `go test` with its arguments and adds its events. The error is of a program that
// could not be started. A failed run without an event of a failure adds one of its own.
func (r *result) goTest(args []string) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	r.read(out, os.Stdout)
	if err := cmd.Wait(); err != nil && len(r.failed) == 0 {
		r.failed, r.final = append(r.failed, "go test: "+err.Error()), true
	}
	return nil
}

// onlyTest returns the arguments that run one test of one package: the flags as they were,
// and a -run after them, of which the last counts. The packages among args are relative, or import paths of pkg's
// module, whose path has one element.
func onlyTest(args []string, pkg, test string) []string {
	module, _, _ := strings.Cut(pkg, "/")
	isPackage := func(a string) bool {
		return strings.HasPrefix(a, ".") || a == module || strings.HasPrefix(a, module+"/")
	}
	flags := args
	if i := slices.IndexFunc(args, isPackage); i >= 0 {
		flags = args[:i]
	}
	return slices.Concat(flags, []string{"-count=1", "-run", "^" + test + "$", pkg})
}

// onlyTests returns the arguments that run the named tests: a -run with the names of all, and their
// packages, which go test begins in this order. A package in which another's test has a namesake runs the
// namesake, too.
func onlyTests(wanted map[string]bool, packages []string) []string {
	var names []string
	for key := range wanted {
		_, test, _ := strings.Cut(key, " ")
		test, _, _ = strings.Cut(test, "/")
		names = append(names, test)
	}
	slices.Sort(names)
	return append([]string{"-run", "^(" + strings.Join(slices.Compact(names), "|") + ")$"}, packages...)
}

// missing adds a failure for each wanted test that neither passed, failed nor was skipped.
func (r *result) missing(wanted map[string]bool) {
	for key := range wanted {
		if !r.ended[key] {
			r.failed = append(r.failed, key+" (there is no such test)")
		}
	}
}

// readTests reads a file of tests, as "package test", and returns the packages in the file's order, too.
func readTests(name string) (tests map[string]bool, packages []string, err error) {
	tests = map[string]bool{}
	if name == "" {
		return tests, nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) == 2 {
			tests[f[0]+" "+f[1]] = true
			if !slices.Contains(packages, f[0]) {
				packages = append(packages, f[0])
			}
		} else if len(f) != 0 {
			return nil, nil, fmt.Errorf("%s: %q is not a package and a test", name, strings.TrimSpace(line))
		}
	}
	return tests, packages, nil
}

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64
	Output     string
}

type result struct {
	allowed                 map[string]bool
	output                  map[string]*strings.Builder // by "package test", until it ends
	passed, packages        int
	failed, skipped, excess []string
	flaky                   []string // failed once, and passed by themselves
	final                   bool     // something failed that no repetition takes back
	took                    []timed  // tests, without their subtests
	ended                   map[string]bool
}

type timed struct {
	name    string
	seconds float64
}

// A run ends with a list of its longest tests, since its time is mostly theirs.
const (
	longest = 20 // so many are listed,
	isLong  = 5  // of those that took longer than this, in seconds
)

func newResult(allowed map[string]bool) *result {
	return &result{allowed: allowed, output: map[string]*strings.Builder{}, ended: map[string]bool{}}
}

// read follows the events to their end. Lines that are none are passed on.
func (r *result) read(in io.Reader, out io.Writer) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				out.Write(line)
			} else {
				r.event(e, out)
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *result) event(e event, out io.Writer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		io.WriteString(out, e.Output)
	case "output":
		b := r.output[key]
		if b == nil {
			b = new(strings.Builder)
			r.output[key] = b
		}
		b.WriteString(e.Output)
	case "pass", "fail", "skip":
		text := ""
		if b := r.output[key]; b != nil {
			text = b.String()
			delete(r.output, key)
		}
		r.end(e, key, text, out)
	}
}

// end counts an end: of a test, or, without a test's name, a package.
func (r *result) end(e event, key, text string, out io.Writer) {
	r.ended[key] = true
	if e.Test != "" && !strings.Contains(e.Test, "/") && e.Elapsed > isLong {
		r.took = append(r.took, timed{key, e.Elapsed})
	}
	switch {
	case e.Test == "" && e.Action == "skip": // no test files
	case e.Test == "":
		r.packages++
		fmt.Fprintf(out, "%-4s  %-36s %6.1f s\n", e.Action, e.Package, e.Elapsed)
		if e.Action == "fail" {
			r.failed = append(r.failed, e.Package)
			r.final = r.unended(e.Package, out) || r.final
			io.WriteString(out, text)
		}
	case e.Action == "pass":
		r.passed++
	case e.Action == "fail":
		r.failed = append(r.failed, key)
		r.final = r.final || isFinal(text)
		io.WriteString(out, text)
	case r.allowed[key]:
		r.skipped = append(r.skipped, key)
	default:
		r.excess = append(r.excess, key)
		io.WriteString(out, text)
	}
}

// unended prints the output of tests that never ended, because their program did first, by a panic
// or at its time limit. In that case the last of them has all goroutines' stacks.
func (r *result) unended(pkg string, out io.Writer) (found bool) {
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		name, of := strings.CutPrefix(key, pkg+" ")
		if !of || name == "" {
			continue
		}
		if text := r.output[key].String(); strings.Trim(text, "\n") != "=== RUN   "+name {
			fmt.Fprintf(out, "did not end: %s\n%s", name, text)
			found = true
		}
		delete(r.output, key)
	}
	return found
}

// isFinal reports whether a failed test's output has a failure that no second run takes back: a
// violation that the durability oracle found (internal/durabletest), or a data race.
func isFinal(text string) bool {
	return strings.Contains(text, "broken promise: ") || strings.Contains(text, "WARNING: DATA RACE")
}

// repeat runs the failed tests once more, one by one, if they are at most most, and removes those
// that pass from the failures.
func (r *result) repeat(most int, out io.Writer, run func(pkg, test string) (*result, error)) {
	tests := r.failedTests()
	if r.final || len(tests) == 0 || len(tests) > most {
		return
	}
	for _, key := range tests {
		pkg, test, _ := strings.Cut(key, " ")
		fmt.Fprintf(out, "\nonce more, by itself: %s\n", key)
		second, err := run(pkg, test)
		if err != nil || !second.ok() || second.passed == 0 {
			return
		}
		r.flaky = append(r.flaky, key)
		r.passed += second.passed
	}
	r.failed = nil
}

// failedTests returns the failed tests, without their subtests, as "package test", or nil if
// anything failed besides: a package that did not build, or of which no test failed.
func (r *result) failedTests() []string {
	of := map[string]bool{} // packages of failed tests
	tests := map[string]bool{}
	for _, f := range r.failed {
		if pkg, test, ok := strings.Cut(f, " "); ok {
			test, _, _ = strings.Cut(test, "/")
			of[pkg], tests[pkg+" "+test] = true, true
		}
	}
	for _, f := range r.failed {
		if !strings.Contains(f, " ") && !of[f] {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(tests))
}

func (r *result) ok() bool { return len(r.failed) == 0 && len(r.excess) == 0 }

func (r *result) summarise(out io.Writer, took time.Duration) {
	list := func(title string, names []string) {
		slices.Sort(names)
		for _, n := range names {
			fmt.Fprintf(out, "%s: %s\n", title, n)
		}
	}
	fmt.Fprintln(out)
	slices.SortFunc(r.took, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, t := range r.took[:min(longest, len(r.took))] {
		fmt.Fprintf(out, "long: %6.1f s  %s\n", t.seconds, t.name)
	}
	list("flaky: failed, and passed by itself", r.flaky)
	list("failed", r.failed)
	list("skipped, which is allowed", r.skipped)
	list("skipped, which is not allowed", r.excess)
	verdict := "PASS"
	if !r.ok() {
		verdict = "FAIL"
	}
	fmt.Fprintf(out, "%s: %d tests passed in %d packages, %d failed, %d flaky, %d skipped, in %s\n", verdict,
		r.passed, r.packages, len(r.failed), len(r.flaky), len(r.skipped)+len(r.excess), took.Round(time.Second))
}
