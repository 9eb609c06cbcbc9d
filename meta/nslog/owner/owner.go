// Package owner owns the log of a namespace. It claims it, makes a table of it, carries out changes by
// appending them, and makes checkpoints. Its callers decide about the checks and the effects of a change. It
// must never depend on files, renames or operations.
//
//	callers ─▶ queue ─▶ owner's goroutine, for all that waits at a time:
//	                      1 check each change against the table, list its effects
//	                      2 append all effects to the log, as one message    (fenced)
//	                      3 apply them to the table, answer everybody
//	                      4 write one page, if a checkpoint is being made    (fenced)
//
// # Ownership
//
// An owner appends a claim to the log, and then reads it up to there. Each message that it appends
// names the sequence before it. Only if that is the last one, the message is stored. So once
// another owner has claimed the log, no append of this owner is stored or acknowledged. It detects
// that at its next append, and fails all calls with Unavailable (ErrReplaced).
//
// # Leases
//
// Reads from an owner's table are right while no other owner has acknowledged anything. So each
// record names a lease. An owner answers calls that need no append (reads, and refusals of changes)
// only until that long after the beginning of an append of its own that was stored, and checks that
// after it has read. A new owner acknowledges nothing, and answers nothing, until the lease that it
// found is over, counted from the time when this process first found the log's end where the claim
// is (Options.Ended). The claim is stored only if nothing was appended since. Both are durations by
// clocks that need not agree. The next owner waits a sixteenth longer, for their rates.
//
//	        claim is stored            table is loaded, lease found is over
//	nobody ─────────────────▶ claimed ────────────────────────────────────▶ serving ◀─┐
//	                             │                                           │ │ │     │ an append
//	                             │             no append for as long         │ │ │     │ is stored
//	                             │             as the lease: reads wait      │ │ └▶ lapsed
//	                             │                                           │ │       │
//	                             ▼    another claim is found at an append    ▼ │       │
//	                          replaced ◀───────────────────────────────────────┼───────┘
//	                                                                           ▼ Release
//	               the next owner need not wait                            released
//
// A record without effects renews the lease: when a read has found it over, or more than half
// over. Where Options.Lease is 0, no process but this one may ever claim the log.
//
// # Rounds
//
// Changes of one round must not depend on each other, since each is checked against the table
// before any of them. The round's footprint has the keys and directories that they touch, and a
// change that touches one of them waits for the next round (ErrPostponed). Reads in the meantime
// return the state before the round.
//
// # Checkpoints
//
// When the log has grown by Options.CheckpointBytes, the pages that have changed are written, each under a
// subject of its own, then a manifest. Package record draws the messages, and explains why any page that was
// written since the last manifest is good enough. A removed name leaves nothing.
//
// Messages that a checkpoint replaces are purged at a later one. A loss of power costs the messages that the
// server had not synced yet, and those may be the newest checkpoint, or a part of it. So the messages of a
// checkpoint are purged when the next one is complete and has been stored for Options.Settle.
//
//	log       … ─── changes of N-1 ───┐ ── changes of N ──┐ ── changes ──▶
//	pages        pages of N-1 ────────┤ pages of N ───────┤
//	manifest                        N-1                   N        kept: all from N-1 on
//
// A start reads the newest manifest, the pages that it names, and the log from there on. If the manifest, or a
// page, is missing or damaged, the start reads the manifest before, the newest version of each page that is
// whole, and the log from that manifest on. Without any, it reads the whole log.
//
// # A server that has lost records
//
// If the log is found to end before the last acknowledged record, or gives out a sequence again,
// its owner writes all pages from its table, claims the log again, and writes a manifest. Nothing
// is lost while the owner runs. It detects this at its next append. If its owner ends at the same
// time, the next one stores the records of other daemons again (Options.Held), since the owner has
// each record held by one of them before it answers (Options.Keep). A change is lost only if its
// server, its owner and that daemon lose it. This is logged if any daemon was answered with a later
// revision. The claim names the record before that was acknowledged, and not the last one of the
// log. So a reader of the log across the claim finds a record missing. From the manifest on, it is
// not read.
//
// A log that is gone altogether is made again (Options.Remake), as one that has lost everything. Then the claim comes
// first, so that no other daemon claims an empty log. Until the manifest is stored, the claim names a missing record. So
// if its owner ends meanwhile, the log is refused as damaged. An owner whose lease is over may have been replaced without
// notice. It stores nothing again if any daemon knows of a later change.
//
// Entries that a log has lost, and no daemon had in memory, differ from removed ones by their revisions. Those begin at the clock's time when a log is claimed, and above Options.Floor,
// at any time of the clock. So they are not used twice, and the table records the spans that it has
// read (table.Covers).
package owner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/nslog/lease"
	"forebay/meta/nslog/purge"
	"forebay/meta/nslog/record"
	"forebay/meta/nslog/table"
	"forebay/meta/nslog/tail"
	"forebay/meta/stream"
)

