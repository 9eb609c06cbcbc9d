package testbed

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/cmd/bbbench/process"
	"forebay/internal/bb"
	"forebay/internal/measure"
	"forebay/rdma/ofi/fi"
)

// daemon is a bbd that rows talk to: a process of ours, or a running one.
type daemon struct {
	Socket string
	Pid    int
	Nats   string // address of its NATS server; "": from its status
	tcp    string // host:port for clients elsewhere; "": not known
	key    string // file with the key that they need

	// Of our own:
	binary  string
	args    []string // further ones
	Dir     string
	memory  int64
	env     []string
	process *process.Process
}

// attach finds the running daemon behind a socket.
func attach(address string) (*daemon, error) {
	socket := strings.TrimPrefix(address, "unix://")
	if strings.Contains(socket, "://") {
		return nil, Invalid("socket", address, "is not a unix socket: the rows are about one node")
	}
	pid, err := peer(socket)
	if err != nil {
		return nil, bb.Wrap("bench", socket, err)
	}
	return &daemon{Socket: socket, Pid: pid}, nil
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

// FindDaemon returns the daemon's binary: of the same kind as this program.
func FindDaemon(path string) (string, error) {
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
		return "", bb.E(bb.NotFound, "bench", "bbd", "is neither beside bbbench nor on PATH").WithRemedy("give --bbd FILE")
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
		Socket: filepath.Join(dir, "bbd.sock"), binary: binary, Dir: dir, memory: memory, env: env,
		Nats: "nats://" + ports[0], tcp: ports[1], key: key,
	}, nil
}

// The ports of our servers lie below those that Linux assigns to connections (ip(7),
// ip_local_port_range: from 32768), so that a daemon that is started again finds its port free.
const (
	firstPort = 15_000
	endPort   = 32_768
	portTries = 100
)

// freePort returns an address on loopback on which no server listens now.
func freePort() (string, error) {
	for range portTries {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+mathrand.IntN(endPort-firstPort))
		l, err := net.Listen("tcp", address)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", err
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("none of %d ports of 127.0.0.1 is free", portTries)
}

// Ours reports whether the daemon is a process of this run.
func (d *daemon) Ours() bool { return d.binary != "" }

// launch starts the process without waiting until it serves.
func (d *daemon) launch() error {
	args := append([]string{
		"--dev", "--dir", d.Dir, "--memory", strconv.FormatInt(d.memory, 10),
		"--nats-embedded-listen", d.Nats[len("nats://"):], "--listen-tcp", d.tcp, "--key-file", d.key, "--log-level", "warn",
	}, d.args...)
	p, err := process.StartProcess(exec.Command(d.binary, args...), d.env)
	if err != nil {
		return bb.Wrap("bench", d.binary, err)
	}
	d.process, d.Pid = p, p.Pid()
	return nil
}

// Start starts the process and waits until it serves.
func (d *daemon) Start(ctx context.Context) error {
	if err := d.launch(); err != nil {
		return err
	}
	return d.waitServing(ctx)
}

// waitServing waits until the daemon accepts connections. It tries often, since row 14 measures
// this.
func (d *daemon) waitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, process.StartTime)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", d.Socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-d.process.Ended:
			return bb.E(bb.Unavailable, "bench", d.binary, "the daemon ended at its start: "+d.process.Said())
		case <-ctx.Done():
			return bb.E(bb.Unavailable, "bench", d.binary, "the daemon does not serve: "+d.process.Said())
		case <-time.After(500 * time.Microsecond):
		}
	}
}

// Dial opens a session over the socket.
func (d *daemon) Dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, client.Options{Address: "unix://" + d.Socket, Name: "bbbench", RetryFor: -1})
}

// DialFar opens a session over TCP.
func (d *daemon) DialFar(ctx context.Context) (*client.Client, error) {
	if d.tcp == "" {
		return nil, measure.Cannot("it needs a daemon of its own, which listens for clients elsewhere: run it without --socket")
	}
	return client.Dial(ctx, client.Options{Address: "tcp://" + d.tcp, KeyFile: d.key, Name: "bbbench", RetryFor: -1})
}

// Kill ends the process as a crash would, and waits until it is gone.
func (d *daemon) Kill() error { return d.process.End(unix.SIGKILL, process.StopTime) }

// remove stops a daemon of ours and deletes all that it kept. A running one stays.
func (d *daemon) remove() error {
	if !d.Ours() {
		return nil
	}
	var errs []error
	if d.process != nil {
		errs = append(errs, d.process.End(unix.SIGTERM, process.StopTime))
		if said, err := exec.Command(d.binary, "purge", "--discard", "--dir", d.Dir).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("bbd purge: %w: %s", err, bytes.TrimSpace(said)))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(d.Dir))...)
}
