// Package purge drops the messages of a log that its owner does not need any more, beside the owner's goroutine. The
// next owner finishes the work with the next version of the same page. It must never decide which messages these are.
package purge

import (
	"context"
	"log/slog"
	"sync"
)

// Log is the log. *stream.Stream is one.
type Log interface {
	PurgeBelow(ctx context.Context, filter string, seq uint64) error
}

// Purger drops messages. It is safe for concurrent use.
type Purger struct {
	log    Log
	logger *slog.Logger
	cancel context.CancelFunc
	ended  chan struct{}
	signal chan struct{}
	mu     sync.Mutex
	due    map[string]uint64 // sequences by subjects
}

// Start begins to drop the messages that Below is called with, until Stop, or the end of the context.
func Start(ctx context.Context, log Log, logger *slog.Logger) *Purger {
	ctx, cancel := context.WithCancel(ctx)
	p := &Purger{log: log, logger: logger, cancel: cancel, ended: make(chan struct{}), signal: make(chan struct{}, 1), due: map[string]uint64{}}
	go p.run(ctx)
	return p
}

// Stop returns when no message is dropped any more.
func (p *Purger) Stop() {
	p.cancel()
	<-p.ended
}

// Below has messages of a subject dropped that are below a sequence.
func (p *Purger) Below(subject string, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due[subject] = seq
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

func (p *Purger) run(ctx context.Context) {
	defer close(p.ended)
	for {
		select {
		case <-p.signal:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		due := p.due
		p.due = map[string]uint64{}
		p.mu.Unlock()
		for subject, seq := range due {
			if err := p.log.PurgeBelow(ctx, subject, seq); err != nil && ctx.Err() == nil {
				p.logger.Warn("old messages of the namespace's log stay", "subject", subject, "err", err)
			}
		}
	}
}
