package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"forebay/internal/bb"
)

// Kinds of workers. Rows that need a second process start this program again as one.
const (
	WorkEcho    = "echo"     // answers messages on descriptor 3 with blocking system calls
	WorkEchoNet = "echo-net" // the same through package net, as a Go daemon would
	WorkWrite   = "write"    // writes a file for each order
	WorkStream  = "stream"   // sends or receives over plain TCP for each order
	WorkTarget  = "target"   // has memory that is reached one-sided
	WorkRaw     = "raw"      // the same over libfabric alone
	WorkFiles   = "files"    // creates files, or stats them, for each order
	WorkUser    = "user"     // has a buffer, and flushes or stages in for each order
)

// Order is one piece of work for a worker, which replies with an outcome.
type Order struct {
	Path string `json:"path,omitempty"` // of the file to write; of a user, the URL of a store
	Send bool   `json:"send,omitempty"` // rather than receive
	Do   string `json:"do,omitempty"`   // of a user, and of a worker on files
}

// Outcome is a worker's answer to an order.
type Outcome struct {
	Error   string `json:"error,omitempty"`
	Address string `json:"address,omitempty"` // of a worker that others connect to, once
	Key     []byte `json:"key,omitempty"`     // to the memory of such a worker
}

// SelfCommand starts this program again as a worker.
func SelfCommand(kind string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, bb.Wrap("bench", "worker", err)
	}
	return exec.Command(self, append([]string{"worker", kind}, args...)...), nil
}

// Obey reports that the worker is ready, and carries out orders until there are no more.
func Obey(in io.Reader, out io.Writer, carryOut func(Order) error) error {
	orders, answers := json.NewDecoder(in), json.NewEncoder(out)
	if err := answers.Encode(Outcome{}); err != nil {
		return err
	}
	for {
		var o Order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return bb.Wrap("bench", "worker", err)
		}
		var done Outcome
		if err := carryOut(o); err != nil {
			done.Error = err.Error()
		}
		if err := answers.Encode(done); err != nil {
			return err
		}
	}
}

// Crew is several workers that take orders.
type Crew struct {
	processes []*Process
	orders    []*json.Encoder
	answers   []*json.Decoder
	pipes     []io.Closer
}

// StartCrew starts n workers of a kind.
func StartCrew(n int, kind string, args ...string) (*Crew, error) {
	c := &Crew{}
	for range n {
		cmd, err := SelfCommand(kind, args...)
		if err == nil {
			err = c.Add(cmd)
		}
		if err != nil {
			return nil, errors.Join(err, c.Dismiss())
		}
	}
	return c, nil
}

// Add starts a further worker.
func (c *Crew) Add(cmd *exec.Cmd) error {
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = write
	p, err := StartProcess(cmd, nil)
	if err = errors.Join(err, write.Close()); err != nil {
		return errors.Join(err, read.Close())
	}
	c.processes, c.pipes = append(c.processes, p), append(c.pipes, in, read)
	c.orders, c.answers = append(c.orders, json.NewEncoder(in)), append(c.answers, json.NewDecoder(read))
	return nil
}

// Work sends an order to every worker and waits until all have carried theirs out.
func (c *Crew) Work(orders []Order) error {
	for i, o := range orders {
		if err := c.orders[i].Encode(o); err != nil {
			return fmt.Errorf("worker: %w: %s", err, c.processes[i].Said())
		}
	}
	return c.Await()
}

// Await waits for an outcome of every worker.
func (c *Crew) Await() error {
	var errs []error
	for i, answers := range c.answers {
		var o Outcome
		if err := answers.Decode(&o); err != nil {
			errs = append(errs, fmt.Errorf("worker: %w: %s", err, c.processes[i].Said()))
		} else if o.Error != "" {
			errs = append(errs, errors.New(o.Error))
		}
	}
	return errors.Join(errs...)
}

// Dismiss ends the workers and waits for them.
func (c *Crew) Dismiss() error {
	var errs []error
	for _, p := range c.pipes {
		_ = p.Close() // the end of its orders ends a worker
	}
	for _, p := range c.processes {
		errs = append(errs, p.End(unix.SIGTERM, StopTime))
	}
	return errors.Join(errs...)
}

// Ready returns the first answer of the only worker: where it is.
func (c *Crew) Ready() (o Outcome, err error) {
	if err := c.answers[0].Decode(&o); err != nil {
		return Outcome{}, fmt.Errorf("worker: %w: %s", err, c.processes[0].Said())
	}
	return o, nil
}

// Begin sends an order to the first worker without waiting for the outcome.
func (c *Crew) Begin(o Order) error { return c.orders[0].Encode(o) }

// Pid returns the process of the first worker.
func (c *Crew) Pid() int { return c.processes[0].Pid() }
