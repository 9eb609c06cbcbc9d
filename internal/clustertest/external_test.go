package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"forebay/client"
	"forebay/internal/netnstest"
)

// buildServer builds nats-server, of the version that daemons embed.
func buildServer(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats-server")
	if out, err := exec.Command("go", "build", "-o", file, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v: %s", err, out)
	}
	return file
}

// server is a nats-server on a host of its own, of a cluster of three.
type server struct {
	t      *testing.T
	host   *netnstest.Host
	binary string
	config string
	cmd    *exec.Cmd
}

const serverConfig = `
server_name: %[1]s
listen: "%[2]v:4222"
jetstream { store_dir: "%[3]s" }
cluster { name: site, listen: "%[2]v:6222", routes: [%[4]s] }
`

// startServers starts nats-servers on the first three hosts.
func startServers(t *testing.T, hosts []*netnstest.Host) (servers []*server, url string) {
	t.Helper()
	var routes, urls []string
	for _, h := range hosts[:3] {
		routes = append(routes, fmt.Sprintf("%q", fmt.Sprintf("nats://%v:6222", h.Addr)))
		urls = append(urls, fmt.Sprintf("nats://%v:4222", h.Addr))
	}
	binary := buildServer(t)
	for _, h := range hosts[:3] {
		dir := t.TempDir()
		s := &server{t: t, host: h, binary: binary, config: filepath.Join(dir, "server.conf")}
		text := fmt.Sprintf(serverConfig, h.Name, h.Addr, filepath.Join(dir, "jetstream"), strings.Join(routes, ", "))
		if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.start()
		t.Cleanup(s.kill)
		servers = append(servers, s)
	}
	return servers, strings.Join(urls, ",")
}

func (s *server) start() {
	s.t.Helper()
	log, err := os.OpenFile(s.config+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = s.host.Command(s.binary, "-c", s.config)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		conn, err := s.host.DialContext(ctx, "tcp", net.JoinHostPort(s.host.Addr.String(), "4222"))
		cancel()
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(s.config + ".log")
			s.t.Fatalf("nats-server on %s: %v\n%s", s.host.Name, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// kill ends the server with SIGKILL, if it runs.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // that it was killed is no news
	s.cmd = nil
}

const externalConfig = `
listen: {tcp: "{{.Host.Addr}}:7481", admin: "127.0.0.1:7480"}
cluster: {listen: "{{.Host.Addr}}:7483", advertise: "{{.Host.Addr}}", join: "%[1]v:7483,%[2]v:7483"}
nats: {url: "%[3]s", replicas: 3}
key_file: {{.Dir}}/key
memory: {size: 256MiB, region_size: 64MiB}
flush: {dirty_age: 1s}
`

// TestExternalServers: a namespace on servers without daemons. Without one of the three everything
// continues. Without two, data operations on open files continue, namespace operations wait until
// their deadline and then name the servers. With them everything resumes by itself.
func TestExternalServers(t *testing.T) {
	s := newHosts(t)
	hosts := s.net.Hosts
	servers, url := startServers(t, hosts)
	s.start(fmt.Sprintf(externalConfig, hosts[0].Addr, hosts[1].Addr, url), nil)
	s.load(2)

	for _, down := range servers { // in turn, so that the leader is one of them
		time.Sleep(time.Second)
		down.kill()
		time.Sleep(fault(t, 3*time.Second))
		c := dial(t, s.daemons[3])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of elections; a loaded machine takes 15 s for one
		if err := c.Buffer("work").WriteFile(ctx, "without "+down.host.Name, []byte("x"), 0o644); err != nil {
			t.Errorf("without the server on %s: %v", down.host.Name, err)
		}
		cancel()
		c.Close()
		down.start()
		time.Sleep(3 * time.Second)
	}

	c := dial(t, s.daemons[3])
	defer c.Close()
	b := c.Buffer("work")
	content := Content(5, 3<<20)
	f, err := b.OpenFile(t.Context(), "open", client.OpenOptions{Write: true, Create: true, Mode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(content[:1<<20]); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	r, err := b.Open(t.Context(), "open")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	servers[0].kill()
	servers[1].kill()
	time.Sleep(2 * time.Second)

	if _, err := f.Write(content[1<<20:]); err != nil {
		t.Errorf("writing an open file: %v", err)
	}
	got := make([]byte, 1<<20)
	if _, err := r.ReadAt(got, 0); err != nil || !bytes.Equal(got, content[:1<<20]) {
		t.Errorf("reading an open file: %v", err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	_, err = b.Stat(ctx, "open")
	cancel()
	if !errors.Is(err, client.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), ":4222") {
		t.Errorf("a look-up without the servers: %v; want unavailable, naming them", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a look-up with a deadline of 3 s took %v", took)
	}
	servers[0].start()
	servers[1].start()

	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := f.Close(); err != nil {
		t.Errorf("closing a file that was written meanwhile: %v", err)
	}
	if got, err := b.ReadFile(ctx, "open"); err != nil || !bytes.Equal(got, content) {
		t.Errorf("read back: %d bytes, %v", len(got), err)
	}
	own := []string{"open", "without n1", "without n2", "without n3"} // unknown to the check
	for _, name := range own {
		if err := b.Remove(ctx, name); err != nil {
			t.Error(err)
		}
	}
	s.goneFromStore(own...)
	s.settle(World{})
}

// goneFromStore waits until the store has none of some files.
func (s *scenario) goneFromStore(names ...string) {
	s.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		files, err := StoreFiles(s.store)
		if err != nil {
			s.t.Fatal(err)
		}
		left := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := files[name]; return !ok })
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the store still has %q, which were removed", left)
		}
	}
}
