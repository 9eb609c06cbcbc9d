package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"forebay/client/admin"
	"forebay/internal/bbdtest"
	"forebay/internal/porttest"
)

// prometheusTools returns the folder with prometheus and promtool. Without them nothing is tested,
// except where CI is set. There they have to be had.
func prometheusTools(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../../scripts/prometheus.sh").Output()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("prometheus and promtool are not to be had here")
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// rules are the alerts of docs/alerts.yaml.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		}
	}
}

func readRules(t *testing.T) (all rules) {
	t.Helper()
	f, err := os.Open("../../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	if err := d.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAlerts: promtool accepts the rules, and their unit tests pass. Each rule has one, and a part
// of docs/operations.md with the remedy.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool := filepath.Join(prometheusTools(t), "promtool")
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../../docs"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tests, err := os.ReadFile("../../docs/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	headings := anchors(t, "../../docs/operations.md")
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			if !strings.Contains(string(tests), "alertname: "+r.Alert+"\n        exp_alerts:") {
				t.Errorf("%s has no test in which it fires", r.Alert)
			}
			page, anchor, _ := strings.Cut(r.Annotations["runbook"], "#")
			if page != "operations.md" || !headings[anchor] {
				t.Errorf("%s: docs/operations.md has no part %q", r.Alert, anchor)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s: %+v", r.Alert, r)
			}
		}
	}
}

// anchors are the names of a page's headings in links, as GitHub makes them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
			found[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return found
}

// dashboard is the part of Grafana's dashboard model that docs/grafana.json may use (Grafana
// documentation, "JSON model").
type dashboard struct {
	UID, Title, Timezone, Refresh string
	Tags                          []string
	SchemaVersion, Version        int
	Editable                      bool
	Time                          struct{ From, To string }
	Templating                    struct{ List []variable }
	Annotations                   struct{ List []struct{} }
	Panels                        []panel
}

type source struct{ Type, UID string }

type variable struct {
	Name, Label, Type, Query, AllValue string
	Datasource                         source
	Refresh, Sort                      int
	IncludeAll, Multi                  bool
	Current                            struct {
		Selected    bool
		Text, Value string
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               source
	Collapsed                bool
	Panels                   []struct{}
	GridPos                  struct{ H, W, X, Y int }
	FieldConfig              struct {
		Defaults struct {
			Unit       string
			Min        int
			Thresholds struct {
				Mode  string
				Steps []struct {
					Color string
					Value *int
				}
			}
		}
		Overrides []struct{}
	}
	Options struct {
		ColorMode     string
		ReduceOptions struct {
			Calcs  []string
			Fields string
			Values bool
		}
	}
	Targets []struct {
		RefID, Expr, LegendFormat string
		Datasource                source
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	f, err := os.Open("../../docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	decoder := json.NewDecoder(f)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboard: the dashboard has no field that is not known, no panel twice, on another one, or
// without a query, and every metric of docs/metrics.md but few is on it or in an alert.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] != "" || p.Title == "" {
			t.Errorf("%q and %q have one id", p.Title, ids[p.ID])
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies on %q, or beyond the width", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 || !slices.Contains([]string{"row", "stat", "timeseries"}, p.Type) {
			t.Errorf("%q: a %s with %d queries", p.Title, p.Type, len(p.Targets))
		}
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	used := strings.Join(queries(t), "\n")
	for _, m := range regexp.MustCompile("`(forebay_[a-z_]+)` \\| [ghc]").FindAllStringSubmatch(string(page), -1) {
		unused := []string{"forebay_commits_total", "forebay_reads_total", "forebay_populated_ratio", "forebay_flush_seconds"}
		if !strings.Contains(used, m[1]) && !slices.Contains(unused, m[1]) {
			t.Errorf("%s is on no panel and in no alert", m[1])
		}
	}
}

// queries are all queries of the dashboard and the alerts, with the dashboard's variables set to
// all.
func queries(t *testing.T) (all []string) {
	t.Helper()
	variables := strings.NewReplacer("$instance", ".*", "$buffer", ".*", "$__rate_interval", "10s")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, variables.Replace(target.Expr))
		}
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	return all
}

