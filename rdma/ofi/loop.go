//go:build ofi && cgo

package ofi

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// loop is the one thread that takes completions and events from libfabric, for all connections of
// a fabric:
//
//	       ┌── something happened ──┐
//	       ▼                        │
//	┌──▶ polling ── nothing for Spin ──▶ sleeping on the wait objects and the wake-up
//	└─────────── woken: a completion, an event, a Post, a job ──────────┘
//
// It owns the closing of endpoints too, so that no completion of a closed one is met later.
type loop struct {
	dev      *device
	spin     time.Duration
	log      *slog.Logger
	sleeping atomic.Bool
	rounds   atomic.Uint64 // how often it looked
	broken   atomic.Bool   // a queue failed, and with it all connections
	ended    chan struct{}
	done     []completion
	touched  []*conn // connections with completions of this round; the loop's own
	retried  []*conn // room for those that are tried again; the loop's own

	mu struct {
		sync.Mutex
		conns    map[uint32]*conn
		fids     map[uintptr]*conn
		requests map[[tokenSize]byte]chan event // dialers that are expected; capacity 1
		jobs     []func()
		stalled  []*conn
		stopped  bool
	}
}

// stallPause is how long the loop sleeps at most while a connection waits for room in libfabric.
const stallPause = time.Millisecond

// eventRounds is how many busy rounds may pass before events are looked at.
const eventRounds = 64

func newLoop(d *device, opts Options) *loop {
	l := &loop{dev: d, spin: max(opts.Spin, 0), log: opts.Log, ended: make(chan struct{}), done: make([]completion, 64)}
	l.mu.conns = make(map[uint32]*conn)
	l.mu.fids = make(map[uintptr]*conn)
	l.mu.requests = make(map[[tokenSize]byte]chan event)
	return l
}

func (l *loop) run() {
	defer close(l.ended)
	last := time.Now() // that something happened
	for round := 0; l.work(); round++ {
		l.rounds.Add(1)
		n := l.take()
		if n == 0 || round%eventRounds == 0 {
			n += l.events()
		}
		stalled := l.retry()
		switch {
		case n > 0:
			last = time.Now()
			fallthrough
		case time.Since(last) < l.spin:
			// Who has waited for what has come goes on here and now, not when another
			// thread has woken.
			runtime.Gosched()
		default:
			l.sleep(stalled)
			last = time.Now()
		}
	}
}

// sleep waits, unless somebody came meanwhile.
func (l *loop) sleep(stalled bool) {
	limit := time.Duration(-1)
	if stalled {
		limit = stallPause
	}
	l.sleeping.Store(true)
	defer l.sleeping.Store(false)
	l.mu.Lock()
	busy := len(l.mu.jobs) > 0 || l.mu.stopped || !stalled && len(l.mu.stalled) > 0
	l.mu.Unlock()
	if busy {
		return
	}
	if err := l.dev.sleep(limit); err != nil {
		l.log.Error("waiting for the fabric failed", "err", err)
		time.Sleep(stallPause)
	}
}

// wake makes the loop look again. It is cheap while the loop is busy.
func (l *loop) wake() {
	if l.sleeping.Load() {
		l.dev.wake()
	}
}

// work runs the jobs. It returns false when the loop is to end.
func (l *loop) work() bool {
	l.mu.Lock()
	jobs, stopped := l.mu.jobs, l.mu.stopped
	l.mu.jobs = nil
	l.mu.Unlock()
	for _, job := range jobs {
		job()
	}
	return !stopped
}

// do runs a job in the loop and waits for it. The loop must not have been stopped.
func (l *loop) do(job func()) {
	finished := make(chan struct{})
	l.mu.Lock()
	l.mu.jobs = append(l.mu.jobs, func() { job(); close(finished) })
	l.mu.Unlock()
	l.wake()
	<-finished
}

// stop ends the loop and waits for it.
func (l *loop) stop() {
	l.mu.Lock()
	l.mu.stopped = true
	l.mu.Unlock()
	l.wake()
	<-l.ended
}

