package transfer

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/call"
	"forebay/internal/wire"
)

// Progress collects the progress of long work and reports it from time to time. Its methods may be called
// concurrently.
type Progress struct {
	mu   sync.Mutex
	now  wire.Progress
	send func(*wire.Progress) error
	last time.Time
}

// sendEvery is how often progress is sent.
const sendEvery = 200 * time.Millisecond

// NewProgress returns one that reports to send, which is not called concurrently.
func NewProgress(send func(*wire.Progress) error) *Progress { return &Progress{send: send} }

// ProgressTo returns one that reports to the client of a request.
func ProgressTo(r call.Request) *Progress {
	return NewProgress(func(p *wire.Progress) error { return r.More(p, nil) })
}

// Update changes the figures and reports them when it is time to.
func (p *Progress) Update(change func(*wire.Progress)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
	if time.Since(p.last) < sendEvery {
		return nil
	}
	p.last = time.Now()
	err := p.send(proto.CloneOf(&p.now))
	p.now.Names, p.now.Failed = nil, nil // each is reported once
	return err
}

// Left reports whether something could not be done.
func (p *Progress) Left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !Saved(&p.now)
}

// Done returns the last message.
func (p *Progress) Done() *wire.Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Done = true
	return proto.CloneOf(&p.now)
}

// MaxNamed bounds the names in one message.
const MaxNamed = 1000

// Failed adds a file that could not be dealt with.
func (p *Progress) Failed(name string, bytes int64, err error) error {
	return p.Update(func(m *wire.Progress) {
		m.FailedTotal++
		if len(m.Failed) < MaxNamed {
			m.Failed = append(m.Failed, wire.Failed(name, bytes, err))
		}
	})
}

// Saved reports whether a drain left nothing out.
func Saved(p *wire.Progress) bool { return p.FailedTotal == 0 && p.HeldTotal == 0 && p.OpenTotal == 0 }

// Sum adds up the progress of several daemons. Its methods may be called concurrently.
type Sum struct {
	of *Progress

	mu    sync.Mutex
	parts []*wire.Progress
}

// NewSum returns the sum of so many daemons, which is reported to a progress.
func NewSum(of *Progress, daemons int) *Sum {
	return &Sum{of: of, parts: make([]*wire.Progress, daemons)}
}

// Set sets the progress of one of them, and reports that of all. Files that they could not save are named at the
// end, by the last message, since a client adds up the names of all messages.
func (s *Sum) Set(i int, now *wire.Progress) error {
	s.mu.Lock()
	s.parts[i] = now
	s.mu.Unlock()
	sum := s.Sum()
	return s.of.Update(func(m *wire.Progress) {
		proto.Reset(m)
		proto.Merge(m, sum)
		m.Failed = nil
	})
}

// Sum returns how far all are.
func (s *Sum) Sum() *wire.Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := new(wire.Progress)
	for _, p := range s.parts {
		if p == nil {
			continue
		}
		all.FilesTotal += p.FilesTotal
		all.FilesDone += p.FilesDone
		all.FilesSkipped += p.FilesSkipped
		all.BytesTotal += p.BytesTotal
		all.BytesDone += p.BytesDone
		all.BytesNotCopied += p.BytesNotCopied
		all.HeldTotal += p.HeldTotal
		all.OpenTotal += p.OpenTotal
		all.FailedTotal += p.FailedTotal
		all.Failed = append(all.Failed, p.Failed[:min(len(p.Failed), MaxNamed-len(all.Failed))]...)
		all.Held = append(all.Held, p.Held[:min(len(p.Held), MaxNamed-len(all.Held))]...)
		all.Open = append(all.Open, p.Open[:min(len(p.Open), MaxNamed-len(all.Open))]...)
		if p.LastError != "" {
			all.LastError = p.LastError
		}
	}
	return all
}
