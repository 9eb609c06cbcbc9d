package flusher

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"forebay/flusher/backing"
	"forebay/flusher/content"
	"forebay/flusher/plan"
	"forebay/flusher/storeop"
	"forebay/flusher/upload"
	"forebay/internal/bb"
)

// Key names one content of one file.
type Key struct {
	Buffer     string
	File       bb.FileID
	Generation bb.Generation
}

// Item is a file to be flushed.
type Item struct {
	Key
	Size       int64     // bytes
	DirtySince time.Time // when its oldest byte that is not durable was committed, of any generation; zero: now
	ClosedAt   time.Time // zero: now
	// Path is where it lies, if Suspect, and Object its object. "" means as the policy names it. The flusher calls
	// Job.Path otherwise.
	Path, Object string
	// Suspect is whether an earlier run of the daemon may have been flushing this file, which has
	// never been flushed before. If it is renamed or removed now, any object in the store under its
	// present name is removed.
	Suspect bool
	// Attempts are the contents that may be there then, before compression.
	Attempts []bb.Content
}

// Catalog is the daemon's side: the places and contents of files. It may also
// be an OpenLister and a Recorder. Its methods are called concurrently and hold no lock that a
// call into the Flusher needs.
type Catalog interface {
	// Begin pins the content's bytes and returns the file's present path. It returns bb.NotFound if
	// the content is gone (removed or replaced), and bb.Exists if it is durable already. Both drop
	// it from the queue, and differ in the result of Wait. Other errors are tried again.
	Begin(ctx context.Context, key Key) (upload.Job, error)
}

// OpenLister is a Catalog that lists the files that are open for writing. A drain reports them as
// not saved.
type OpenLister interface {
	// OpenFiles returns the paths of the buffer's files that are open for writing.
	OpenFiles(ctx context.Context, buffer string) ([]string, error)
}

// Recorder is a Catalog that can find out, after a failed Job.Done, whether the flush was recorded.
// The change may have been made, and the answer lost.
type Recorder interface {
	// Recorded reports whether the file's entry names an object on the store, of any generation.
	Recorded(ctx context.Context, key Key) (bool, error)
}

// Policy is the part of a buffer's configuration that matters here.
type Policy struct {
	Codec    string        // see package codec
	NoFlush  []string      // see plan.Excluded
	Steps    *plan.Steps   // nil: no flush rule holds anything back
	DirtyAge time.Duration // 0: that of Options
	Due      time.Time     // by when all should be flushed; zero: no matter when
	// KeepExisting makes a flush fail rather than replace an object that this buffer did not write.
	KeepExisting bool
	// Store identifies the buffer's store. Buffers of the same share its bound. "" means that no
	// other buffer does.
	Store string
	// SmallUnits is the number of Options.SmallPerWorker that a small file counts as, for a store
	// that should get fewer of them at a time. 0: 1.
	SmallUnits int
	// User is the buffer's user. Workers are shared among users.
	User uint32
}

