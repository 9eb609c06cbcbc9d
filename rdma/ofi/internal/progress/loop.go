//go:build ofi && cgo

package progress

import (
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"forebay/rdma/ofi/fi"
)

// Conn is the part of a connection that the loop uses. Its methods run in the loop's thread. They must
// not wait for the peer, nor for the loop.
type Conn interface {
	// Complete takes the completion of one operation.
	Complete(d *fi.Completion)
	// Advance posts waiting operations, since operations have completed, or there may be room again.
	Advance()
	// Connected reports that the fabric has connected the endpoint.
	Connected()
	// Fail ends the connection.
	Fail(cause error)
}

// Token is the number that a dialer quotes when it connects on the fabric.
type Token [16]byte

var errShutdown = errors.New("the fabric's connection was shut down")

// Loop is the one thread that takes completions and events from libfabric, for all connections of
// a fabric:
//
//	       ┌── something happened ──┐
//	       ▼                        │
//	┌──▶ polling ── nothing for Spin ──▶ sleeping on the wait objects and the wake-up
//	└─────────── woken: a completion, an event, a Post, a job ──────────┘
//
// It owns the closing of endpoints too, so that no completion of a closed one is met later.
type Loop struct {
	dev      *fi.Device
	spin     time.Duration
	log      *slog.Logger
	sleeping atomic.Bool
	rounds   atomic.Uint64 // how often it looked
	broken   atomic.Bool   // a queue failed, and with it all connections
	ended    chan struct{}
	done     []fi.Completion
	touched  []Conn // with completions of this round; the loop's own
	retried  []Conn // room for the connections to retry; the loop's own

	mu struct {
		sync.Mutex
		conns    map[uint32]Conn
		ids      map[uintptr]Conn        // by endpoint
		requests map[Token]chan fi.Event // dialers that are expected; capacity 1
		jobs     []func()
		stalled  []Conn
		stopped  bool
	}
}

// stallPause is how long the loop sleeps at most while a connection waits for room in libfabric.
const stallPause = time.Millisecond

// eventRounds is how many busy rounds may pass before events are looked at.
const eventRounds = 64

// New returns a loop over a device, which polls for so long after the last thing that happened before it
// sleeps. Start starts it.
func New(d *fi.Device, spin time.Duration, log *slog.Logger) *Loop {
	l := &Loop{dev: d, spin: max(spin, 0), log: log, ended: make(chan struct{}), done: make([]fi.Completion, 64)}
	l.mu.conns = make(map[uint32]Conn)
	l.mu.ids = make(map[uintptr]Conn)
	l.mu.requests = make(map[Token]chan fi.Event)
	return l
}

// Start starts the thread.
func (l *Loop) Start() { go l.run() }

// Broken reports whether one of libfabric's queues has failed. No connection can be made any more.
func (l *Loop) Broken() bool { return l.broken.Load() }

// Idle reports whether the loop sleeps, and how often it has looked for something to do.
func (l *Loop) Idle() (sleeps bool, rounds uint64) { return l.sleeping.Load(), l.rounds.Load() }

func (l *Loop) run() {
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
			// The waiter for a completion continues here and now, not when another thread has woken.
			runtime.Gosched()
		default:
			l.sleep(stalled)
			last = time.Now()
		}
	}
}

// sleep waits, unless there is something to do already.
func (l *Loop) sleep(stalled bool) {
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
	if err := l.dev.Sleep(limit); err != nil {
		l.log.Error("waiting for the fabric failed", "err", err)
		time.Sleep(stallPause)
	}
}

// Wake makes the loop check again. It is cheap while the loop is busy.
func (l *Loop) Wake() {
	if l.sleeping.Load() {
		l.dev.Wake()
	}
}

// work runs the jobs. It returns false when the loop is to end.
func (l *Loop) work() bool {
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
func (l *Loop) do(job func()) {
	finished := make(chan struct{})
	l.mu.Lock()
	l.mu.jobs = append(l.mu.jobs, func() { job(); close(finished) })
	l.mu.Unlock()
	l.Wake()
	<-finished
}

// Stop ends the loop and waits for it. Every connection is detached.
func (l *Loop) Stop() {
	l.mu.Lock()
	l.mu.stopped = true
	l.mu.Unlock()
	l.Wake()
	<-l.ended
}

// take handles completions, and returns how many.
func (l *Loop) take() int {
	n, err := l.dev.Read(l.done)
	if err != nil {
		l.log.Error("the fabric's completion queue failed, all connections end", "err", err)
		l.broken.Store(true)
		l.failAll(err)
		time.Sleep(stallPause)
		return 0
	}
	for i := range n {
		d := &l.done[i]
		c := l.conn(d.Conn())
		if c == nil {
			continue // of a connection that has ended
		}
		c.Complete(d)
		l.touched = append(l.touched, c)
	}
	for i, c := range l.touched {
		c.Advance()
		l.touched[i] = nil
	}
	l.touched = l.touched[:0]
	return n
}

func (l *Loop) failAll(err error) {
	l.mu.Lock()
	all := make([]Conn, 0, len(l.mu.conns))
	for _, c := range l.mu.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		c.Fail(err)
	}
}

