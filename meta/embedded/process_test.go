package embedded

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// natsServer repeats main of nats-server. This process is an external server.
func natsServer() {
	fs := flag.NewFlagSet("nats-server", flag.ExitOnError)
	opts, err := server.ConfigureOptions(fs, os.Args[1:], server.PrintServerAndExit, fs.Usage, server.PrintTLSHelpAndDie)
	if err != nil {
		server.PrintAndDie(err.Error())
	}
	s, err := server.NewServer(opts)
	if err != nil {
		server.PrintAndDie(err.Error())
	}
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		server.PrintAndDie(err.Error())
	}
	s.WaitForShutdown()
}

// processes are three external servers, each a process that can be killed.
type processes struct {
	t       *testing.T
	dir     string
	clients [3]string // addresses
	monitor [3]string
	cmds    [3]*exec.Cmd // nil: killed
}

func startProcesses(t *testing.T) *processes {
	p := &processes{t: t, dir: t.TempDir()}
	var routes [3]string
	for i := range p.cmds {
		p.clients[i], p.monitor[i], routes[i] = freeAddress(t), freeAddress(t), freeAddress(t)
	}
	for i := range p.cmds {
		config := fmt.Sprintf(`
server_name: s%d
listen: %q
http: %q
jetstream { store_dir: %q }
cluster { name: c, listen: %q, routes: [ "nats://%s" ] }
`, i, p.clients[i], p.monitor[i], filepath.Join(p.dir, fmt.Sprint(i)), routes[i], strings.Join(routes[:], `", "nats://`))
		write(t, p.config(i), []byte(config))
	}
	t.Cleanup(func() {
		for i := range p.cmds {
			p.kill(i)
		}
		if t.Failed() {
			p.logs()
		}
	})
	for i := range p.cmds {
		p.start(i)
	}
	return p
}

func (p *processes) config(i int) string { return filepath.Join(p.dir, fmt.Sprintf("s%d.conf", i)) }

func (p *processes) start(i int) {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.dir, fmt.Sprintf("s%d.log", i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0], "-c", p.config(i))
	cmd.Env = append(os.Environ(), "FOREBAY_NATS_SERVER=1")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmds[i] = cmd
}

// kill is kill -9.
func (p *processes) kill(i int) {
	if cmd := p.cmds[i]; cmd != nil {
		p.cmds[i] = nil
		if err := cmd.Process.Kill(); err != nil {
			p.t.Error(err)
		}
		_ = cmd.Wait()
	}
}

func (p *processes) signal(i int, s syscall.Signal) {
	p.t.Helper()
	if err := p.cmds[i].Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *processes) logs() {
	for i := range p.cmds {
		b, _ := os.ReadFile(filepath.Join(p.dir, fmt.Sprintf("s%d.log", i)))
		p.t.Logf("s%d:\n%s", i, b[max(0, len(b)-8<<10):])
	}
}

func (p *processes) urls(first int) []string {
	var urls []string
	for i := range p.clients {
		urls = append(urls, "nats://"+p.clients[(first+i)%3])
	}
	return urls
}

// leader returns the leader of the stream whose name begins so, by the report of some running
// server.
func (p *processes) leader(stream string) int {
	p.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for i, cmd := range p.cmds {
			if cmd == nil {
				continue
			}
			if leader, ok := p.leaderAt(i, stream); ok && p.cmds[leader] != nil {
				return leader
			}
		}
	}
	p.t.Fatalf("nobody leads %q", stream)
	return 0
}

func (p *processes) leaderAt(i int, stream string) (leader int, ok bool) {
	answer, err := (&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + p.monitor[i] + "/jsz?accounts=true&streams=true")
	if err != nil {
		return 0, false
	}
	defer answer.Body.Close()
	var info struct {
		Accounts []struct {
			Streams []struct {
				Name    string `json:"name"`
				Cluster struct {
					Leader string `json:"leader"`
				} `json:"cluster"`
			} `json:"stream_detail"`
		} `json:"account_details"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&info); err != nil {
		return 0, false
	}
	for _, a := range info.Accounts {
		for _, s := range a.Streams {
			if strings.HasPrefix(s.Name, stream) {
				_, err := fmt.Sscanf(s.Cluster.Leader, "s%d", &leader)
				return leader, err == nil
			}
		}
	}
	return 0, false
}
