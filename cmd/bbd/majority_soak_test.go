//go:build soak

package main

import (
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"forebay/internal/bbdtest"
)

// A daemon that waits for a majority of the namespace's servers starts when it is there. When the
// majority is lost later, and when it is back, the daemon reports it in /readyz, in the metric, in
// the log, in status and doctor.
func TestMajorityLost(t *testing.T) {
	servers := newTrio(t)
	servers.start(0)
	d := bbdtest.New(t)
	admin := bbdtest.FreePort(t, "127.0.0.1")
	d.Config = servers.config(admin)
	d.Build()
	started := make(chan error, 1)
	go func() { started <- d.TryStart() }()
	servers.wantReadyz(admin, http.StatusServiceUnavailable, "starting: the namespace does not answer since", servers.remedy())
	servers.start(1, 2)
	if err := <-started; err != nil {
		t.Fatalf("with all servers: %v\n%s", err, d.Log())
	}
	servers.wantReadyz(admin, http.StatusOK, "ready")

	servers.stop(1, 2)
	servers.wantReadyz(admin, http.StatusServiceUnavailable, "the namespace does not answer since", servers.remedy())
	bbctl := func(args ...string) string {
		cmd := exec.Command(bbdtest.Bbctl(t), append([]string{"--socket", d.Socket}, args...)...)
		out, _ := cmd.CombinedOutput() // doctor exits with 7; its output is compared
		return string(out)
	}
	for _, text := range []string{bbctl("status"), bbctl("doctor")} {
		if !strings.Contains(text, "the namespace does not answer for ") || !strings.Contains(text, "must run and reach each other") {
			t.Errorf("without a majority:\n%s", text)
		}
	}
	if _, text := get(t, admin, "/metrics"); !strings.Contains(text, "forebay_namespace_connected 0") {
		t.Error("the metric says that the namespace is connected")
	}

	servers.start(1)
	servers.wantReadyz(admin, http.StatusOK, "ready")
	if log := d.Log(); !strings.Contains(log, "the namespace answers again") {
		t.Errorf("the log:\n%s", log)
	}
	if _, text := get(t, admin, "/metrics"); !strings.Contains(text, "forebay_namespace_connected 1") {
		t.Error("the metric says that the namespace is not connected")
	}
}
