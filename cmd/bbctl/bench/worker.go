package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"forebay/client"
	"forebay/internal/bb"
)

// Rows that need a second process start this program again as a worker.
const (
	workEcho    = "echo"     // answers messages on descriptor 3 with blocking system calls
	workEchoNet = "echo-net" // the same through package net, as a Go daemon would
	workWrite   = "write"    // writes a file for each order
	workStream  = "stream"   // sends or receives over plain TCP for each order
	workTarget  = "target"   // has memory that is reached one-sided
	workRaw     = "raw"      // the same over libfabric alone
	workUser    = "user"     // has a buffer, and flushes or stages in for each order
)

// order tells a worker what to do; it answers each with an outcome.
type order struct {
	Path string `json:"path,omitempty"` // of the file to write; of a user, the URL of a store
	Send bool   `json:"send,omitempty"` // rather than receive
	Do   string `json:"do,omitempty"`   // of a user
}

type outcome struct {
	Error   string `json:"error,omitempty"`
	Address string `json:"address,omitempty"` // of a worker that others connect to, once
	Key     []byte `json:"key,omitempty"`     // to the memory of such a worker
}

// writer is how a writing worker is started.
type writer struct {
	Address string
	Buffer  string
	Bytes   int64 // of each file
	Source  int64 // bytes of memory that it is written from, over and over
}

func newWorkerCommand() *cobra.Command {
	var w writer
	var streams, files int
	var provider string
	cmd := &cobra.Command{
		Use: "worker KIND", Hidden: true, Args: cobra.ExactArgs(1), SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case workEcho:
				return echo(os.NewFile(3, "socket"))
			case workEchoNet:
				return echoNet(os.NewFile(3, "socket"))
			case workWrite:
				return w.serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
			case workStream:
				return streamer{w.Address, streams, w.Bytes}.serve(cmd.InOrStdin(), cmd.OutOrStdout())
			case workTarget:
				return serveTarget(cmd.Context(), provider, w.Bytes, cmd.OutOrStdout())
			case workRaw:
				return serveRaw(w.Bytes, cmd.OutOrStdout())
			case workUser:
				return w.serveUser(cmd.Context(), files, cmd.InOrStdin(), cmd.OutOrStdout())
			default:
				return invalid("worker", args[0], "there is no such kind")
			}
		},
	}
	cmd.Flags().StringVar(&w.Address, "address", "", "of the daemon, or of the other end of streams")
	cmd.Flags().IntVar(&streams, "streams", 1, "TCP connections")
	cmd.Flags().IntVar(&files, "files", 1, "of a user")
	cmd.Flags().StringVar(&provider, "provider", "", "of one-sided operations")
	cmd.Flags().StringVar(&w.Buffer, "buffer", "", "to write to")
	cmd.Flags().Int64Var(&w.Bytes, "bytes", 0, "of each file, or each time")
	cmd.Flags().Int64Var(&w.Source, "source", 0, "bytes of memory to write from")
	return cmd
}

// selfCommand starts this program again as a worker.
func selfCommand(kind string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, bb.Wrap("bench", "worker", err)
	}
	return exec.Command(self, append([]string{"bench", "worker", kind}, args...)...), nil
}

// serve writes a file for each order until there are no more, after saying once that
// it is ready.
func (w writer) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	c, err := client.Dial(ctx, client.Options{Address: w.Address, Name: "bbctl bench worker", RetryFor: -1})
	if err != nil {
		return err
	}
	defer c.Close()
	source, err := anonymous(w.Source)
	if err != nil {
		return err
	}
	fill(source.bytes)
	err = obey(in, out, func(o order) error {
		return writeFile(ctx, c.Buffer(w.Buffer), o.Path, source.bytes, w.Bytes)
	})
	return errors.Join(err, source.free())
}