// Options configures a Flusher.
type Options struct {
	Catalog Catalog
	// Stores returns a buffer's store, which the caller closes, after the Flusher. It should retry
	// little or not at all, since a failed file is queued again, and a worker that retries for ever
	// is lost to other buffers.
	Stores func(ctx context.Context, buffer string) (backing.Store, error)
	// Policy returns a buffer's policy. nil means that all have the zero Policy. It is called with
	// the Flusher's lock held. It must be quick and must not call back.
	Policy func(buffer string) Policy
	// Pressure reports whether memory is short. nil means never. As Policy, it must be quick.
	Pressure func() bool

	Workers   int // flushes at a time that make progress; 0: 8
	PerBuffer int // flushes of one buffer at a time; 0: three quarters of Workers, at least 1
	PerStore  int // flushes to one store at a time, stalled ones among them; 0: one less than Workers, at least 1
	PerUser   int // flushes of one user's buffers at a time that make progress; 0: one less than Workers, at least 1
	// SmallPerWorker is how many flushes of small files, of at most Small bytes (0: 64 KiB), count as one in these four.
	// Nearly all of the time of such a flush is a wait for the store, which syncs many together about as fast as one. 0: 1.
	SmallPerWorker int
	Small          int64
	Patience       time.Duration    // the time without any progress after which a flush frees its worker; 0: 2 s
	DirtyAge       time.Duration    // oldest a dirty byte may get before its flush begins; 0: 5 min
	Idle           time.Duration    // how long a closed file is left alone when nothing presses; 0: 1 s; negative: not at all
	Backoff        [2]time.Duration // shortest and longest wait after a failure; 0: 1 s, 1 min

	// Observe is called with events. It may be called concurrently and must not block.
	Observe func(Event)
	// Mine is called before each attempt at a StoreOp and reports whether it is still this node's
	// to carry out. If not, it is dropped. Nil: always.
	Mine func(ctx context.Context, buffer string, op storeop.Op) (bool, error)
	// Orphan is called before an object is removed that a Put may have left under a path and that no
	// entry should name. Nil: no other program writes to the store, and this flusher's order is
	// enough. False: another writer's object lies there now. It is also called for an object that a
	// Put may have replaced before it turned out that the file is another node's. The object's name
	// is the path with the suffix of the codec.
	Orphan func(ctx context.Context, buffer, path, codec string) (remove bool, err error)
	// Ours returns the objects below a renamed directory that may be this buffer's, and the contents
	// it has flushed under their names. No other one is moved. Nil: all are.
	Ours func(ctx context.Context, buffer string, op storeop.Op, objects []string) (ours []storeop.Owned, err error)
	// OurDirs is Ours of the directories: of no other one an empty rest is removed. Nil: none.
	OurDirs func(ctx context.Context, buffer string, op storeop.Op, dirs []string) (ours []string, err error)
	// Applied is called after a StoreOp was carried out, before it is dropped, so that its record
	// can be removed. After an error both are repeated.
	Applied func(ctx context.Context, buffer string, op storeop.Op) error

	shared bool // others write to the stores too, as Orphan was given

	Node     bb.NodeID
	SpoolDir string // where large compressed contents lie until they are stored; it must exist; "": os.TempDir
	Logger   *slog.Logger
	Now      func() time.Time // nil: time.Now
}

