package bench

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
)

// env is what rows share: the daemon, a session with it, memory and folders. It is
// used by one goroutine; what a row starts ends with the row.
type env struct {
	opts  options
	sizes Sizes
	log   func(format string, args ...any)

	state string // folder of our daemons' state
	store string // folder on the file system to flush to

	further []string // arguments of our daemons
	daemon  *daemon  // ours, or the one at --socket; nil: not needed yet
	client  *client.Client
	s3      *s3Server
	source  memory
	target  memory
	last    int // number of the newest buffer

	version string // of the daemon
	regions string // what limits were measured with, for the report
}

func newEnv(o options, s Sizes, log func(string, ...any)) (*env, error) {
	e := &env{opts: o, sizes: s, log: log}
	var err error
	if e.state, err = temporary(""); err != nil {
		return nil, err
	}
	if e.store, err = temporary(o.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(e.state))
	}
	return e, nil
}

// close ends everything that the rows share, in the opposite order, and removes it.
func (e *env) close() error {
	errs := []error{e.stopDaemon()}
	if e.s3 != nil {
		errs = append(errs, e.s3.stop())
	}
	errs = append(errs, e.source.free(), e.target.free(), os.RemoveAll(e.store), os.RemoveAll(e.state))
	return errors.Join(errs...)
}

// connect returns a session with the daemon, which it starts if need be. What the
// session is given by Dial's context ends with the run, not with a row.
func (e *env) connect(ctx context.Context) (*client.Client, error) {
	if e.client != nil {
		return e.client, nil
	}
	if e.daemon == nil {
		if err := e.startDaemon(ctx, e.sizes.memory()); err != nil {
			return nil, err
		}
	}
	c, err := e.daemon.dial(ctx)
	if err != nil {
		return nil, err
	}
	e.client, e.version = c, c.Server().Version
	return c, e.waitPopulated(ctx)
}

func (e *env) disconnect() error {
	if e.client == nil {
		return nil
	}
	err := e.client.Close()
	e.client = nil
	return err
}

// startDaemon starts a daemon of our own with so much memory, or finds the running one.
func (e *env) startDaemon(ctx context.Context, memory int64) error {
	if e.opts.socket != "" {
		d, err := attach(e.opts.socket)
		e.daemon = d
		return err
	}
	if have := availableMemory(); have < memory+memory/8 {
		return cannot("a daemon with %s of memory does not fit: %s are available", quantity(float64(memory), Bytes), quantity(float64(have), Bytes))
	}
	binary, err := findDaemon(e.opts.bbd)
	if err != nil {
		return err
	}
	server, err := e.s3Started(ctx)
	if err != nil {
		return err
	}
	d, err := newDaemon(binary, e.state, memory, server.env())
	if err != nil {
		return err
	}
	d.args = e.further
	e.daemon = d
	return d.start(ctx)
}

// stopDaemon ends our daemon and removes what it kept.
func (e *env) stopDaemon() error {
	if e.daemon == nil {
		return nil
	}
	err := errors.Join(e.disconnect(), e.daemon.remove())
	e.daemon = nil
	return err
}

// withMemory runs a row on a daemon of its own with so much memory.
func (e *env) withMemory(ctx context.Context, memory int64, row func() error) error {
	if e.opts.socket != "" {
		return row()
	}
	if err := e.stopDaemon(); err != nil {
		return err
	}
	if err := e.startDaemon(ctx, memory); err != nil {
		return errors.Join(err, e.stopDaemon())
	}
	return errors.Join(row(), e.stopDaemon())
}

// status is what we need of the daemon's status.
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

func (e *env) status(ctx context.Context) (status, error) {
	var s status
	c, err := e.connect(ctx)
	if err != nil {
		return s, err
	}
	text, err := admin.Status(ctx, c, "")
	if err != nil {
		return s, err
	}
	return s, bb.Wrap("status", "", json.Unmarshal(text, &s))
}

// waitPopulated waits until all memory has been touched: what is measured is a daemon
// that has been up for a while.
func (e *env) waitPopulated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for {
		s, err := e.status(ctx)
		if err != nil || !s.Memory.Populating {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("the daemon's memory is not populated: %w", err)
		}
	}
}

// buffer creates a buffer for a row; done destroys it and what is in it. A backing of
// "" makes one that is never flushed.
func (e *env) buffer(ctx context.Context, spec admin.BufferSpec) (b *client.Buffer, done func() error, err error) {
	c, err := e.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.last++
	spec.Name = fmt.Sprintf("bench-%d-%d", os.Getpid(), e.last)
	if _, err := admin.CreateBuffer(ctx, c, spec); err != nil {
		return nil, nil, err
	}
	done = func() error {
		// Also when ctx has ended: nothing is to stay in a daemon that is not ours.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		c, err := e.connect(ctx) // another session than before, after a restart
		if err != nil {
			return err
		}
		return admin.DiscardBuffer(ctx, c, spec.Name)
	}
	return c.Buffer(spec.Name), done, nil
}

// folder makes a fresh folder on the file system to flush to.
func (e *env) folder(name string) (dir, url string, err error) {
	dir, err = os.MkdirTemp(e.store, name)
	if err != nil {
		return "", "", bb.Wrap("bench", e.store, err)
	}
	dir, err = filepath.Abs(dir)
	return dir, "file://" + dir, bb.Wrap("bench", dir, err)
}

// fits refuses a row whose bytes the daemon at --socket has no memory for.
func (e *env) fits(ctx context.Context, bytes int64) error {
	s, err := e.status(ctx)
	if err != nil {
		return err
	}
	if bytes > s.Memory.Capacity {
		return cannot("it needs %s of the daemon's memory, which is %s: give a smaller --size",
			quantity(float64(bytes), Bytes), quantity(float64(s.Memory.Capacity), Bytes))
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