// Log is the part of a log that an owner uses. *stream.Stream is one.
type Log interface {
	Append(ctx context.Context, subject string, data []byte, f stream.Fence) (uint64, error)
	Last(ctx context.Context, subject string) (stream.Message, error)
	At(ctx context.Context, seq uint64) (stream.Message, error)
	Read(ctx context.Context, subject string, from, to uint64, fn func(stream.Message) error) error
	ReadAll(ctx context.Context, to uint64, fn func(stream.Message) error) error
	PurgeBelow(ctx context.Context, filter string, seq uint64) error
}

// The subjects of a log.
const (
	logSubject      = "log"
	pageSubject     = "page."
	manifestSubject = "manifest"
)

// ErrReplaced is in the chain of the errors of an owner after another one has claimed its log.
var ErrReplaced = errors.New("another process owns the namespace now")

// errUntaken is in the chain of the errors of changes that no round had taken when their owner ended.
// They were not carried out.
var errUntaken = errors.New("the owner of the namespace's log had ended before")

var errClosed = errors.New("the namespace was closed")

// Options are the identity and the environment of an owner.
type Options struct {
	Buffer string    // its name
	Node   bb.NodeID // that claims it
	// CheckpointBytes is by how much the log grows between checkpoints, about. A start reads so
	// much besides the pages. Default 16 MiB.
	CheckpointBytes int
	// Lease is for how long reads are answered without an append, in whole milliseconds, at most an
	// hour. 0 means that no other owner claims the log.
	Lease time.Duration
	// Ended returns the time since when this process has found a record to be the log's last. Zero
	// means that it is not the last; nil, that the time is unknown.
	Ended func(Holder) time.Time
	// Held returns the records of the log that daemons hold, from a revision on. nil means none.
	Held func(ctx context.Context, from uint64) Held
	// Keep is called with each record that was stored, before a change in it is answered. It returns when another
	// daemon holds the record, or none can. It keeps the message. nil means that none holds any.
	Keep func(context.Context, tail.Record)
	// Short is called if the log ends before what was acknowledged, and no daemon holds the rest. It may be nil.
	Short func()
	// Floor returns the highest revision of the namespace that is recorded outside of its log. An
	// owner gives out higher ones. nil: none is.
	Floor func() uint64
	// Remake makes the log again, empty, after it was found gone. Its error has stream.ErrGone in its chain if the log was
	// destroyed in order, so that its owner ends. nil: a log that is gone is never made again.
	Remake func(context.Context) error
	// Unanswered returns the error of a call that ended while the log did not answer, with its server. nil: without.
	Unanswered func(ctx context.Context, op string, cause error) error
	// Unused is whether nothing was in the log yet. A revision of the log before it may be recorded all the
	// same.
	Unused bool
	// Settle is after which time a message that was stored survives a loss of power.
	Settle time.Duration
	Leases *lease.Grants // that other daemons have on directories, until the owner is closed; nil: they have none
	Reopen bool          // a Keeper opens the log again when its owner has ended
	Logger *slog.Logger  // default: discard
	// Applied is called with the key of each effect, while the table is locked for writing.
	Applied func(key []byte)
}

// Owner is the owner of a log. It is safe for concurrent use.
type Owner struct {
	log Log
	o   Options

	ctx       context.Context // of its goroutine
	cancel    context.CancelFunc
	ended     chan struct{}
	queue     queue
	failure   atomic.Pointer[error] // the reason why it does not serve any more; nil: it does
	destroyed atomic.Bool
	held      atomic.Pointer[lease.Moment] // when the append began that was stored last
	left      error                        // of Release, when ended is closed

	mu    sync.RWMutex // of the table; held for writing by the goroutine alone, which reads without it
	table *table.Table

	at    position // of the goroutine alone
	purge *purge.Purger
}

// position is where an owner is in its log.
type position struct {
	id         record.Owner
	last       uint64 // sequence under the log's subject
	top        uint64 // sequence of this owner's last append
	behind     bool   // a sequence was given out twice, so its first message is lost
	acked      uint64 // last before the server lost it, until its record is stored again; 0: nothing was lost
	remembered uint64 // result of Options.Floor
	floor      uint64 // revision that all of this owner's are from, and those of owners before are below
	logged     int    // bytes since the last manifest
	pages      []uint64
	round      Round
	old        replaced    // messages to be purged
	broken     []int       // pages of which a start has found the newest message damaged
	claim      tail.Record // until it is kept
	todo       []int       // pages of the checkpoint that is being made
	making     bool
	asked      []chan error // of Checkpoint: those that wait for the next one
	ending     []chan error // those that wait for this one
}

