package admin

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestUnready(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ state, trouble, waits, want string }{
		{"ready", "", "", ""},
		{"ready", "", "n2 is old", ""},
		{"ready", "no answer", "", "no answer"},
		{"starting", "", "", "starting"},
		{"starting", "no answer", "", "starting: no answer"},
		{"starting", "no answer", "n2 is old", "starting: no answer"},
		{"starting", "", "n2 is old", "starting: waits for another daemon: n2 is old"},
		{"stopping", "no answer", "n2 is old", "stopping"},
		{"stopped", "", "", "stopped"},
	} {
		if got := Unready(c.state, c.trouble, c.waits); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestPages: data about users is served only at the socket, and the server ends with its context.
func TestPages(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	unready := ""
	socket := filepath.Join(t.TempDir(), "admin.sock")
	address, err := Serve(ctx, Options{
		Address: "127.0.0.1:0", Socket: socket, Go: running.Go,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "figures") }),
		Unready: func() string { return unready }, Status: func() any { return map[string]string{"node": "n1"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func(network, at, path string) (int, string) {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at)
		}}
		answer, err := (&http.Client{Transport: transport}).Get("http://bbd" + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	for _, c := range []struct {
		path           string
		public, owners int
		text           string // in the answer at the socket
	}{
		{"/metrics", 200, 200, "figures"},
		{"/healthz", 200, 200, "ok"},
		{"/readyz", 200, 200, "ready"},
		{"/status", 403, 200, `"node": "n1"`},
		{"/debug/pprof/cmdline", 403, 200, ""},
		{"/nothing", 404, 404, ""},
	} {
		if code, text := get("tcp", address, c.path); code != c.public || code == 403 && !strings.Contains(text, socket) {
			t.Errorf("%s at the port: %d %q", c.path, code, text)
		}
		if code, text := get("unix", socket, c.path); code != c.owners || !strings.Contains(text, c.text) {
			t.Errorf("%s at the socket: %d %q", c.path, code, text)
		}
	}
	unready = "starting"
	if code, text := get("tcp", address, "/readyz"); code != 503 || !strings.Contains(text, "starting") {
		t.Errorf("/readyz: %d %q", code, text)
	}
}
