package conn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"forebay/internal/bb"
)

// A connection to a server proves little. A server without a majority of its cluster accepts
// connections and pings, and answers no change for as long as that lasts. So a prober sends
// requests to the namespace itself from time to time, and again to every part that has left an
// operation without an answer.

const (
	probeEvery   = 3 * time.Second         // between probes of a namespace that answers
	probeAgain   = 500 * time.Millisecond  // between those of one that does not
	probeTimeout = 2500 * time.Millisecond // of one probe
	// silentAfter is how long there must be no answer before that counts, so two probes. A request
	// to a server that is losing its leader is never answered.
	silentAfter = 5 * time.Second
	remindEvery = 5 * time.Minute // between lines in the log of a namespace that stays silent
	maxProbes   = 8               // at a time
	maxSuspects = 64
)

// Status is how the namespace answers.
type Status struct {
	Connected  bool   // to a server
	Server     string // its URL, without credentials; "in process" for an embedded server
	Since      time.Time
	Reconnects uint64
	LastError  string // of the connection; "" if there never was one

	// Silence is the reason why the namespace does not answer although a server is connected, or
	// nil if, by the last probes, it answers.
	Silence *Trouble
}

// Trouble has the time since when the namespace does not answer, the reason, and the remedy.
type Trouble struct {
	Since  time.Time
	Reason string
	Remedy string
}

// String returns the beginning, the reason, and the remedy.
func (t *Trouble) String() string {
	return fmt.Sprintf("the namespace does not answer since %s (%v): %s: %s", t.Since.Format(time.TimeOnly),
		time.Since(t.Since).Round(time.Second), t.Reason, t.Remedy)
}

// Trouble returns the reason why the namespace does not answer, or nil if, by the last probes, it
// does.
func (s *Status) Trouble() *Trouble {
	switch {
	case s.Silence != nil && s.Connected:
		return s.Silence
	case s.Connected:
		return nil
	case s.Since.IsZero():
		return &Trouble{Since: time.Now(), Reason: "no connection has been tried yet", Remedy: "wait"}
	}
	return &Trouble{
		Since: s.Since, Reason: "no connection to " + s.Server + ": " + s.LastError,
		Remedy: "see whether the namespace's servers (nats.servers or nats.url) run and can be reached",
	}
}

// Health keeps how the namespace answers. It is safe for concurrent use.
type Health struct {
	mu     sync.Mutex
	status Status
}

// Status returns how the namespace answers now.
func (h *Health) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

func (h *Health) change(fn func(*Status)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fn(&h.status)
}

// Ask makes one request that only a working namespace answers. It does not try again.
type Ask func(context.Context) error

// prober sends requests to the namespace, and keeps their outcomes in Health. Its goroutine (run)
// alone decides when the namespace counts as silent.
type prober struct {
	log     *slog.Logger
	health  *Health
	remedy  string
	mu      sync.Mutex
	suspect map[string]*suspicion // by the part that has left a request without an answer
}

// suspicion is a part that did not answer, and gets requests until it does.
type suspicion struct {
	name   string
	ask    Ask
	since  time.Time
	reason string
	always bool // it gets requests whether or not it has answered
}

// suspects records that something has left a request without an answer. The next round sends it a
// request.
func (p *prober) suspects(name string, err error, ask Ask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.suspect[name] == nil && len(p.suspect) < maxSuspects {
		p.suspect[name] = &suspicion{name: name, ask: ask, since: time.Now(), reason: silenceOf(err)}
	}
}

// answered records that something has answered by itself.
func (p *prober) answered(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.suspect[name]; s != nil && !s.always {
		delete(p.suspect, name)
	}
}

// always makes every round send a request to a part.
func (p *prober) always(name string, ask Ask) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspect[name] = &suspicion{name: name, ask: ask, always: true}
}

