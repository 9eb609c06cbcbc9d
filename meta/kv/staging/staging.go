// Package staging decides where a server in this process keeps the batches that are on their way
// into a stream: in memory, which is quick, or on the disk, for as long as memory is full. It must
// never know what a batch holds.
package staging

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"forebay/internal/bb"
)

// Server is a server in this process that can do both. Its methods may be called again, and
// concurrently.
type Server interface {
	// BatchInMemory has the batches of a stream pass through memory rather than through files that
	// are synced. bb.NoSpace: there is no room for them. After an error they pass where they did.
	BatchInMemory(stream string) error
	// BatchOnDisk has them pass through files of the stream's. No batch of the stream is under way.
	// bb.NotFound: another server holds the stream.
	BatchOnDisk(stream string) error
}

const (
	// atOnce is how many batches of a stream are under way at most. A server takes 50, and 1,000 of
	// all streams (nats-server 2.15).
	atOnce = 32
	// refusals in a row lead to the disk. One may have another cause: a batch whose beginning was lost.
	refusals = 2
	// again is how long batches pass through the disk before memory is tried.
	again = time.Minute
)

// Stage is where the batches of one stream are kept. A user that has filled the tmpfs must not keep
// others from renaming and removing:
//
//	           Refused twice, nothing under way
//	in memory ─────────────────────────────────▶ on disk
//	           ◀────────────────────────────────
//	           a minute later, if there is room
//
// It is safe for concurrent use.
type Stage struct {
	server Server // nil: the server is in no need of it
	stream string
	log    *slog.Logger
	places *semaphore.Weighted
	onDisk atomic.Int64 // since when, in ns since 1970; 0: batches pass through memory, or nobody has tried
}

// New returns the stage of a stream. A server that is nil is left alone: it only gets no more batches
// at a time than it takes.
func New(server Server, stream string, log *slog.Logger) *Stage {
	return &Stage{server: server, stream: stream, log: log, places: semaphore.NewWeighted(atOnce)}
}

// InMemory begins with batches in memory. They are as right on the disk, so an error is logged and
// not returned.
func (s *Stage) InMemory() {
	if s.server == nil {
		return
	}
	since := int64(0)
	if err := s.server.BatchInMemory(s.stream); err != nil {
		since = time.Now().UnixNano()
		if bb.KindOf(err) != bb.NoSpace || s.onDisk.Load() == 0 {
			s.log.Warn("atomic changes are slow: they pass through the disk", "stream", s.stream, "error", err)
		}
	}
	s.onDisk.Store(since)
}

// Enter waits for the place of one attempt at a batch. The caller gives it back by leave.
func (s *Stage) Enter(ctx context.Context) (leave func(), err error) {
	if since := s.onDisk.Load(); since != 0 && time.Since(time.Unix(0, since)) > again {
		s.alone(ctx, s.InMemory)
	}
	if err := s.places.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { s.places.Release(1) }, nil
}

// Refused is called after so many attempts in a row at one batch, none of which the server could keep,
// outside of Enter and leave. Settled returns nil when the server has nothing more to do for attempts
// that have left: a batch that is half carried out is finished from where it is kept. When
// Refused returns, the attempt can be repeated, unless ctx has ended.
func (s *Stage) Refused(ctx context.Context, attempts int, settled func(context.Context) error) {
	if s.server == nil || attempts < refusals || s.onDisk.Load() != 0 {
		return
	}
	s.alone(ctx, func() {
		if s.onDisk.Load() != 0 || settled(ctx) != nil {
			return // another caller was quicker; or the next attempt shows more
		}
		err := s.server.BatchOnDisk(s.stream)
		if bb.KindOf(err) == bb.NotFound {
			return
		}
		if err != nil {
			s.log.Warn("the server cannot keep an atomic change in memory, and not on the disk", "stream", s.stream, "error", err)
			return
		}
		s.onDisk.Store(time.Now().UnixNano())
		s.log.Warn("memory is full: atomic changes pass through the disk, and are slow", "stream", s.stream)
	})
}

// alone runs f while no attempt is under way, unless ctx ends before.
func (s *Stage) alone(ctx context.Context, f func()) {
	if s.places.Acquire(ctx, atOnce) == nil {
		f()
		s.places.Release(atOnce)
	}
}