// Stall makes the loop advance a connection that waits for room in libfabric or in the stages.
func (l *Loop) Stall(c Conn) {
	l.mu.Lock()
	l.mu.stalled = append(l.mu.stalled, c)
	l.mu.Unlock()
	l.Wake()
}

// retry advances the stalled connections, and reports whether one is still stalled.
func (l *Loop) retry() bool {
	l.mu.Lock()
	stalled := l.mu.stalled
	l.mu.stalled, l.retried = l.retried[:0], stalled
	l.mu.Unlock()
	for i, c := range stalled {
		c.Advance()
		stalled[i] = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.stalled) > 0
}

func (l *Loop) conn(id uint32) Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.conns[id]
}

// Route sends events of an endpoint to its connection, whose contexts have the number id.
func (l *Loop) Route(id uint32, e *fi.Endpoint, c Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.conns[id] = c
	if l.dev.Message {
		l.mu.ids[e.ID()] = c
	}
}

// Detach closes a connection's endpoint, which take returns in the loop's thread, or nil for none. When
// it returns, nothing touches the connection's memory, and no completion of it will be met.
func (l *Loop) Detach(id uint32, take func() *fi.Endpoint) (err error) {
	l.do(func() {
		e := take()
		if e == nil {
			return
		}
		if l.dev.Message {
			l.mu.Lock()
			delete(l.mu.ids, e.ID())
			l.mu.Unlock()
		}
		err = e.Close()
		// Its earlier completions are in the queue, among others'. No more of them are there than
		// fit.
		for left := l.dev.Room; left > 0; {
			n := l.take()
			if n == 0 {
				break
			}
			left -= n
		}
		l.mu.Lock()
		delete(l.mu.conns, id)
		l.mu.Unlock()
	})
	return err
}

// events handles events of connection management, and returns how many.
func (l *Loop) events() int {
	for n := 0; ; n++ {
		e, ok, err := l.dev.NextEvent()
		if err != nil {
			if !l.broken.Swap(true) {
				l.log.Error("the fabric's event queue failed: no connections can be made any more", "err", err)
			}
			time.Sleep(stallPause) // its wait object may report for good that there is an event
			return n
		}
		if !ok {
			return n
		}
		l.handle(e)
	}
}

func (l *Loop) handle(e fi.Event) {
	if e.Kind == fi.EventRequest {
		l.request(e)
		return
	}
	l.mu.Lock()
	c := l.mu.ids[e.ID]
	l.mu.Unlock()
	if c == nil {
		return
	}
	switch e.Kind {
	case fi.EventConnected:
		c.Connected()
	case fi.EventShutdown:
		c.Fail(errShutdown)
	case fi.EventFailed:
		c.Fail(e.Err)
	}
}

// Expect announces a dialer that is going to quote the token. The receiver of the event accepts or rejects
// the request.
func (l *Loop) Expect(token Token) <-chan fi.Event {
	ch := make(chan fi.Event, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.requests[token] = ch
	return ch
}

// Forget takes an expectation back, and rejects the request if it came meanwhile.
func (l *Loop) Forget(token Token, ch <-chan fi.Event) {
	l.mu.Lock()
	delete(l.mu.requests, token)
	l.mu.Unlock()
	select {
	case e := <-ch:
		l.dev.Reject(e)
	default:
	}
}

// request passes a request to the handshake that expects it.
func (l *Loop) request(e fi.Event) {
	if l.announced(e) {
		return
	}
	l.log.Warn("an unannounced connection on the fabric was refused")
	l.dev.Reject(e)
}

// announced hands a request over, if it was expected.
func (l *Loop) announced(e fi.Event) bool {
	if len(e.Data) < len(Token{}) { // verbs pads private data to its full size
		return false
	}
	token := Token(e.Data[:len(Token{})])
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
