package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"forebay/internal/bbdtest"
	"forebay/meta/embedded"
)

// trio is three namespace servers on loopback, some of which run.
type trio struct {
	t       *testing.T
	options [3]embedded.Options
	servers [3]*embedded.Server
}

func newTrio(t *testing.T) *trio {
	c := &trio{t: t}
	var routes []string
	for range c.options {
		routes = append(routes, bbdtest.FreePort(t, "127.0.0.1"))
	}
	for i := range c.options {
		c.options[i] = embedded.Options{
			Name: fmt.Sprint("s", i), Dir: t.TempDir(), Listen: bbdtest.FreePort(t, "127.0.0.1"),
			Cluster: &embedded.Cluster{Listen: routes[i], Routes: routes},
		}
	}
	t.Cleanup(func() { c.stop(0, 1, 2) })
	return c
}

func (c *trio) urls() string {
	var urls []string
	for i := range c.options {
		urls = append(urls, "nats://"+c.options[i].Listen)
	}
	return strings.Join(urls, ",")
}

func (c *trio) start(which ...int) {
	c.t.Helper()
	for _, i := range which {
		var err error
		if c.servers[i], err = embedded.Start(c.t.Context(), c.options[i]); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *trio) stop(which ...int) {
	for _, i := range which {
		if c.servers[i] != nil {
			c.servers[i].Shutdown()
			c.servers[i] = nil
		}
	}
}

// get returns the admin server's answer, or "" if there is none.
func get(t *testing.T, admin, path string) (code int, text string) {
	t.Helper()
	return getBy(t, http.DefaultClient, admin, path)
}

// getOwner is get at the owner's socket.
func getOwner(t *testing.T, socket, path string) (code int, text string) {
	t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	return getBy(t, &http.Client{Transport: transport}, "bbd", path)
}

func getBy(t *testing.T, c *http.Client, host, path string) (code int, text string) {
	t.Helper()
	answer, err := c.Get("http://" + host + path)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, string(body)
}

// config is the configuration of a daemon of this namespace.
func (c *trio) config(admin string) string {
	return fmt.Sprintf("listen: {admin: %q}\nmemory: {size: 128MiB, region_size: 64MiB}\nnats: {url: %q, replicas: 3}\n", admin, c.urls())
}

func (c *trio) remedy() string {
	return "most of the namespace's servers (" + strings.ReplaceAll(c.urls(), ",", ", ") + ") must run"
}

// wantReadyz waits until /readyz has a status and a text.
func (c *trio) wantReadyz(admin string, code int, want ...string) {
	c.t.Helper()
	waitFor(c.t, fmt.Sprintf("/readyz says %d %q", code, want), func() bool {
		got, text := get(c.t, admin, "/readyz")
		for _, w := range want {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return got == code
	})
}

// A daemon that starts while its namespace takes connections and answers nothing, as without
// a majority, logs the reason of its wait, and ends on request.
func TestStartWithoutMajority(t *testing.T) {
	t.Parallel()
	servers := newTrio(t)
	servers.start(0)
	admin := bbdtest.FreePort(t, "127.0.0.1")
	dir := t.TempDir()
	file := filepath.Join(dir, "bbd.yaml")
	if err := os.WriteFile(file, []byte(servers.config(admin)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bbdtest.Binary(t), "--config", file, "--state-dir", dir, "--memory-dir", filepath.Join(dir, "memory"), "--memory-mount", "off", "--listen-socket", filepath.Join(dir, "s"))
	out, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	log := func() string {
		text, _ := os.ReadFile(out.Name())
		return string(text)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	servers.wantReadyz(admin, http.StatusServiceUnavailable, "starting: the namespace does not answer since", servers.remedy())
	waitFor(t, "the log says what is waited for", func() bool {
		return strings.Contains(log(), "the namespace does not answer") && strings.Contains(log(), servers.remedy())
	})
	if _, text := getOwner(t, filepath.Join(dir, "s-admin.sock"), "/status"); !strings.Contains(text, `"state": "starting"`) || !strings.Contains(text, servers.remedy()) {
		t.Errorf("the status of a daemon that waits:\n%s", text)
	}
	if _, text := get(t, admin, "/metrics"); !strings.Contains(text, "forebay_namespace_connected 0") || !strings.Contains(text, "forebay_ready 0") {
		t.Errorf("the metrics of a daemon that waits:\n%s", text)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Errorf("a daemon that did not start reports success:\n%s", log())
		}
	case <-time.After(time.Minute):
		t.Errorf("a daemon that waits does not end:\n%s", log())
	}
}