// run probes until ctx ends.
func (p *prober) run(ctx context.Context) {
	var said time.Time
	for {
		pause := probeEvery
		if p.round(ctx) {
			pause = probeAgain
		}
		if ctx.Err() != nil {
			return
		}
		said = p.report(said)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// round sends the probes that are due, and reports whether one was not answered.
func (p *prober) round(ctx context.Context) (failing bool) {
	if !p.health.Status().Connected {
		return true
	}
	asked := p.due()
	reasons := make([]string, len(asked))
	began := time.Now()
	var all sync.WaitGroup
	for i, s := range asked {
		all.Go(func() {
			once, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			if err := s.ask(once); err != nil {
				reasons[i] = silenceOf(err)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil || !p.health.Status().Connected {
		return true // that proves nothing about the namespace
	}
	return p.conclude(asked, reasons, began)
}

// due returns the probes of the next round: the regular one, then the part that has been
// silent for longest.
func (p *prober) due() []suspicion {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]suspicion, 0, len(p.suspect))
	for _, s := range p.suspect {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b suspicion) int {
		if a.always != b.always {
			if a.always {
				return -1
			}
			return 1
		}
		return a.since.Compare(b.since)
	})
	return list[:min(len(list), maxProbes)]
}

// conclude records the outcomes of a round that began at a time: a reason of each probe, "" for an
// answer.
func (p *prober) conclude(asked []suspicion, reasons []string, began time.Time) (failing bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range asked {
		s := p.suspect[asked[i].name]
		switch {
		case s == nil: // it has answered another caller
		case reasons[i] != "":
			s.reason = reasons[i]
			if s.since.IsZero() {
				s.since = began
			}
		case s.always:
			s.since, s.reason = time.Time{}, ""
		default:
			delete(p.suspect, s.name)
		}
	}
	for _, s := range p.suspect {
		failing = failing || s.reason != ""
	}
	silence := silenceAmong(p.suspect, p.remedy, time.Now())
	p.health.change(func(st *Status) { st.Silence = silence })
	return failing
}

// silenceAmong returns the trouble of suspicions: the oldest of those that are
// old enough.
func silenceAmong(suspects map[string]*suspicion, remedy string, now time.Time) *Trouble {
	var oldest *suspicion
	others := 0
	for _, s := range suspects {
		if s.reason == "" || now.Sub(s.since) < silentAfter {
			continue
		}
		if others++; oldest == nil || s.since.Before(oldest.since) || s.since.Equal(oldest.since) && s.name < oldest.name {
			oldest = s
		}
	}
	if oldest == nil {
		return nil
	}
	reason := oldest.name + ": " + oldest.reason
	if others--; others > 0 {
		reason += fmt.Sprintf(", and %s", bb.Count(others, "other does not answer", "others do not answer"))
	}
	return &Trouble{Since: oldest.since, Reason: reason, Remedy: remedy}
}

// report writes a line when silence begins, from time to time while it lasts, and when it ends.
// said is the time of the last line of a silence, or zero if there is none.
func (p *prober) report(said time.Time) time.Time {
	status := p.health.Status()
	t := status.Trouble()
	switch {
	case t == nil && said.IsZero():
	case t == nil:
		p.log.Info("the namespace answers again", "server", status.Server)
		return time.Time{}
	case said.IsZero() && !status.Connected: // the connection's loss has a line of its own
		return time.Now()
	case said.IsZero() || time.Since(said) >= remindEvery:
		p.log.Warn("the namespace does not answer", "server", status.Server, "since", t.Since, "reason", t.Reason, "remedy", t.Remedy)
		return time.Now()
	}
	return said
}

// silenceOf describes a probe's error in a few words.
func silenceOf(err error) string {
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, ErrNoStream):
		return "no server serves it"
	case errors.Is(err, ErrUncertain), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Sprintf("no answer within %v: fewer than half of its servers work, or they have no leader", probeTimeout)
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// remedyFor is the remedy for a namespace that does not answer.
func remedyFor(o *Options) string {
	if o.InProcess != nil && o.Replicas <= 1 {
		return "see the errors of the server (nats:) in this daemon's log, and whether the disk of its folder is full"
	}
	return "most of the namespace's servers (" + strings.Join(redacted(o.URLs), ", ") + ") must run and reach each other: start those that are down, and see the logs of the others"
}

const apiName = "JetStream's API"

// apiSuspected records that the stream API has left a request without an answer.
func (c *Conn) apiSuspected(err error) {
	c.prober.suspects(apiName, err, func(ctx context.Context) error {
		_, err := c.js.AccountInfo(ctx)
		return err
	})
}

// ProbeAlways makes Probe send a request to a part in every round.
func (c *Conn) ProbeAlways(name string, ask Ask) { c.prober.always(name, ask) }

// Suspect records that a part has left a request without an answer. Probe sends it requests until
// it answers.
func (c *Conn) Suspect(name string, err error, ask Ask) { c.prober.suspects(name, err, ask) }