func (o Options) withDefaults() Options {
	if o.Policy == nil {
		o.Policy = func(string) Policy { return Policy{} }
	}
	if o.Pressure == nil {
		o.Pressure = func() bool { return false }
	}
	o.Workers = positive(o.Workers, 8)
	o.PerBuffer = positive(o.PerBuffer, max(1, o.Workers*3/4))
	o.PerStore = positive(o.PerStore, max(1, o.Workers-1))
	o.PerUser = positive(o.PerUser, max(1, o.Workers-1))
	o.SmallPerWorker = positive(o.SmallPerWorker, 1)
	o.Small = positive(o.Small, 64<<10)
	o.Patience = positive(o.Patience, 2*time.Second)
	o.DirtyAge = positive(o.DirtyAge, 5*time.Minute)
	o.Idle = cmp.Or(o.Idle, time.Second)
	o.Backoff[0] = positive(o.Backoff[0], time.Second)
	if o.Backoff[1] < o.Backoff[0] {
		o.Backoff[1] = max(o.Backoff[0], time.Minute)
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	if o.Mine == nil {
		o.Mine = func(context.Context, string, storeop.Op) (bool, error) { return true, nil }
	}
	if o.shared = o.Orphan != nil; !o.shared {
		o.Orphan = func(context.Context, string, string, string) (bool, error) { return true, nil }
	}
	if o.OurDirs == nil {
		o.OurDirs = func(context.Context, string, storeop.Op, []string) ([]string, error) { return nil, nil }
	}
	if o.Applied == nil {
		o.Applied = func(context.Context, string, storeop.Op) error { return nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// positive returns a value, or its default where it is none.
func positive[T int | int64 | time.Duration](v, byDefault T) T {
	if v > 0 {
		return v
	}
	return byDefault
}

// Flusher flushes the files of all buffers of a daemon. Its methods may be called
// concurrently.
type Flusher struct {
	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kicked chan struct{} // wakes the dispatcher

	mu struct {
		sync.Mutex
		closed  bool
		paused  bool
		queues  map[string]*queue
		fair    plan.Fair
		running map[*attempt]struct{} // of all queues, also of dropped ones
		lastID  uint64
		wake    time.Time // when the dispatcher looks again by itself; zero: never
	}
}

// New starts a Flusher.
func New(opts Options) *Flusher {
	f := &Flusher{opts: opts.withDefaults(), kicked: make(chan struct{}, 1)}
	// The life of the flusher, not of a call: ended by Close.
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.mu.queues = map[string]*queue{}
	f.mu.fair = plan.Fair{}
	f.mu.running = map[*attempt]struct{}{}
	f.wg.Go(f.dispatch)
	return f
}

// Close stops flushing. Flights are cancelled, and their files stay dirty. Waiters get
// bb.Unavailable. It returns when all goroutines have ended. A store that does not answer has
// Patience to end. Then the error has the number of the rest. No object of theirs gets its name in
// the store any more, unless the store had begun to name it.
func (f *Flusher) Close() error {
	f.mu.Lock()
	f.mu.closed = true
	for _, q := range f.mu.queues {
		q.close(bb.E(bb.Unavailable, "flush", q.buffer, "the daemon is stopping"))
	}
	f.mu.Unlock()
	f.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.wg.Wait()
	}()
	timer := time.NewTimer(f.opts.Patience)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
	}
	return f.left()
}

// left abandons attempts that Close could not wait for, and returns their description.
func (f *Flusher) left() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for fl := range f.mu.running {
		fl.overtake()
	}
	return bb.E(bb.Unavailable, "flush", "", bb.Count(len(f.mu.running), "request to a store has", "requests to stores have")+" not ended").
		WithRemedy("check the stores that do not answer; unfinished flushes leave their files dirty")
}

// Enqueue adds a file that has become dirty, or a new generation of one that is
// queued already. It never blocks on anything slow.
func (f *Flusher) Enqueue(item Item) {
	now := f.opts.Now()
	// Times of another node's clock, or that a user has set, may lie ahead.
	if item.DirtySince.IsZero() || item.DirtySince.After(now) {
		item.DirtySince = now
	}
	if item.ClosedAt.IsZero() || item.ClosedAt.After(now) {
		item.ClosedAt = now
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.closed {
		return
	}
	q, lim := f.queue(item.Buffer), f.opts.limits(0)
	f.mu.lastID++
	q.add(item, f.mu.lastID)
	if burst := q.arrivals.Add(item.Size, lim, now); !burst || q.draining > 0 || !lim.Looks(f.mu.wake, now) {
		f.kick()
	}
}

// Forget drops a file up to a generation, since it was removed, or lost. A flush in flight is
// cancelled. Use Hold to wait for its end.
func (f *Flusher) Forget(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.mu.queues[key.Buffer]
	if q == nil {
		return
	}
	if e := q.entries[key.File]; e != nil && e.item.Generation <= key.Generation {
		q.drop(e, gone(key))
	}
	q.broadcast()
}

// ForgetBuffer drops all of a destroyed buffer.
func (f *Flusher) ForgetBuffer(buffer string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.mu.queues[buffer]; q != nil {
		q.close(bb.E(bb.NotFound, "flush", buffer, "the buffer was destroyed"))
		delete(f.mu.queues, buffer)
	}
}

// Pause keeps flushes from beginning, of a buffer, or of all if it is "". Flights
// continue, and so do store operations.
func (f *Flusher) Pause(buffer string) { f.setPaused(buffer, true) }

// Resume undoes Pause.
func (f *Flusher) Resume(buffer string) { f.setPaused(buffer, false) }

func (f *Flusher) setPaused(buffer string, paused bool) {
	f.mu.Lock()
	switch {
	case buffer == "":
		f.mu.paused = paused
	case !f.mu.closed:
		f.queue(buffer).paused = paused
	}
	f.mu.Unlock()
	f.kick()
}

// Read is content.Open of a file in a buffer's store. codecName is bb.Flushed.Codec.
func (f *Flusher) Read(ctx context.Context, buffer, path, codecName string, offset int64) (io.ReadCloser, error) {
	store, err := f.opts.Stores(ctx, buffer)
	if err != nil {
		return nil, err
	}
	return content.Open(ctx, store, path, codecName, offset)
}

// Kick wakes the dispatcher after memory became short, or a policy changed.
func (f *Flusher) Kick() { f.kick() }

// Reconsider has files looked at again that are held back at some paths and below them, since their Policy has changed.
func (f *Flusher) Reconsider(buffer string, paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.mu.queues[buffer]; q != nil {
		q.epoch++
		q.release(paths)
	}
	f.kick()
}

func (f *Flusher) kick() {
	select {
	case f.kicked <- struct{}{}:
	default:
	}
}

// queue returns a buffer's queue, made if need be. mu is held.
func (f *Flusher) queue(buffer string) *queue {
	q := f.mu.queues[buffer]
	if q == nil {
		q = newQueue(f, buffer)
		f.mu.queues[buffer] = q
	}
	return q
}

func gone(key Key) error {
	return bb.E(bb.NotFound, "flush", key.Buffer+"/"+key.File.String(), "the file was removed before it was flushed")
}
