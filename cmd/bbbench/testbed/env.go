// Package testbed has the common parts of all rows: a daemon of their own or a running one, a session,
// buffers, folders, an object store, and memory to compare with. It must never depend on a row.
package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"forebay/client"
	"forebay/client/admin"
	"forebay/internal/bb"
	"forebay/internal/hostlimit"
	"forebay/internal/measure"
)

// Place is where rows are measured.
type Place struct {
	Socket   string // of a running daemon; "": one of our own
	Bbd      string // the daemon's binary; "": beside this one, else on PATH
	Bbmount  string // the mount's binary; "": beside the daemon's, else on PATH
	Dir      string // folder on the file system to flush to; "": a temporary one
	Users    int    // at once, in rows 11 and 13; 0: as yourself
	S3       string // URL of a bucket; "": none
	S3Server string // binary of an S3 server to start; "": none
}

// Env is the common part of rows: the daemon, a session with it, memory and folders. It is used by
// one goroutine. Everything that a row starts ends with the row.
type Env struct {
	Opts  Place
	Sizes Sizes
	Log   func(format string, args ...any)

	State string // folder of our daemons' state
	Store string // folder on the file system to flush to

	Further []string // arguments of our daemons
	Daemon  *daemon  // ours, or the one at --socket; nil: not needed yet
	Client  *client.Client
	S3      *s3Server
	source  hostlimit.Memory
	Target  hostlimit.Memory
	last    int // number of the newest buffer

	Version string // of the daemon
	Regions string // memory that limits were measured with, for the report
}

// NewEnv makes the folders that rows share. The caller closes it.
func NewEnv(o Place, s Sizes, log func(string, ...any)) (*Env, error) {
	e := &Env{Opts: o, Sizes: s, Log: log}
	var err error
	if e.State, err = temporary(""); err != nil {
		return nil, err
	}
	if e.Store, err = temporary(o.Dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(e.State))
	}
	return e, nil
}

// Close ends everything that the rows share, in the opposite order, and removes it.
func (e *Env) Close() error {
	errs := []error{e.StopDaemon()}
	if e.S3 != nil {
		errs = append(errs, e.S3.stop())
	}
	errs = append(errs, e.source.Free(), e.Target.Free(), os.RemoveAll(e.Store), os.RemoveAll(e.State))
	return errors.Join(errs...)
}

// Connect returns a session with the daemon, which it starts if need be. Resources of the session
// under Dial's context end with the run, not with a row.
func (e *Env) Connect(ctx context.Context) (*client.Client, error) {
	if e.Client != nil {
		return e.Client, nil
	}
	if e.Daemon == nil {
		if err := e.startDaemon(ctx, e.Sizes.Memory()); err != nil {
			return nil, err
		}
	}
	c, err := e.Daemon.Dial(ctx)
	if err != nil {
		return nil, err
	}
	e.Client, e.Version = c, c.Server().Version
	return c, e.waitPopulated(ctx)
}

// Disconnect ends the session with the daemon.
func (e *Env) Disconnect() error {
	if e.Client == nil {
		return nil
	}
	err := e.Client.Close()
	e.Client = nil
	return err
}

// startDaemon starts a daemon of our own with so much memory, or finds the running one.
func (e *Env) startDaemon(ctx context.Context, memory int64) error {
	if e.Opts.Socket != "" {
		d, err := attach(e.Opts.Socket)
		e.Daemon = d
		return err
	}
	if have := hostlimit.AvailableMemory(); have < memory+memory/8 {
		return measure.Cannot("a daemon with %s of memory does not fit: %s are available", measure.Quantity(float64(memory), measure.Bytes), measure.Quantity(float64(have), measure.Bytes))
	}
	binary, err := FindDaemon(e.Opts.Bbd)
	if err != nil {
		return err
	}
	server, err := e.s3Started(ctx)
	if err != nil {
		return err
	}
	d, err := newDaemon(binary, e.State, memory, server.env())
	if err != nil {
		return err
	}
	d.args = e.Further
	e.Daemon = d
	return d.Start(ctx)
}

// StopDaemon ends our daemon and removes its files.
func (e *Env) StopDaemon() error {
	if e.Daemon == nil {
		return nil
	}
	err := errors.Join(e.Disconnect(), e.Daemon.remove())
	e.Daemon = nil
	return err
}

// WithMemory runs a row on a daemon of its own with so much memory.
func (e *Env) WithMemory(ctx context.Context, memory int64, row func() error) error {
	if e.Opts.Socket != "" {
		return row()
	}
	if err := e.StopDaemon(); err != nil {
		return err
	}
	if err := e.startDaemon(ctx, memory); err != nil {
		return errors.Join(err, e.StopDaemon())
	}
	return errors.Join(row(), e.StopDaemon())
}

// status is the part of the daemon's status that rows need.
type status struct {
	Sessions []struct {
		Path string `json:"path"`
	} `json:"sessions"`
	Memory struct {
		Capacity   int64 `json:"capacity"`
		Populating bool  `json:"populating"`
	} `json:"memory"`
	NATS struct {
		URL string `json:"url"`
	} `json:"nats"`
}

// Status requests the daemon's status.
func (e *Env) Status(ctx context.Context) (status, error) {
	var s status
	c, err := e.Connect(ctx)
	if err != nil {
		return s, err
	}
	text, err := admin.Status(ctx, c, "")
	if err != nil {
		return s, err
	}
	return s, bb.Wrap("status", "", json.Unmarshal(text, &s))
}

// waitPopulated waits until all memory has been touched, since rows measure a daemon that has been
// up for a while.
func (e *Env) waitPopulated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		s, err := e.Status(ctx)
		if err != nil || !s.Memory.Populating {
			return err
		}
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the daemon's memory is not populated: %w", err)
		}
	}
}

// Buffer creates a buffer for a row. done destroys it and its files. A backing of "" makes one that
// is never flushed.
func (e *Env) Buffer(ctx context.Context, spec admin.BufferSpec) (b *client.Buffer, done func() error, err error) {
	c, err := e.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.last++
	spec.Name = fmt.Sprintf("bench-%d-%d", os.Getpid(), e.last)
	if _, err := admin.CreateBuffer(ctx, c, spec); err != nil {
		return nil, nil, err
	}
	done = func() error {
		// Also when ctx has ended, since nothing may stay in a daemon that is not ours.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		c, err := e.Connect(ctx) // another session than before, after a restart
		if err != nil {
			return err
		}
		return admin.DiscardBuffer(ctx, c, spec.Name)
	}
	return c.Buffer(spec.Name), done, nil
}

// Folder makes a fresh folder on the file system to flush to.
func (e *Env) Folder(name string) (dir, url string, err error) {
	dir, err = os.MkdirTemp(e.Store, name)
	if err != nil {
		return "", "", bb.Wrap("bench", e.Store, err)
	}
	dir, err = filepath.Abs(dir)
	return dir, "file://" + dir, bb.Wrap("bench", dir, err)
}

// Fits refuses a row whose bytes the daemon at --socket has no memory for.
func (e *Env) Fits(ctx context.Context, bytes int64) error {
	s, err := e.Status(ctx)
	if err != nil {
		return err
	}
	if bytes > s.Memory.Capacity {
		return measure.Cannot("it needs %s of the daemon's memory, which is %s: give a smaller --size",
			measure.Quantity(float64(bytes), measure.Bytes), measure.Quantity(float64(s.Memory.Capacity), measure.Bytes))
	}
	return nil
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