// obey says that the worker is ready, and carries out orders until there are no more.
func obey(in io.Reader, out io.Writer, carryOut func(order) error) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	if err := answers.Encode(outcome{}); err != nil {
		return err
	}
	for {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return bb.Wrap("bench", "worker", err)
		}
		var done outcome
		if err := carryOut(o); err != nil {
			done.Error = err.Error()
		}
		if err := answers.Encode(done); err != nil {
			return err
		}
	}
}

// writeFile writes a file of n bytes in steps from src, which it begins again where it ends.
func writeFile(ctx context.Context, b *client.Buffer, path string, src []byte, n int64) error {
	f, err := b.Create(ctx, path)
	if err != nil {
		return err
	}
	defer f.Abort()
	for at := int64(0); at < n; {
		from := at % int64(len(src))
		m, err := f.Write(src[from : from+min(step, n-at, int64(len(src))-from)])
		if err != nil {
			return err
		}
		at += int64(m)
	}
	return f.Close()
}

// crew is several workers that take orders.
type crew struct {
	processes []*process
	orders    []*json.Encoder
	answers   []*json.Decoder
	pipes     []io.Closer
}

func startCrew(n int, kind string, args ...string) (*crew, error) {
	c := &crew{}
	for range n {
		cmd, err := selfCommand(kind, args...)
		if err == nil {
			err = c.add(cmd)
		}
		if err != nil {
			return nil, errors.Join(err, c.dismiss())
		}
	}
	return c, nil
}

func (w writer) args() []string {
	return []string{
		"--address", w.Address, "--buffer", w.Buffer, "--bytes", fmt.Sprint(w.Bytes), "--source", fmt.Sprint(w.Source),
	}
}

func (c *crew) add(cmd *exec.Cmd) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = write
	p, err := startProcess(cmd, nil)
	if err = errors.Join(err, write.Close()); err != nil {
		return errors.Join(err, read.Close())
	}
	c.processes, c.pipes = append(c.processes, p), append(c.pipes, in, read)
	c.orders, c.answers = append(c.orders, json.NewEncoder(in)), append(c.answers, json.NewDecoder(read))
	return nil
}

// work gives every worker an order and waits until all have done theirs.
func (c *crew) work(orders []order) error {
	for i, o := range orders {
		if err := c.orders[i].Encode(o); err != nil {
			return fmt.Errorf("worker: %w: %s", err, c.processes[i].said())
		}
	}
	return c.await()
}

// await waits for an outcome of every worker.
func (c *crew) await() error {
	var errs []error
	for i, answers := range c.answers {
		var o outcome
		if err := answers.Decode(&o); err != nil {
			errs = append(errs, fmt.Errorf("worker: %w: %s", err, c.processes[i].said()))
		} else if o.Error != "" {
			errs = append(errs, errors.New(o.Error))
		}
	}
	return errors.Join(errs...)
}

// dismiss ends the workers and waits for them.
func (c *crew) dismiss() error {
	var errs []error
	for _, p := range c.pipes {
		_ = p.Close() // the end of its orders ends a worker
	}
	for _, p := range c.processes {
		errs = append(errs, p.end(unix.SIGTERM, stopTime))
	}
	return errors.Join(errs...)
}

// messageBytes is about the size of a small request of the control protocol.
const messageBytes = 128

// echo answers each message on a blocking socket until it is closed.
func echo(f *os.File) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fd := int(f.Fd())
	message := make([]byte, messageBytes)
	for {
		if err := receive(fd, message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := unix.Write(fd, message); err != nil {
			return err
		}
	}
}

// receive fills p from a blocking socket.
func receive(fd int, p []byte) error {
	for len(p) > 0 {
		n, err := unix.Read(fd, p)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			p = p[n:]
		}
	}
	return nil
}

func echoNet(f *os.File) error {
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer conn.Close()
	message := make([]byte, messageBytes)
	for {
		if _, err := io.ReadFull(conn, message); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if _, err := conn.Write(message); err != nil {
			return err
		}
	}
}
