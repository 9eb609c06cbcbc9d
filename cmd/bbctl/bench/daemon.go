package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/internal/bb"
	"forebay/rdma/ofi/fi"
)

// daemon is a bbd that rows talk to: a process of ours, or a running one.
type daemon struct {
	socket string
	pid    int
	nats   string // address of its NATS server; "": ask its status
	tcp    string // host:port for clients elsewhere; "": not known
	key    string // file with the key that they need

	// Of our own:
	binary  string
	args    []string // further ones
	dir     string
	memory  int64
	env     []string
	process *process
}

const (
	startTime = 60 * time.Second
	stopTime  = 60 * time.Second
)

// attach finds the running daemon behind a socket.
func attach(address string) (*daemon, error) {
	socket := strings.TrimPrefix(address, "unix://")
	if strings.Contains(socket, "://") {
		return nil, invalid("socket", address, "is not a unix socket: the rows are about one node")
	}
	pid, err := peer(socket)
	if err != nil {
		return nil, bb.Wrap("bench", socket, err)
	}
	return &daemon{socket: socket, pid: pid}, nil
}

// peer returns the process that listens on a socket (SO_PEERCRED, unix(7)).
func peer(socket string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		return 0, err
	}
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// findDaemon returns the daemon's binary: of the same kind as this program.
func findDaemon(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		name := "bbd"
		if fi.Supported {
			name = "bbd-ofi"
		}
		beside := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath("bbd")
	if err != nil {
		return "", bb.E(bb.NotFound, "bench", "bbd", "is neither beside bbctl nor on PATH").WithRemedy("give --bbd FILE")
	}
	return path, nil
}

// newDaemon prepares a daemon below a folder. It listens for NATS clients too, so that
// puts on the same server can be measured, and for clients elsewhere.
func newDaemon(binary, below string, memory int64, env []string) (*daemon, error) {
	dir, err := os.MkdirTemp(below, "d")
	if err != nil {
		return nil, bb.Wrap("bench", below, err)
	}
	var ports [2]string
	for i := range ports {
		if ports[i], err = freePort(); err != nil {
			return nil, bb.Wrap("bench", "loopback", err)
		}
	}
	key := filepath.Join(dir, "bench.key")
	if err := os.WriteFile(key, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
		return nil, bb.Wrap("bench", key, err)
	}
	return &daemon{
		socket: filepath.Join(dir, "bbd.sock"), binary: binary, dir: dir, memory: memory, env: env,
		nats: "nats://" + ports[0], tcp: ports[1], key: key,
	}, nil
}

// freePort returns an address on loopback that nobody listens on at this moment.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (d *daemon) ours() bool { return d.binary != "" }

// launch starts the process without waiting until it serves.
func (d *daemon) launch() error {
	args := append([]string{
		"--dev", "--dir", d.dir, "--memory", strconv.FormatInt(d.memory, 10),
		"--nats-embedded-listen", d.nats[len("nats://"):], "--listen-tcp", d.tcp, "--key-file", d.key, "--log-level", "warn",
	}, d.args...)
	p, err := startProcess(exec.Command(d.binary, args...), d.env)
	if err != nil {
		return bb.Wrap("bench", d.binary, err)
	}
	d.process, d.pid = p, p.pid()
	return nil
}

// start starts the process and waits until it serves.
func (d *daemon) start(ctx context.Context) error {
	if err := d.launch(); err != nil {
		return err
	}
	return d.waitServing(ctx)
}

// waitServing waits until the daemon takes connections. It looks often: row 14
// measures this.
func (d *daemon) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-d.process.ended:
			return bb.E(bb.Unavailable, "bench", d.binary, "the daemon ended at its start: "+d.process.said())
		case <-ctx.Done():
			return bb.E(bb.Unavailable, "bench", d.binary, "the daemon does not serve: "+d.process.said())
		case <-time.After(500 * time.Microsecond):
		}
	}
}

func (d *daemon) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, client.Options{Address: "unix://" + d.socket, Name: "bbctl bench", RetryFor: -1})
}

// dialFar opens a session over TCP.
func (d *daemon) dialFar(ctx context.Context) (*client.Client, error) {
	if d.tcp == "" {
		return nil, cannot("it needs a daemon of its own, which listens for clients elsewhere: run it without --socket")
	}
	return client.Dial(ctx, client.Options{Address: "tcp://" + d.tcp, KeyFile: d.key, Name: "bbctl bench", RetryFor: -1})
}

// kill ends the process as a crash would, and waits until it is gone.
func (d *daemon) kill() error { return d.process.end(unix.SIGKILL, stopTime) }

// remove stops a daemon of ours and deletes all that it kept; a running one stays.
func (d *daemon) remove() error {
	if !d.ours() {
		return nil
	}
	var errs []error
	if d.process != nil {
		errs = append(errs, d.process.end(unix.SIGTERM, stopTime))
		if said, err := exec.Command(d.binary, "purge", "--discard", "--dir", d.dir).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("bbd purge: %w: %s", err, bytes.TrimSpace(said)))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(d.dir))...)
}
