package asuser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	"forebay/flusher/backing/asuser/confine"
	"forebay/flusher/backing/asuser/former"
	"forebay/flusher/backing/asuser/protocol"
	"forebay/internal/bb"
	"forebay/internal/nss"
)

// Options configures Workers.
type Options struct {
	// Command starts a store worker, without its root. nil means this binary, with the argument Command.
	Command []string
	// Env is added to the environment of workers, which is else empty but for PATH.
	Env []string
	// Idle is how long a worker without work stays. 0 means a minute.
	Idle time.Duration
	// Grace is the time that a call without a waiter may take before its worker is killed. 0 means
	// 30 s.
	Grace time.Duration
	// Dir is a directory of the daemon's, in which each worker holds a file until it ends. None is
	// started for a user and root while one of an earlier run of the daemon, which the kernel has
	// killed with it, has not ended (see former). "": no wait.
	Dir string
	// Logger gets the lines of workers' standard error. If it is nil, they are dropped.
	Logger *slog.Logger
}

// DirName is the name that Options.Dir has in a daemon's state folder.
const DirName = "store-workers.d"

// Workers are the store workers of a daemon: one for each user and root that has work. Its
// methods may be called concurrently.
type Workers struct {
	o       Options
	starter *starter
	former  *former.Workers
	closing chan struct{}  // closed by Close
	wg      sync.WaitGroup // of processes

	mu     sync.Mutex
	pools  map[key]*pool
	closed bool
	counts Counts
	lost   map[key]struct{} // with a worker that ended and should not have
}

// key is the user and the root of a worker.
type key struct {
	uid, gid uint32
	dir      string
}

// maxStuck bounds the processes of one user and root that were ordered to end and have not: the
// hanging one and its replacement.
const maxStuck = 2

// pool is the worker of a user and root, and those before it that have not ended.
type pool struct {
	w   *Workers
	key key

	mu        sync.Mutex
	current   *worker
	starting  *start                // nil: none is being started
	left      map[*worker]time.Time // draining, and not gone: since when
	timer     *time.Timer           // looks for a worker that is idle; nil: there is none
	idleSince time.Time             // zero: the worker is in use
	removed   bool                  // of Workers
}

// start is the start of a process.
type start struct {
	done chan struct{} // closed when err is known
	err  error
}

// New returns workers, none of which is started.
func New(o Options) (*Workers, error) {
	o.Idle, o.Grace = cmp.Or(o.Idle, time.Minute), cmp.Or(o.Grace, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Workers{o: o, closing: make(chan struct{}), pools: make(map[key]*pool), lost: make(map[key]struct{})}
	var err error
	if w.former, err = former.Find(o.Dir); err != nil {
		return nil, bb.Wrap("start", o.Dir, err)
	}
	w.starter = newStarter()
	w.sayUnconfined()
	return w, nil
}

// sayUnconfined logs the confinements that this kernel lacks.
func (w *Workers) sayUnconfined() {
	if err := confine.HasLandlock(); err != nil {
		w.o.Logger.Warn("store workers are not confined to the roots of their stores: their users' rights alone hold", "err", err)
	}
	if err := confine.HasFilter(); err != nil {
		w.o.Logger.Warn("the system calls of store workers are not filtered", "err", err)
	}
}

// closeWithin is how long Close waits for processes that were killed. A process that hangs in a
// file system ends when that answers, at the latest.
const closeWithin = 2 * time.Second

// Close kills all workers. Calls in progress fail.
func (w *Workers) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	close(w.closing)
	w.closed = true
	pools := w.pools
	w.pools = make(map[key]*pool)
	w.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
	w.former.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.wg.Wait()
		w.starter.close()
	}()
	select {
	case <-done:
		return nil
	case <-time.After(closeWithin):
		return bb.E(bb.Busy, "stop", "", "store workers hang in a file system; they end when it answers")
	}
}

// get returns a worker, starting it where there is none. The caller releases it.
func (w *Workers) get(ctx context.Context, k key) (*worker, error) {
	for {
		p, err := w.pool(k)
		if err != nil {
			return nil, err
		}
		one, starting, err := p.get()
		if one != nil || err != nil {
			return one, err
		}
		if starting == nil {
			continue // the pool was removed
		}
		select {
		case <-starting.done:
			if starting.err != nil {
				return nil, starting.err
			}
		case <-ctx.Done():
			return nil, bb.Wrap("open backing", k.dir, ctx.Err())
		}
	}
}

func (w *Workers) pool(k key) (*pool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, bb.E(bb.Unavailable, "open backing", k.dir, "the daemon stops")
	}
	p := w.pools[k]
	if p == nil {
		p = &pool{w: w, key: k, left: make(map[*worker]time.Time)}
		w.pools[k] = p
	}
	return p, nil
}

// get returns the worker that there is, or the start to wait for.
func (p *pool) get() (*worker, *start, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.removed:
		return nil, nil, nil
	case p.current != nil:
		p.idleSince = time.Time{}
		p.current.use()
		return p.current, nil, nil
	case p.starting == nil && len(p.left) >= maxStuck:
		return nil, nil, p.hangs()
	case p.starting == nil:
		p.starting = &start{done: make(chan struct{})}
		p.w.wg.Go(p.begin)
	}
	return nil, p.starting, nil
}

