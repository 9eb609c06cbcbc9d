package lease

import (
	"context"
	"slices"
	"sync"
	"time"

	"forebay/internal/bb"
	"forebay/meta/nslog/record"
	"forebay/meta/retry"
)

const (
	// driftShare is by which part of a term the owner waits longer, for clocks that do not run at one rate.
	driftShare = 16
	// tries is how often a revocation is sent within a term, if nothing answers.
	tries = 4
	// mostDirs is how many directories a reader has leases on.
	mostDirs = 32 << 10
	// sweepAt is how many directories are known before those without leases are dropped.
	sweepAt = 1024
)

// Options are the environment of Grants.
type Options struct {
	Term   time.Duration // of a lease at most; default 1 s
	Pauses Pauses        // default 100 ms to 2 s
	Counts *Counts       // default: of its own
	// Revoke has a reader drop its leases on a directory, or all of them. Without an error, the reader does not answer
	// from them any more.
	Revoke func(context.Context, Reader, Of) error
}

// Of is the leases that are revoked.
type Of struct {
	All bool
	Dir bb.DirID
}

// Grants are the leases that an owner has granted. A nil *Grants grants none. It is safe for concurrent use, but for
// Change and Done, which are the owner's goroutine's.
type Grants struct {
	o       Options
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup // revocations

	mu       sync.Mutex
	left     func() time.Duration // of the owner's own lease; nil: it does not serve yet
	ended    bool
	number   uint64 // of the last session
	sessions map[Reader]*session
	dirs     map[bb.DirID]*directory
	changing map[bb.DirID]struct{} // directories of changes that are being appended
	all      bool                  // there was no reader, so changing is not kept
	wanted   bool                  // there is going to be one
	found    []bb.DirID            // of Change
	sweep    int                   // directories at which those without leases are dropped
}

// session is the leases of a reader.
type session struct {
	reader  Reader
	number  uint64
	end     time.Time // by the monotonic clock; it does not change while revocations are under way
	dirs    map[bb.DirID]struct{}
	pending int // revocations under way; while there are any, nothing is granted
}

// directory is the leases on a directory.
type directory struct {
	readers  map[*session]struct{}
	since    time.Time     // when the first of them began
	revoking chan struct{} // is closed when there are none; nil: they are not being revoked
	row      int           // of the last revocation
	revoked  time.Time     // when that began; zero: there was none
}

// New returns grants of which there are none yet.
func New(o Options) *Grants {
	if o.Term <= 0 {
		o.Term = time.Second
	}
	if o.Pauses == (Pauses{}) {
		o.Pauses = Pauses{100 * time.Millisecond, 2 * time.Second}
	}
	if o.Counts == nil {
		o.Counts = &Counts{}
	}
	g := &Grants{o: o, sessions: map[Reader]*session{}, dirs: map[bb.DirID]*directory{}, changing: map[bb.DirID]struct{}{}, sweep: sweepAt}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Serve makes the owner grant leases. Left returns how much is left of its lease on the log.
func (g *Grants) Serve(left func() time.Duration) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = left
}