// adminOf returns the address of a daemon's metrics from its log, which has it a moment after the
// daemon serves.
func adminOf(t *testing.T, d *bbdtest.Daemon) string {
	t.Helper()
	says := regexp.MustCompile(`admin=(\S+)`)
	for {
		if at := says.FindStringSubmatch(d.Log()); at != nil {
			return at[1]
		}
		select {
		case <-d.Ended():
			t.Fatal("the daemon has ended")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestEveryQuery runs every query of the dashboard and of the alerts in a Prometheus that scrapes a
// daemon at work. Alerts find nothing there. Everything else finds something.
func TestEveryQuery(t *testing.T) {
	t.Parallel()
	tools := prometheusTools(t)
	d := bbdtest.Start(t, "--memory", "128MiB", "--disk-dir", t.TempDir(), "--disk-size", "512MiB")
	address := startPrometheus(t, tools, adminOf(t, d))
	stop := keepBusy(t, d)
	defer stop()
	quiet := map[string]bool{}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			quiet[r.Expr] = true
		}
	}
	for _, q := range queries(t) {
		// One daemon that is well moves nothing between nodes or tiers, shares no log, and fails in nothing.
		mayBeEmpty := quiet[q] || strings.Contains(q, "forebay_fabric_bytes_total") || strings.Contains(q, "forebay_evicted_bytes_total") ||
			strings.Contains(q, "forebay_log_") || strings.Contains(q, "forebay_flush_failures_total") || strings.Contains(q, "forebay_request_errors_total")
		for {
			n, err := ask(t.Context(), address, q)
			if err != nil {
				t.Fatalf("%s: %v", q, err)
			}
			if quiet[q] && n > 0 {
				t.Errorf("an alert on a daemon that is well: %s", q)
			}
			if n > 0 || mayBeEmpty {
				break
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-t.Context().Done():
			}
			if deadline, ok := t.Deadline(); ok && time.Until(deadline) < time.Minute {
				t.Fatalf("%s finds nothing", q)
			}
		}
	}
}

// startPrometheus starts a Prometheus that scrapes an address each second, with the alerts, and
// returns its address.
func startPrometheus(t *testing.T, tools, target string) string {
	t.Helper()
	address, err := porttest.Free("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := filepath.Abs("../../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nrule_files: [%q]\nscrape_configs:\n  - job_name: forebay\n    static_configs: [{targets: [%q]}]\n", alerts, target)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(tools, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("prometheus:\n%s", said)
		}
	})
	for {
		if n, err := ask(t.Context(), address, `up{job="forebay"} == 1`); err == nil && n == 1 {
			return address
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("Prometheus does not scrape the daemon")
		}
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < time.Minute {
			t.Fatal("Prometheus does not scrape the daemon")
		}
	}
}

// ask runs a query, and returns how many series it finds.
func ask(ctx context.Context, address, query string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var found struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		return 0, err
	}
	if found.Status != "success" {
		return 0, fmt.Errorf("%s: %s", found.Status, found.Error)
	}
	return len(found.Data.Result), nil
}

// keepBusy writes files that are flushed and read, until it is stopped.
func keepBusy(t *testing.T, d *bbdtest.Daemon) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c := dial(t, d)
	if _, err := admin.CreateBuffer(ctx, c, admin.BufferSpec{Name: "busy", Backing: "file://" + t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b, content := c.Buffer("busy"), make([]byte, 300_000)
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprint("f", i%20)
			err := b.WriteFile(ctx, name, content, 0o644)
			if err == nil {
				_, err = b.ReadFile(ctx, name)
			}
			if err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-ended }
}