func (p *pool) hangs() error {
	return bb.E(bb.Unavailable, "open backing", p.key.dir, fmt.Sprintf("the store does not answer: %d store workers of uid %d hang in it", len(p.left), p.key.uid)).
		WithRemedy("check the file system or the store; work continues when it answers")
}

// begin starts the worker that others wait for.
func (p *pool) begin() {
	p.w.makeRoom(p.key.uid)
	var one *worker
	var groups []uint32
	err := p.w.former.Wait(p.key.uid, p.key.dir, p.w.closing)
	if err == nil {
		groups, err = nss.Groups(context.Background(), p.key.uid, p.key.gid)
	}
	if err == nil {
		one, err = p.start(groups)
	}
	if known := (*bb.Error)(nil); err != nil && !errors.As(err, &known) {
		err = &bb.Error{Kind: bb.Unavailable, Op: "open backing", Path: p.key.dir, Err: fmt.Errorf("starting a store worker for uid %d: %w", p.key.uid, err)}
	}
	p.mu.Lock()
	if err == nil && one.draining {
		err = one.goneError(&protocol.Message{Op: protocol.OpOpen, Name: p.key.dir})
	}
	if err == nil {
		p.current = one
	}
	p.starting.err, p.idleSince = err, time.Now()
	close(p.starting.done)
	p.starting = nil
	p.mu.Unlock()
	if err == nil {
		p.w.begun(p.key)
		p.look()
	}
	p.w.removeIdle(p)
}

// maxIdle bounds the workers of a user that have nothing to do when another one is started, since
// each folder that is staged in is a root of its own.
const maxIdle = 4

// makeRoom ends the worker of a user that has been idle longest, if there are many.
func (w *Workers) makeRoom(uid uint32) {
	w.mu.Lock()
	pools := slices.Collect(maps.Values(w.pools))
	w.mu.Unlock()
	n, oldest, since := 0, (*pool)(nil), time.Time{}
	for _, p := range pools {
		if p.key.uid != uid {
			continue
		}
		p.mu.Lock()
		if p.current != nil && !p.idleSince.IsZero() {
			if n++; oldest == nil || p.idleSince.Before(since) {
				oldest, since = p, p.idleSince
			}
		}
		p.mu.Unlock()
	}
	if n >= maxIdle {
		oldest.endIdle(0)
	}
}

// idle records that no call uses a worker any more.
func (p *pool) idle(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == w && !w.used() {
		p.idleSince = time.Now()
	}
}

// look ends the worker when it has been idle for long, and looks again otherwise.
func (p *pool) look() {
	left := p.endIdle(p.w.o.Idle)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		p.timer = time.AfterFunc(left, p.look)
	}
}

// endIdle ends the worker if it has been idle for so long, and returns how long that takes else.
func (p *pool) endIdle(long time.Duration) (left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.current
	if w == nil || p.idleSince.IsZero() || w.used() {
		return p.w.o.Idle
	}
	if left = long - time.Since(p.idleSince); left > 0 {
		return left
	}
	p.drainLocked(w)
	w.conn.Close() // which ends it
	return p.w.o.Idle
}

// drain keeps new calls from a worker. It reports whether it is the first to do so.
func (p *pool) drain(w *worker) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = !w.draining
	p.drainLocked(w)
	return first
}

func (p *pool) drainLocked(w *worker) {
	if w.draining {
		return
	}
	w.draining = true
	p.left[w] = time.Now()
	if p.current == w { // else it is about to be, and will not
		p.current = nil
	}
}

// reaped is called when the process of a worker is gone.
func (p *pool) reaped(w *worker, err error) {
	p.mu.Lock()
	delete(p.left, w)
	p.mu.Unlock()
	w.end()
	p.w.former.Release(w.held)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		p.w.o.Logger.Debug("a store worker ended", "uid", p.key.uid, "root", p.key.dir, "how", exit.String())
	}
	p.w.removeIdle(p)
}

// removeIdle removes a pool without processes.
func (w *Workers) removeIdle(p *pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil && p.starting == nil && len(p.left) == 0 && !p.removed {
		p.removed = true
		if w.pools[p.key] == p {
			delete(w.pools, p.key)
		}
	}
}

func (p *pool) close() {
	p.mu.Lock()
	starting := p.starting
	p.mu.Unlock()
	if starting != nil {
		<-starting.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	if w := p.current; w != nil {
		p.drainLocked(w)
		w.cmd.Process.Kill()
		w.conn.Close()
	}
}

// starter starts processes on a thread that lives as long as itself. The kernel ends a process with
// PR_SET_PDEATHSIG when the thread that has started it ends.
type starter struct {
	jobs chan func()
	done chan struct{}
}

func newStarter() *starter {
	s := &starter{jobs: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

func (s *starter) start(cmd *exec.Cmd) error {
	err := make(chan error, 1)
	s.jobs <- func() { err <- cmd.Start() }
	return <-err
}

func (s *starter) close() {
	close(s.jobs)
	<-s.done
}
