package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"forebay/cmd/bbbench/report"
	"forebay/cmd/bbbench/testbed"
	"forebay/internal/bb"
	"forebay/internal/measure"
)

// TestMain is also the worker that rows start: this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		if err := newCommand().Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func TestChoose(t *testing.T) {
	numbers := func(rs []row) (n []int) {
		for _, r := range rs {
			n = append(n, r.number)
		}
		return n
	}
	all, err := choose(rows(), nil)
	if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21}; err != nil || !slices.Equal(numbers(all), want) {
		t.Errorf("all rows: %v, %v", numbers(all), err)
	}
	some, err := choose(rows(), []string{"7,1", "2", "7"})
	if want := []int{1, 2, 7}; err != nil || !slices.Equal(numbers(some), want) {
		t.Errorf("some rows: %v, %v", numbers(some), err)
	}
	for _, bad := range []string{"0", "19", "-1", "x", "1x", "1e1"} {
		if _, err := choose(rows(), []string{bad}); !errors.Is(err, bb.Invalid) || !strings.Contains(err.Error(), bad) {
			t.Errorf("row %q: %v", bad, err)
		}
	}
}

// TestLines checks the lines for a row's end, and the failures of the command.
func TestLines(t *testing.T) {
	figures := func(context.Context, *testbed.Env) ([]report.Result, error) {
		return []report.Result{{
			Goal: report.RatioGoal("0.9", 0.9), Limit: measure.Of("limit", measure.PerSecond, []float64{10}), Result: measure.Of("ours", measure.PerSecond, []float64{5}),
		}}, nil
	}
	good := row{1, "good", figures}.run(t.Context(), nil)
	if len(good) != 1 || good[0].Row != 1 || good[0].What != "good" || *good[0].Ratio != 0.5 || *good[0].Reached {
		t.Errorf("a measured row: %+v", good)
	}
	absent := row{2, "absent", func(context.Context, *testbed.Env) ([]report.Result, error) { return nil, measure.Cannot("no store") }}.run(t.Context(), nil)
	broken := row{3, "broken", func(context.Context, *testbed.Env) ([]report.Result, error) { return nil, errors.New("refused") }}.run(t.Context(), nil)
	lines := slices.Concat(good, absent, broken)
	if absent[0].Failed || absent[0].Result != nil || !broken[0].Failed {
		t.Errorf("absent %+v, broken %+v", absent, broken)
	}
	if err := failures(lines, false); err == nil || strings.Contains(err.Error(), "no store") || !strings.Contains(err.Error(), "row 3: refused") {
		t.Errorf("of all rows: %v", err)
	}
	if err := failures(slices.Concat(good, absent), false); err != nil {
		t.Errorf("a row that cannot be measured fails a run of all: %v", err)
	}
	if err := failures(absent, true); err == nil {
		t.Error("a row that was asked for and not measured is no error")
	}
	var table bytes.Buffer
	if err := (&report.Report{Rows: lines}).WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.50", "not reached", "not measured: no store", "not measured: refused", "limit:  limit: 10.0 /s"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
}

func TestBadInput(t *testing.T) {
	for _, args := range [][]string{{"99"}, {"--size", "1"}, {"--rows", "x"}, {"--dir", "/does/not/exist", "1"}} {
		if _, err := command(t, args...); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	for _, args := range [][]string{{"--bbd", "/does/not/exist", "1"}, {"--socket", "/does/not/exist", "1"}, {"--socket", "tcp://127.0.0.1:1", "1"}, {"--quick", "12"}, {"--quick", "14", "--socket", "/does/not/exist"}} {
		out, err := command(t, args...)
		if err == nil || !strings.Contains(out, `"not_measured"`) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// command runs the command and returns its output.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	errs := new(bytes.Buffer)
	cmd.SetErr(errs)
	cmd.SetArgs(append([]string{"--json"}, args...))
	err := cmd.ExecuteContext(t.Context())
	if testing.Verbose() {
		t.Logf("%s", errs)
	}
	return out.String(), err
}