// take handles completions, and returns how many.
func (l *loop) take() int {
	n, err := l.dev.read(l.done)
	if err != nil {
		l.log.Error("the fabric's completion queue failed, all connections end", "err", err)
		l.broken.Store(true)
		l.failAll(err)
		time.Sleep(stallPause)
		return 0
	}
	for i := range n {
		d := &l.done[i]
		c := l.conn(uint32(d.tag >> 32))
		if c == nil {
			continue // of a connection that has ended
		}
		c.complete(int(uint32(d.tag)), d)
		l.touched = append(l.touched, c)
	}
	for i, c := range l.touched {
		c.advance()
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
	return n
}

func (l *loop) failAll(err error) {
	l.mu.Lock()
	all := make([]*conn, 0, len(l.mu.conns))
	for _, c := range l.mu.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.fail(c.gone(err))
	}
}

// stall has a connection tried again, which waits for room in libfabric or in the stages.
func (l *loop) stall(c *conn) {
	l.mu.Lock()
	l.mu.stalled = append(l.mu.stalled, c)
	l.mu.Unlock()
	l.wake()
}

// retry lets the stalled connections go on, and reports whether one still cannot.
func (l *loop) retry() bool {
	l.mu.Lock()
	stalled := l.mu.stalled
	l.mu.stalled, l.retried = l.retried[:0], stalled
	l.mu.Unlock()
	for i, c := range stalled {
		c.advance()
		stalled[i] = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.stalled) > 0
}

func (l *loop) conn(id uint32) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.conns[id]
}

// route sends what happens to an endpoint to its connection.
func (l *loop) route(c *conn, e *endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.conns[c.id] = c
	if l.dev.message {
		l.mu.fids[e.fid()] = c
	}
}

// detach closes a connection's endpoint. When it returns, nothing touches the connection's memory,
// and no completion of it will be met.
func (l *loop) detach(c *conn) {
	l.do(func() {
		c.mu.Lock()
		e := c.mu.endpoint
		c.mu.endpoint = nil
		c.mu.Unlock()
		if e == nil {
			return
		}
		if l.dev.message {
			l.mu.Lock()
			delete(l.mu.fids, e.fid())
			l.mu.Unlock()
		}
		if err := e.close(); err != nil {
			l.log.Warn("closing an endpoint failed", "peer", c.peer, "err", err)
		}
		// What it completed before stands in the queue, among others': no more than fit there.
		for left := l.dev.room(); left > 0; {
			n := l.take()
			if n == 0 {
				break
			}
			left -= n
		}
		l.mu.Lock()
		delete(l.mu.conns, c.id)
		l.mu.Unlock()
	})
}

// events handles events of connection management, and returns how many.
func (l *loop) events() int {
	for n := 0; ; n++ {
		e, ok, err := l.dev.nextEvent()
		if err != nil {
			if !l.broken.Swap(true) {
				l.log.Error("the fabric's event queue failed: no connections can be made any more", "err", err)
			}
			time.Sleep(stallPause) // its wait object may say for good that there is something
			return n
		}
		if !ok {
			return n
		}
		l.handle(e)
	}
}

func (l *loop) handle(e event) {
	if e.kind == eventRequest {
		l.request(e)
		return
	}
	l.mu.Lock()
	c := l.mu.fids[e.fid]
	l.mu.Unlock()
	if c == nil {
		return
	}
	switch e.kind {
	case eventConnected:
		c.joined()
	case eventShutdown:
		c.fail(c.gone(errShutdown))
	case eventFailed:
		c.fail(c.gone(e.err))
	}
}

// expect announces a dialer that is going to quote the token.
func (l *loop) expect(token [tokenSize]byte) <-chan event {
	ch := make(chan event, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.requests[token] = ch
	return ch
}

// forget takes an expectation back, and returns the request if it came meanwhile.
func (l *loop) forget(token [tokenSize]byte, ch <-chan event) {
	l.mu.Lock()
	delete(l.mu.requests, token)
	l.mu.Unlock()
	select {
	case e := <-ch:
		l.dev.reject(e.info)
	default:
	}
}

// request gives a request to the handshake that expects it.
func (l *loop) request(e event) {
	if l.announced(e) {
		return
	}
	l.log.Warn("a connection on the fabric that nobody announced, refused")
	l.dev.reject(e.info)
}

// announced hands a request over, if it was expected.
func (l *loop) announced(e event) bool {
	if len(e.data) < tokenSize { // verbs fills up what room there is for private data
		return false
	}
	token := [tokenSize]byte(e.data[:tokenSize])
	l.mu.Lock()
	defer l.mu.Unlock()
	ch := l.mu.requests[token]
	if ch == nil {
		return false
	}
	delete(l.mu.requests, token)
	ch <- e // has room
	return true
}
