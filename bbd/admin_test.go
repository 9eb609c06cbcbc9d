package bbd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"forebay/bbd"
	"forebay/client/admin"
)

// knockerEnv makes this binary a program of the other user that requests the status at the admin
// socket of that path.
const knockerEnv = "FOREBAY_TEST_KNOCKER"

func knock(path string) int {
	status, text, err := getUnix(path, "/status")
	fmt.Print(status, " ", len(text), " ", err)
	return 0
}

// getUnix sends a request to an HTTP server on a unix socket.
func getUnix(socket, path string) (status int, text []byte, err error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}
	answer, err := (&http.Client{Transport: transport}).Get("http://bbd" + path)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	return answer.StatusCode, text, err
}

// TestAdminServer serves metrics to all at the port, also beyond loopback, and buffers' names,
// sessions and profiles to the daemon's owner alone.
func TestAdminServer(t *testing.T) {
	t.Parallel()
	open := openDir(t)
	socket := filepath.Join(mkdir(t, open, "run", 0o755), "admin.sock")
	n := startNode(t, func(c *bbd.Config) { c.AdminSocket, c.Admin = socket, "0.0.0.0:0" })
	_, port, err := net.SplitHostPort(n.daemon.Admin())
	if err != nil {
		t.Fatal(err)
	}
	n.buffer(n.dial(), admin.BufferSpec{Name: "private"})

	public := func(path string) (int, string) {
		t.Helper()
		answer, err := http.Get("http://127.0.0.1:" + port + path)
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
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if status, _ := public(path); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	for _, path := range []string{"/status", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline", "/debug/pprof/profile?seconds=1"} {
		status, text := public(path)
		if status != http.StatusForbidden || !strings.Contains(text, socket) || strings.Contains(text, "private") {
			t.Errorf("%s for everybody: %d %.100q", path, status, text)
		}
		if strings.Contains(path, "profile") {
			continue
		}
		if status, text, err := getUnix(socket, path); status != http.StatusOK || err != nil || path == "/status" && !strings.Contains(string(text), "private") {
			t.Errorf("%s for the owner: %d %.100q (%v)", path, status, text, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()

	// The socket's mode keeps another user out, and if it did not, the credentials would.
	if got := string(asOther(t, open, knockerEnv+"="+socket)); !strings.HasPrefix(got, "0 0 ") || !strings.Contains(got, "permission denied") {
		t.Errorf("another user is answered %q", got)
	}
	chmod(t, socket, 0o666)
	if got := string(asOther(t, open, knockerEnv+"="+socket)); !strings.HasPrefix(got, "0 0 ") || strings.Contains(got, "permission denied") {
		t.Errorf("another user is answered %q at a socket that is open to everybody", got)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		t.Fatal(err)
	}
}
