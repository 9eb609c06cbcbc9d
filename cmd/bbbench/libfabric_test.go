//go:build ofi && cgo

package main

import (
	"encoding/json"
	"testing"

	"forebay/cmd/bbbench/report"
	"forebay/internal/bbdtest"
)

// TestLibfabricRow measures row 6 with a real daemon over a real libfabric.
func TestLibfabricRow(t *testing.T) {
	out, err := command(t, "--quick", "--size", "16MiB", "--bbd", bbdtest.Binary(t), "--dir", t.TempDir(), "6")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report report.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 9 {
		t.Errorf("%d lines", len(report.Rows))
	}
	for _, r := range report.Rows {
		if r.Result == nil || r.Result.Value <= 0 || r.Limit == nil || r.Limit.Value <= 0 || r.Ratio == nil {
			t.Errorf("not measured: %+v", r)
		}
	}
}
