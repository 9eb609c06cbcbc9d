package conn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// probed is a prober of something that answers or does not, with its log.
type probed struct {
	*prober
	log  bytes.Buffer
	dead atomic.Bool
}

// startProber starts a prober of a connected namespace. It ends with the test's bubble.
func startProber(t *testing.T) *probed {
	p := &probed{}
	p.prober = &prober{
		log: slog.New(slog.NewTextHandler(&p.log, nil)), health: &Health{}, remedy: "start the others", suspect: map[string]*suspicion{},
	}
	p.health.change(func(s *Status) { s.Connected, s.Since = true, time.Now() })
	p.always("the system", p.ask)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func (p *probed) ask(ctx context.Context) error {
	if !p.dead.Load() {
		return nil
	}
	<-ctx.Done()
	return fmt.Errorf("%w: %w", ErrUncertain, ctx.Err())
}

func (p *probed) trouble() *Trouble {
	s := p.health.Status()
	return s.Trouble()
}

// pass lets time pass, and then everything that is due happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A namespace whose server is connected and does not answer is found within ten seconds,
// and found to be back.
func TestSilenceIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProber(t)
		pass(time.Minute)
		if got := p.trouble(); got != nil || p.log.Len() > 0 {
			t.Fatalf("one that answers: %v\n%s", got, &p.log)
		}
		p.dead.Store(true)
		died := time.Now()
		pass(10 * time.Second)
		got := p.trouble()
		if got == nil || got.Since.Before(died) || got.Since.After(died.Add(probeEvery)) {
			t.Fatalf("after 10 s without an answer: %v, died at %v", got, died)
		}
		for _, want := range []string{"the system", "no answer within 2.5s", "start the others"} {
			if !strings.Contains(got.String(), want) {
				t.Errorf("%q is not in %v", want, got)
			}
		}
		pass(time.Minute)
		if n := strings.Count(p.log.String(), "does not answer"); n != 1 || !p.trouble().Since.Equal(got.Since) {
			t.Errorf("after a minute: %v, %d lines:\n%s", p.trouble(), n, &p.log)
		}
		pass(remindEvery)
		if n := strings.Count(p.log.String(), "the namespace does not answer"); n != 2 {
			t.Errorf("after six minutes, %d lines:\n%s", n, &p.log)
		}
		p.dead.Store(false)
		pass(5 * time.Second)
		if got := p.trouble(); got != nil || !strings.Contains(p.log.String(), "answers again") {
			t.Errorf("when it is back: %v\n%s", got, &p.log)
		}
	})
}

// Silence of a few moments, as when servers elect a leader, is no trouble.
func TestSilenceOfMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProber(t)
		for range 10 {
			p.suspects("a stream", ErrUncertain, func(context.Context) error { return nil })
			p.dead.Store(true)
			pass(1500 * time.Millisecond)
			p.dead.Store(false)
			pass(10 * time.Second)
		}
		if got := p.trouble(); got != nil || p.log.Len() > 0 {
			t.Errorf("%v\n%s", got, &p.log)
		}
	})
}

// Parts that have left an operation without an answer get requests until they answer, however many
// there are, and are dropped then.
func TestSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProber(t)
		var dead atomic.Bool
		var asked, most atomic.Int64
		ask := func(ctx context.Context) error {
			most.Store(max(most.Load(), asked.Add(1)))
			defer asked.Add(-1)
			time.Sleep(time.Second)
			if dead.Load() {
				return nats.ErrNoResponders
			}
			return nil
		}
		dead.Store(true)
		for i := range 2 * maxSuspects {
			p.suspects(fmt.Sprint("stream ", i), ErrUncertain, ask)
		}
		pass(10 * time.Second)
		got := p.trouble()
		if got == nil || !strings.Contains(got.Reason, fmt.Sprintf("and %d others", maxSuspects-2)) {
			t.Fatalf("of too many silent ones: %v", got)
		}
		if most.Load() >= maxProbes {
			t.Errorf("%d at a time", most.Load())
		}
		dead.Store(false)
		pass(5 * time.Minute)
		if got := p.trouble(); got != nil || len(p.suspect) != 1 {
			t.Errorf("when all answer: %v, %d left", got, len(p.suspect))
		}
	})
}

// A connection that is lost is trouble at once, and silent parts get no requests meanwhile.
func TestTroubleOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startProber(t)
		p.health.change(func(s *Status) {
			s.Connected, s.Since, s.Server, s.LastError = false, time.Now(), "nats://h:4222", "connection refused"
		})
		if got := p.trouble(); got == nil || !strings.Contains(got.Reason, "nats://h:4222: connection refused") {
			t.Errorf("%v", got)
		}
		p.dead.Store(true)
		pass(time.Minute)
		if s := p.health.Status(); s.Silence != nil {
			t.Errorf("without a connection it is asked: %v", s.Silence)
		}
		if got := silenceOf(errors.New("disk full")); got != "disk full" {
			t.Error(got)
		}
	})
}
