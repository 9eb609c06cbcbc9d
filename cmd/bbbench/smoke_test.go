package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"forebay/cmd/bbbench/report"
	"forebay/internal/bbdtest"
	"forebay/internal/s3test"
	"forebay/rdma/ofi/fi"
)

// TestQuick measures every row against real daemons and a real S3 server.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs every benchmark")
	}
	server := s3test.Start(t)
	for _, v := range server.Env() {
		key, value, _ := strings.Cut(v, "=")
		t.Setenv(key, value)
	}
	dir := t.TempDir()
	out, err := command(t, "--quick", "--bbd", bbdtest.Binary(t), "--bbmount", bbdtest.Bbmount(t), "--dir", dir, "--s3", server.URL(server.Bucket(t, "bench"), "some"))
	if err != nil {
		t.Fatal(err)
	}
	var report report.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	checkReport(t, &report)
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// checkReport fails unless every row that this build can measure has a limit, a result and a ratio.
func checkReport(t *testing.T, report *report.Report) {
	t.Helper()
	seen := map[int]int{}
	for _, r := range report.Rows {
		seen[r.Row]++
		switch {
		case r.Row == 6 && !fi.Supported: // TestLibfabricRow measures it
			if r.NotMeasured == "" || r.Failed {
				t.Errorf("row 6 without libfabric: %+v", r)
			}
		case r.Row >= 20 && os.Geteuid() != 0:
			if r.NotMeasured == "" || r.Failed {
				t.Errorf("row %d by another user than root: %+v", r.Row, r)
			}
		case r.Result == nil || r.Result.Value <= 0 || r.Result.Samples == 0:
			t.Errorf("row %d has no result: %+v", r.Row, r)
		case r.Row != 10 && (r.Limit == nil || r.Limit.Value <= 0 || r.Ratio == nil):
			t.Errorf("row %d has no limit: %+v", r.Row, r)
		}
	}
	for _, r := range rows() {
		want := map[int]int{5: 2, 6: 10, 7: 2, 13: 2, 17: 3, 20: 2, 21: 2}[r.number]
		if r.number == 6 && !fi.Supported {
			want = 1
		}
		if r.number >= 20 && os.Geteuid() != 0 {
			want = 1
		}
		if got := seen[r.number]; got != max(1, want) {
			t.Errorf("row %d has %d lines", r.number, got)
		}
	}
	if report.Machine.Regions == "" || report.Machine.Daemon == "" || report.Machine.Kernel == "" {
		t.Errorf("the machine is not described: %+v", report.Machine)
	}
}

// TestRunningDaemon measures the rows that need no daemon of their own on a running one
// and leaves it as it was.
func TestRunningDaemon(t *testing.T) {
	d := bbdtest.Start(t, "--memory", "1GiB")
	out, err := command(t, "--quick", "--size", "16MiB", "--socket", d.Socket, "--dir", t.TempDir(), "1,7,10,15")
	if err != nil {
		t.Fatalf("%v\n%s", err, d.Log())
	}
	var report report.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Rows) != 5 {
		t.Errorf("%v:\n%s", err, out)
	}
	if out, err := command(t, "--quick", "--socket", d.Socket, "14"); err == nil || !strings.Contains(out, "not ours") {
		t.Errorf("row 14 on a running daemon: %v\n%s", err, out)
	}
}

// TestUsers measures rows 11 and 13 by three users.
func TestUsers(t *testing.T) {
	out, err := command(t, "--quick", "--size", "16MiB", "--users", "3", "--bbd", bbdtest.Binary(t), "11,13") // below /tmp, where users may look
	if err != nil {
		t.Fatal(err)
	}
	var report report.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Rows) != 2 {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, r := range report.Rows {
		if r.Ratio == nil || *r.Ratio <= 0 || !strings.Contains(r.Result.What, "by 3 users at once") && !strings.Contains(r.Limit.What, "by 3 users at once") {
			t.Errorf("row %d: %+v", r.Row, r)
		}
	}
}