// Open claims a log, which must exist, and reads the namespace. The context is for that alone.
// Close ends it.
func Open(ctx context.Context, log Log, o Options) (*Owner, error) {
	if o.CheckpointBytes <= 0 {
		o.CheckpointBytes = 16 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Lease = o.Lease.Truncate(time.Millisecond)
	w := &Owner{log: log, o: o, table: table.New(), ended: make(chan struct{})}
	w.queue.signal = make(chan struct{}, 1)
	w.at.round.w = w
	if err := w.load(ctx); err != nil {
		w.table.Close()
		return nil, bb.Wrap("open namespace", o.Buffer, err)
	}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.purge = purge.Start(w.ctx, log, o.Logger)
	o.Leases.Serve(func() time.Duration { return w.o.Lease - w.age() })
	go w.serve()
	return w, nil
}

// Close ends the ownership. Changes that are under way have an unknown outcome. The table's content
// is in the log.
func (w *Owner) Close() {
	w.cancel()
	<-w.ended
	w.o.Leases.Close()
	w.purge.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.table.Close()
}

// Ended is closed when the owner does not serve any more. Err returns the reason.
func (w *Owner) Ended() <-chan struct{} { return w.ended }

// Err returns the reason why the owner does not serve any more, or nil.
func (w *Owner) Err() error {
	if w.destroyed.Load() {
		return kv.ErrNoBucket
	}
	if err := w.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// MarkDestroyed makes the namespace answer that it is gone.
func (w *Owner) MarkDestroyed() { w.destroyed.Store(true) }

// load claims the log and makes the table from it. All records of others are before the claim, and
// none comes after it. It returns when the memory of earlier owners has no reader any more.
func (w *Owner) load(ctx context.Context) error {
	if w.o.Floor != nil {
		w.at.remembered = w.o.Floor()
		w.at.floor = (w.at.remembered + 3) &^ 1
	}
	before, ended, err := w.claim(ctx)
	if err != nil {
		return err
	}
	err = w.loadNewest(ctx)
	if kind := bb.KindOf(err); kind == bb.Lost || kind == bb.Checksum {
		err = w.loadOlder(ctx, err)
	}
	if err != nil {
		return err
	}
	w.keepClaim(ctx)
	if err := w.feed(ctx, before); err != nil {
		return err
	}
	if err := w.checkRemembered(); err != nil {
		return err
	}
	w.at.floor = max(w.at.floor, w.table.Next())
	return outlast(ctx, ended, before.lease)
}

// checkRemembered compares the loaded table with the highest revision that is recorded of the
// namespace. A log that has lost its end is served without it, since entries that daemons hold come
// back. A log without any remains counts as gone.
func (w *Owner) checkRemembered() error {
	switch {
	case w.o.Unused || w.at.remembered == 0 || w.at.remembered < w.table.Next():
	case !w.prepared():
		return lost("all that it had")
	default:
		w.short()
		w.o.Logger.Error("the log of a namespace ends before revisions that are on record. Files that were made since come back. Names that were renamed or removed since may be as they were before",
			"buffer", w.o.Buffer, "ends", w.table.Next(), "remembered", w.at.remembered)
	}
	return nil
}

// prepared reports whether the table has the root directory.
func (w *Owner) prepared() bool {
	_, is := w.table.Get(record.RootKey)
	return is
}

// loadNewest makes the table of the newest checkpoint and the records after it.
func (w *Owner) loadNewest(ctx context.Context) error {
	l := w.beginLoad(&record.Contents{Start: 1})
	m, err := w.log.Last(ctx, manifestSubject)
	if err == nil && m.Seq != 0 {
		l.manifest, err = openManifest(m.Data)
	}
	if err != nil {
		return err
	}
	w.table.Restore(l.manifest.Next, l.manifest.Spans)
	w.at.pages = make([]uint64, len(l.manifest.Pages))
	for number, seq := range l.manifest.Pages {
		if err := l.named(ctx, number, seq); err != nil {
			return err
		}
	}
	return l.finish(ctx, m.Seq)
}

// named loads the message of a page that the manifest names, or the newest one where an older release has
// purged that.
func (l *loading) named(ctx context.Context, number int, seq uint64) error {
	if seq == 0 {
		return nil
	}
	subject := pageSubject + strconv.Itoa(number)
	m, err := l.w.log.At(ctx, seq)
	if err == nil && m.Subject != subject {
		m, err = l.w.log.Last(ctx, subject)
	}
	switch {
	case err != nil:
		return err
	case m.Seq < seq:
		return lost(fmt.Sprintf("page %d of %d", number, seq))
	}
	return l.page(m)
}

// finish loads the log behind the pages.
func (l *loading) finish(ctx context.Context, manifest uint64) error {
	w := l.w
	for number, seq := range l.manifest.Pages {
		if w.at.pages[number] < seq {
			return lost(fmt.Sprintf("page %d of %d", number, seq))
		}
	}
	if err := w.log.Read(ctx, logSubject, l.manifest.Start, w.at.last, l.record); err != nil {
		return err
	}
	if err := w.table.Check(); err != nil {
		return err
	}
	w.at.old.begin(manifest, l.manifest.Start)
	return nil
}

// beginLoad begins with an empty table.
func (w *Owner) beginLoad(m *record.Contents) *loading {
	w.table.Close()
	w.table = table.New()
	w.at.pages, w.at.logged, w.at.broken = nil, 0, nil
	return &loading{w: w, manifest: m}
}

func lost(what string) error {
	return bb.E(bb.Lost, "read", "the namespace's log", what+" is missing").
		WithRemedy("put a copy of the namespace server's folder back")
}

// claim makes this process the owner of the log. It returns the record before the claim, and a time
// since when the log had ended in it. No append of former owners began later.
func (w *Owner) claim(ctx context.Context) (last Holder, ended time.Time, err error) {
	for {
		last, err = Newest(ctx, w.log)
		if err != nil {
			return last, ended, err
		}
		ended = time.Now()
		if w.o.Ended != nil {
			if seen := w.o.Ended(last); !seen.IsZero() {
				ended = seen
			}
		}
		err = w.claimAfter(ctx, last.Seq, last.Seq, last.lease)
		var moved *stream.Moved
		if !errors.As(err, &moved) {
			return last, ended, err
		}
		// Its owner appended meanwhile, or another one has claimed it.
	}
}

// claimAfter claims a log that ends at a sequence, with a lease of those before that may go on. Previous is the
// last record of the log if the server had lost nothing.
func (w *Owner) claimAfter(ctx context.Context, last, previous uint64, before time.Duration) error {
	o := &w.at
	began := lease.Now()
	_, _ = rand.Read(o.id[:])
	o.floor = max(o.floor, w.table.Next(), uint64(time.Now().UnixMicro())*2)
	h := record.Head{Owner: o.id, Previous: previous, First: o.floor, Lease: max(before, w.o.Lease), Node: w.o.Node}
	message := h.ClaimMessage()
	seq, err := w.log.Append(ctx, logSubject, message, stream.Fence{Subject: logSubject, Last: last})
	if err != nil {
		return err
	}
	o.claim = tail.Record{Seq: seq, Data: message}
	o.last, o.top, o.behind = seq, seq, false
	w.hold(began)
	return nil
}

// loading makes a table of the messages of a log.
type loading struct {
	w        *Owner
	manifest *record.Contents
	last     uint64 // record
}

func openManifest(data []byte) (*record.Contents, error) {
	kind, body, err := record.Open(data)
	if err == nil && kind != record.Manifest {
		err = lost("a manifest")
	}
	if err != nil {
		return nil, err
	}
	return record.OpenManifest(body)
}

// page loads a page.
func (l *loading) page(m stream.Message) error {
	kind, body, err := record.Open(m.Data)
	if err == nil && kind != record.Page {
		err = lost("a page")
	}
	if err != nil {
		return err
	}
	number, items, err := record.OpenPage(body)
	if err != nil {
		return err
	}
	o := &l.w.at
	for len(o.pages) <= number {
		o.pages = append(o.pages, 0)
	}
	o.pages[number] = m.Seq
	return l.w.table.Load(number, items, l.manifest.Start)
}

// record applies a record. Records are a chain, in which a gap shows.
func (l *loading) record(m stream.Message) error {
	kind, body, err := record.Open(m.Data)
	if err != nil {
		return err
	}
	h, effects, err := record.OpenHead(kind, body)
	switch {
	case err != nil:
		return err
	case l.last != 0 && h.Previous != l.last, l.last == 0 && h.Previous >= l.manifest.Start:
		return lost(fmt.Sprintf("record %d", h.Previous))
	}
	l.last = m.Seq
	l.w.at.logged += len(m.Data)
	if kind != record.Changes {
		return nil
	}
	return l.w.apply(effects, h.First, m.Seq)
}

// apply carries out the effects of a record. The caller excludes readers of the table.
func (w *Owner) apply(effects []byte, first, seq uint64) error {
	next, err := record.Effects(effects, first, func(f record.Effect) error {
		w.o.Applied(f.Key)
		return w.table.Apply(f, seq)
	})
	w.table.Advance(first, next)
	return err
}