// Grant notes that a reader has leases on a directory. The caller reads the entry afterwards.
func (g *Grants) Grant(r Reader, dir bb.DirID) Grant {
	if g == nil {
		return Grant{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.all {
		g.wanted = true
		return Grant{}
	}
	if g.ended || g.left == nil || !g.grantable(now, dir) {
		return Grant{}
	}
	s := g.sessions[r]
	if s == nil {
		s = g.open(now, r)
	}
	term := min(g.o.Term, g.left())
	if term <= 0 || s.pending > 0 {
		return Grant{}
	}
	// Before revocations begin, since each lasts until the end that it finds.
	if end := now.Add(term + term/driftShare); end.After(s.end) {
		s.end = end
	}
	g.note(now, s, dir)
	g.o.Counts.granted.Add(1)
	return Grant{s.number, term, true}
}

// grantable reports whether a directory may be leased.
func (g *Grants) grantable(now time.Time, dir bb.DirID) bool {
	if _, changing := g.changing[dir]; changing {
		return false
	}
	d := g.dirs[dir]
	return d == nil || d.revoking == nil && g.rested(now, d)
}

// rested reports whether the pause after a revocation is over.
func (g *Grants) rested(now time.Time, d *directory) bool {
	return d.revoked.IsZero() || now.Sub(d.revoked) >= g.o.Pauses.after(d.row)
}

// open begins a session of a reader. Sessions that its daemon had before a restart are dropped when they are over.
func (g *Grants) open(now time.Time, r Reader) *session {
	for _, s := range g.sessions {
		if s.reader.Node == r.Node && now.After(s.end) {
			g.drop(s)
		}
	}
	g.number++
	g.wanted = false
	s := &session{reader: r, number: g.number, dirs: map[bb.DirID]struct{}{}}
	g.sessions[r] = s
	return s
}

// note records that a session has leases on a directory. A session that has too many loses those on another one.
func (g *Grants) note(now time.Time, s *session, dir bb.DirID) {
	d := g.dirs[dir]
	if d == nil {
		if len(g.dirs) >= g.sweep {
			g.sweepIdle(now)
		}
		d = &directory{readers: map[*session]struct{}{}}
		g.dirs[dir] = d
	}
	if _, has := s.dirs[dir]; has {
		return
	}
	if len(s.dirs) >= mostDirs {
		for other := range s.dirs {
			g.revoke(now, other)
			break
		}
	}
	if len(d.readers) == 0 {
		d.since = now
	}
	d.readers[s] = struct{}{}
	s.dirs[dir] = struct{}{}
}

// sweepIdle drops the directories that have no leases, and may have some again.
func (g *Grants) sweepIdle(now time.Time) {
	for dir, d := range g.dirs {
		if len(d.readers) == 0 && d.revoking == nil && g.rested(now, d) {
			delete(g.dirs, dir)
		}
	}
	g.sweep = max(sweepAt, 2*len(g.dirs))
}

// Change returns nil if no reader has leases on directories in which a change with effects changes entries, nor on those
// that it removes. Then none gets any until Done. Otherwise the leases are revoked, and wait returns when that is done, or the context ends.
// Then the change is to be checked again.
func (g *Grants) Change(effects []byte, removed ...bb.DirID) (wait func(context.Context)) {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.sessions) == 0 && !g.wanted {
		g.all = true
		return nil
	}
	now := time.Now()
	var revoked []chan struct{}
	for _, dir := range g.dirsOf(effects, removed) {
		if done := g.revoke(now, dir); done != nil {
			revoked = append(revoked, done)
		}
	}
	if len(revoked) > 0 {
		return func(ctx context.Context) { waitAll(ctx, revoked) }
	}
	for _, dir := range g.found {
		g.changing[dir] = struct{}{}
	}
	return nil
}

func waitAll(ctx context.Context, all []chan struct{}) {
	for _, one := range all {
		select {
		case <-one:
		case <-ctx.Done():
			return
		}
	}
}

// dirsOf returns the directories in which effects change entries, and those that they remove, but for those of changes
// before.
func (g *Grants) dirsOf(effects []byte, removed []bb.DirID) []bb.DirID {
	g.found = append(g.found[:0], removed...)
	// Effects that the owner has encoded are not malformed.
	_, _ = record.Effects(effects, 0, func(e record.Effect) error {
		dir, _, is := record.EntryKey(e.Key)
		if _, changing := g.changing[dir]; is && !changing && !slices.Contains(g.found, dir) {
			g.found = append(g.found, dir)
		}
		return nil
	})
	return g.found
}

// Done is called when the changes since the Done before are applied, or are not going to be.
func (g *Grants) Done() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all = false
	clear(g.changing)
}

// revoke begins to revoke the leases on a directory. It returns what is closed when there are none any more, or nil if
// there are none.
func (g *Grants) revoke(now time.Time, dir bb.DirID) chan struct{} {
	d := g.dirs[dir]
	if d == nil {
		return nil
	}
	if d.revoking != nil {
		return d.revoking
	}
	for s := range d.readers {
		if now.After(s.end) {
			g.drop(s)
		}
	}
	if len(d.readers) == 0 {
		return nil
	}
	if d.row = g.o.Pauses.next(d.row, now.Sub(d.since)); d.revoked.IsZero() {
		d.row = 0
	}
	d.revoked = now
	done := make(chan struct{})
	d.revoking = done
	var all sync.WaitGroup
	for s := range d.readers {
		s.pending++
		all.Go(func() { g.revokeOf(s, Of{Dir: dir}) })
	}
	g.running.Go(func() {
		all.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		d.revoking = nil
		close(done)
	})
	return done
}

// revokeOf revokes leases of a session, and waits until it has dropped them, or is over.
func (g *Grants) revokeOf(s *session, of Of) {
	began := time.Now()
	dropped := g.send(s, of)
	if g.ctx.Err() == nil { // else this daemon does not own the log any more
		g.o.Counts.ended(dropped, time.Since(began))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.pending--
	if !dropped || of.All {
		g.drop(s)
		return
	}
	delete(s.dirs, of.Dir)
	delete(g.dirs[of.Dir].readers, s)
}

// send sends a revocation until the reader has answered, or its leases are over.
func (g *Grants) send(s *session, of Of) (dropped bool) {
	ctx, cancel := context.WithDeadline(g.ctx, s.end)
	defer cancel()
	for try := 0; ctx.Err() == nil; try++ {
		one, stop := context.WithTimeout(ctx, g.o.Term/tries)
		err := g.o.Revoke(one, s.reader, of)
		stop()
		if err == nil {
			return true
		}
		retry.Pause(ctx, try)
	}
	return false
}

// drop ends a session whose leases are over.
func (g *Grants) drop(s *session) {
	for dir := range s.dirs {
		delete(g.dirs[dir].readers, s)
	}
	clear(s.dirs)
	if g.sessions[s.reader] == s {
		delete(g.sessions, s.reader)
	}
}

// End revokes all leases, and returns when they are over, or the context ends. None is granted any more.
func (g *Grants) End(ctx context.Context) {
	if g == nil {
		return
	}
	done := make(chan struct{})
	g.mu.Lock()
	g.ended = true
	var all sync.WaitGroup
	for _, s := range g.sessions {
		s.pending++
		all.Go(func() { g.revokeOf(s, Of{All: true}) })
	}
	g.running.Go(func() {
		all.Wait()
		close(done)
	})
	g.mu.Unlock()
	waitAll(ctx, []chan struct{}{done})
}

// Close ends the grants. Leases are over with the lease of their owner on the log.
func (g *Grants) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.cancel()
	g.running.Wait()
}
