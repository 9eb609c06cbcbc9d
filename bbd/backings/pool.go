// Package backings opens the backing stores of buffers, and those that requests name, with the rights
// of their users and within the limits of the daemon, and follows their health. It must never
// depend on the files of a buffer, nor on the order of flushes.
package backings

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"forebay/bbd/access"
	"forebay/bbd/lockrank"
	"forebay/bbd/storerules"
	"forebay/flusher/backing"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/detach"
	"forebay/flusher/backing/health"
	"forebay/flusher/backing/open"
	"forebay/flusher/backing/retry"
	"forebay/internal/bb"
	"forebay/internal/lockorder"
	"forebay/internal/nss"
)

// Buffers are the buffers of the daemon. Its methods may be called concurrently.
type Buffers interface {
	// Buffer returns the record of a buffer. bb.NotFound if there is none.
	Buffer(ctx context.Context, name string) (bb.Buffer, error)
	// Known is Buffer for a buffer that the daemon serves already. It returns the zero record if it does not.
	Known(name string) bb.Buffer
	// Changed is called when a request that was carried out late has changed an object of a buffer's
	// store.
	Changed(name, object string)
}

// Options are the options of opening stores.
type Options struct {
	Instance bb.InstanceID // in the names of unfinished work
	Open     open.Options  // of all stores
	// Rules limit the object stores that users may name. nil means storerules.Default. They do not
	// hold for root and the daemon's user.
	Rules        []storerules.Rule
	Names        *nss.Names // of users, in rules
	Limit        int64      // bytes a second to and from all stores; 0: none
	ClusterLimit int64      // bytes a second of all daemons of the cluster together; 0: none
	Lustre       Lustre
	Buffers      Buffers
	Peers        backing.Peers  // whose unfinished work may be removed
	Emit         func(bb.Event) // may be called concurrently
	Go           func(func())   // starts a goroutine that Close need not wait for
	Log          *slog.Logger
}

// Pool keeps the backing store of each buffer open, with its limits. Each is opened by a goroutine
// of its own, since a file system whose server is away may not answer for hours. No request waits
// for another buffer's store, nor for its own buffer's longer than Patience. Its methods may be
// called concurrently.
type Pool struct {
	o       Options
	ctx     context.Context // of all that it opens
	global  *rate.Limiter   // nil: none
	cluster *rate.Limiter   // this daemon's share of the limit of all; nil: no limit
	wg      sync.WaitGroup
	targets targets
	mu      struct {
		lockorder.Mutex[lockrank.Backings]
		byBuffer map[string]*opening
		shared   map[string]shared         // by backing URL: the store behind it
		calls    map[string]*detach.Calls  // by the result of Shared
		reads    map[uint32]*detach.Calls  // by user: of files that backing URLs name
		health   map[string]*health.Health // by buffer
	}
}

// opening is a buffer's store, open or about to be.
type opening struct {
	done  chan struct{} // closed when the rest is known
	store backing.Store
	err   error
}

// Patience is how long a store has to be opened and looked at before a caller that waits for it gets
// the error NotAnswered.
const Patience = 5 * time.Second

// NotAnswered is the error for a store that does not answer in time.
func NotAnswered(url string) error {
	return bb.E(bb.Unavailable, "open backing", url, fmt.Sprintf("it has not answered for %v", Patience)).
		WithRemedy("check the file system or the store; work continues when it answers")
}

// Answered returns why a call's context ended, if that is why the call failed.
func Answered(ctx context.Context, err error) error {
	var cause *bb.Error
	if err != nil && ctx.Err() != nil && errors.As(context.Cause(ctx), &cause) {
		return cause
	}
	return err
}

// burst is how many bytes a limited store may receive at once.
const burst = 4 << 20

// New returns a pool whose stores are opened in ctx.
func New(ctx context.Context, o Options) *Pool {
	s := &Pool{o: o, ctx: ctx, global: limiter(o.Limit), cluster: clusterLimiter(o.ClusterLimit)}
	s.mu.byBuffer, s.mu.shared, s.mu.calls = make(map[string]*opening), make(map[string]shared), make(map[string]*detach.Calls)
	s.mu.health, s.mu.reads = make(map[string]*health.Health), make(map[uint32]*detach.Calls)
	return s
}

func limiter(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), burst)
}

// Get returns the store of a buffer, and opens it at the first call.
func (s *Pool) Get(ctx context.Context, name string) (backing.Store, error) {
	spec, err := s.o.Buffers.Buffer(ctx, name)
	if err != nil {
		return nil, err
	}
	if spec.Backing == "" {
		return nil, bb.E(bb.Invalid, "flush", bb.Address{Buffer: name}.String(), "the buffer has no backing store")
	}
	s.mu.Lock()
	o := s.mu.byBuffer[name]
	if o == nil {
		o = &opening{done: make(chan struct{})}
		s.mu.byBuffer[name] = o
		s.wg.Go(func() { s.open(o, spec) })
	}
	s.mu.Unlock()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case <-o.done:
		return o.store, o.err
	case <-timer.C:
		return nil, NotAnswered(spec.Backing)
	case <-ctx.Done():
		return nil, bb.Wrap("open backing", spec.Backing, ctx.Err())
	}
}

// open opens a store for its waiters, for as long as that takes. One that was dropped meanwhile is
// closed. One that cannot be opened is retried at its next use.
func (s *Pool) open(o *opening, spec bb.Buffer) {
	defer close(o.done)
	var store backing.Store
	watched := s.Health(spec.Name)
	err := watched.Do("open", "", func() (err error) {
		store, err = s.openStore(s.ctx, spec, watched)
		return err
	})
	s.mu.Lock()
	forgotten := s.mu.byBuffer[spec.Name] != o
	if err != nil && !forgotten {
		delete(s.mu.byBuffer, spec.Name)
	}
	s.mu.Unlock()
	if err == nil && forgotten {
		err = errors.Join(bb.E(bb.NotFound, "open backing", spec.Backing, "the buffer was destroyed"), store.Close())
		store = nil
	}
	o.store, o.err = store, err
}

// Forget closes the store of a buffer that was destroyed.
func (s *Pool) Forget(name string) error {
	s.mu.Lock()
	o := s.mu.byBuffer[name]
	delete(s.mu.byBuffer, name)
	delete(s.mu.health, name)
	s.mu.Unlock()
	return o.close()
}

// close closes a store that is open.
func (o *opening) close() error {
	if o == nil {
		return nil
	}
	select {
	case <-o.done:
		if o.store != nil {
			return o.store.Close()
		}
	default: // open detects that the entry was dropped
	}
	return nil
}

// Close closes all stores. The pool's context has ended, and with it all attempts to open one.
func (s *Pool) Close() error {
	s.wg.Wait()
	s.mu.Lock()
	all := s.mu.byBuffer
	s.mu.byBuffer = make(map[string]*opening)
	s.mu.Unlock()
	var errs []error
	for _, o := range all {
		errs = append(errs, o.close())
	}
	return errors.Join(errs...)
}

// Health returns the health of a buffer's store.
func (s *Pool) Health(name string) *health.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.mu.health[name]
	if h == nil {
		h = health.New(nil)
		s.mu.health[name] = h
	}
	return h
}

// noticeEvery is how often stores are checked for changes to log.
const noticeEvery = time.Second

// LogTrouble logs when a buffer's store begins to fail or does not answer, and when it answers
// again, until the pool's context ends.
func (s *Pool) LogTrouble() {
	seen := make(map[*health.Health]*health.Notices)
	tick := time.NewTicker(noticeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
		s.mu.Lock()
		all := maps.Clone(s.mu.health)
		s.mu.Unlock()
		lustre := false
		now, still := time.Now(), make(map[*health.Health]*health.Notices, len(all))
		for name, h := range all {
			n := cmp.Or(seen[h], new(health.Notices))
			still[h] = n
			status := h.Status()
			notice, lasted := n.Next(status, now)
			s.log(name, notice, &status, lasted)
			lustre = lustre || status.Condition == health.Silent && s.onLustre(s.o.Buffers.Known(name).BackingID)
		}
		s.stepTargets(lustre, now)
		seen = still // without those of buffers that were destroyed
	}
}

func (s *Pool) log(name string, notice health.Notice, status *health.Status, lasted time.Duration) {
	about := []any{"buffer", name, "backing", s.o.Buffers.Known(name).Backing}
	switch notice {
	case health.Ends:
		s.o.Emit(bb.Event{Kind: bb.EventStoreWorks, Buffer: name, Reason: "after " + lasted.Round(time.Second).String()})
	case health.Begins:
		s.o.Emit(bb.Event{Kind: bb.EventStoreFails, Buffer: name, Path: status.Name, Reason: status.Reason})
	}
	switch {
	case notice == health.Ends:
		s.o.Log.Info("a store answers again", append(about, "after", lasted.Round(time.Millisecond))...)
	case notice == health.Begins && status.Condition == health.Silent:
		s.o.Log.Warn("a store does not answer", append(about, "since", status.Since, "reason", status.Reason, "waiting", status.Waiting)...)
	case notice == health.Begins:
		s.o.Log.Warn("a store fails", append(about, "since", status.Since, "operation", status.Op, "reason", status.Reason, "attempts", status.Attempts)...)
	}
}

// Contents are a store's contents at the time when a buffer is made.
type Contents struct {
	Name  string // of one of its files; "": there is none, or it is unknown
	Files int    // as far as they were counted
}

// Probe opens a store for a user. It returns whether it can be used, which store it is, and its
// contents.
func (s *Pool) Probe(ctx context.Context, c access.Caller, spec bb.Buffer, where bb.Backing, count int) (id string, held Contents, err error) {
	if where.Access() == bb.AccessAsUser {
		if _, err := s.storeUser(c, "backing", where.Path); err != nil {
			return "", held, err
		}
	}
	if err := s.mayUse(c, where); err != nil { // the caller is not always the buffer's owner
		return "", held, err
	}
	o := s.o.Open
	o.User, o.Calls = ownerOf(&spec), s.callsTo(spec.Backing)
	o.OfServers = s.ofServers(spec.Backing)
	if spec.BackingID, err = open.Identify(ctx, spec.Backing, o); err != nil {
		return "", held, err
	}
	store, err := s.openStore(ctx, spec, nil)
	if err != nil {
		return "", held, err
	}
	defer store.Close()
	if err := store.Check(ctx); err != nil {
		return "", held, err
	}
	held, err = contentsOf(ctx, store, count)
	if bb.KindOf(err) == bb.Permission && spec.Existing != bb.ExistingRefuse {
		err = nil // a directory of another user's is in the tree
	}
	if err == nil && held.Files > 0 && spec.Existing == bb.ExistingRefuse {
		err = bb.E(bb.Exists, "backing", spec.Backing, "it holds files already: "+bb.FoundText(held.Files, held.Name)).
			WithRemedy("choose an empty one; or keep these files, with --existing=keep, or have them replaced, with --existing=overwrite")
	}
	return spec.BackingID, held, err
}

// contentsOf counts the objects of a store to a limit.
func contentsOf(ctx context.Context, store backing.Store, limit int) (held Contents, err error) {
	enough := errors.New("enough is known")
	err = store.List(ctx, "", func(o backing.Object) error {
		held.Name = cmp.Or(held.Name, o.Name)
		if held.Files++; held.Files == limit {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return held, err
}

// Shared names the store behind a backing URL, for bounds that buffers of one store share: the
// mounted file system, or the endpoint. It is "" if that was not looked up.
func (s *Pool) Shared(url string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.shared[url].name
}

// InDirectory reports whether LookUp has found the store of a backing URL to be a directory.
func (s *Pool) InDirectory(url string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.shared[url].directory
}

// ofServers reports whether LookUp has found the store of a backing URL to be on a file system of servers.
func (s *Pool) ofServers(url string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.shared[url].ofServers
}

// LookUp determines the result of Shared from now on. It uses neither file system nor endpoint.
func (s *Pool) LookUp(url string) string {
	to := sharedOf(url)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.shared[url] = to
	return to.name
}

// callsTo returns the counter of the calls that hang in a store.
func (s *Pool) callsTo(url string) *detach.Calls {
	name := s.LookUp(url)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.mu.calls[name]
	if c == nil {
		c = &detach.Calls{}
		s.mu.calls[name] = c
	}
	return c
}

// shared are the common properties of the backing URLs of one store.
type shared struct {
	name      string // as Shared returns it
	directory bool   // the store is a directory of the nodes
	ofServers bool   // on a file system whose servers may be away
}

// sharedOf finds the store behind a backing URL. A file system is identified by the number of its device,
// so that one that is mounted twice is one.
func sharedOf(url string) shared {
	where, err := bb.ParseBacking(url)
	if err != nil || url == "" {
		return shared{}
	}
	if !where.IsDirectory() {
		return shared{name: where.Scheme + " " + where.Endpoint()}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return shared{name: where.Scheme, directory: true}
	}
	device, kind := mountOf(string(mounts), where.Path)
	return shared{where.Scheme + " " + device, true, isOfServers(kind)}
}

// isOfServers reports whether the files of a kind of file systems are served by other processes, on
// other machines as a rule. The kinds of this machine's disks and memory are listed, since those of
// servers are many.
func isOfServers(kind string) bool {
	switch kind {
	case "", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "vfat", "exfat", "ntfs3", "fuseblk", "tmpfs", "ramfs", "overlay", "squashfs":
		return false
	}
	return true
}

// mountOf finds the device and the kind of the file system that a path is on in a list of mounts (proc(5)),
// as the path is written. Following symbolic links could hang.
func mountOf(mountinfo, path string) (device, kind string) {
	longest := -1
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		// The last of several mounts at one place covers the others.
		if point := unescape.Replace(fields[4]); bb.Within(path, point) && len(point) >= longest {
			longest, device = len(point), fields[2]
			_, rest, _ := strings.Cut(line, " - ") // optional fields end with it
			kind, _, _ = strings.Cut(rest, " ")
		}
	}
	return device, kind
}

// unescape reverts the kernel's escapes of mount points (seq_file: mangle).
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// openStore opens a buffer's backing store with its own limit. It is unavailable while
// another directory lies at its place than when the buffer was made.
//
// For a buffer that an older release made, nothing is recorded, and nothing is recorded later. The
// first check might see the mount point of a file system that is not mounted. Its store is the one
// that is found when it is opened, for the life of the daemon.
func (s *Pool) openStore(ctx context.Context, spec bb.Buffer, watched *health.Health) (backing.Store, error) {
	o := s.o.Open
	o.POSIX.Root = spec.BackingID
	if spec.Existing.Keeps() {
		o.Mark = fmt.Sprint(spec.Name, ".", spec.Created.UnixNano())
	}
	o.Changed = func(object string) { s.o.Buffers.Changed(spec.Name, object) }
	o.Health = watched
	o.User = ownerOf(&spec)
	return s.openWith(ctx, ownerCred(&spec), spec.Backing, spec, o)
}

// ownerOf returns the user with whose rights a buffer's backing is reached. A writer into another
// user's buffer hands the bytes to its owner.
func ownerOf(spec *bb.Buffer) asuser.User { return asuser.User{UID: spec.UID, GID: spec.GID} }

// storeUser returns the user with whose rights a path is reached for a session. The kernel checks these
// rights. A daemon that cannot act as others reaches its own user's files for that user alone.
func (s *Pool) storeUser(c access.Caller, op, path string) (asuser.User, error) {
	switch {
	case c.System:
	case c.NoRoot:
		return asuser.User{}, access.Denied(op, path, "act as root over the network").WithRemedy("use the socket of a daemon on this node")
	case c.UID == 0: // a holder of the cluster key has the rights of a daemon
	case s.o.Open.Workers == nil:
		return asuser.User{}, access.Denied(op, path, "use files with the rights of the daemon's user").WithRemedy("start a daemon of your own: bbd --dev")
	}
	return asuser.User{UID: c.UID, GID: c.GIDs[0]}, nil
}

// OpenURL opens a store for a user on behalf of a buffer, within the limits of both.
func (s *Pool) OpenURL(ctx context.Context, c access.Caller, url string, spec bb.Buffer) (backing.Store, error) {
	where, err := bb.ParseBacking(url)
	if err != nil {
		return nil, err
	}
	o := s.o.Open
	if where.Access() == bb.AccessAsUser {
		if o.User, err = s.storeUser(c, "use", where.Path); err != nil {
			return nil, err
		}
	}
	return s.openWith(ctx, c, url, spec, o)
}

func (s *Pool) openWith(ctx context.Context, c access.Caller, url string, spec bb.Buffer, o open.Options) (backing.Store, error) {
	if err := s.guard(c, url, &o.S3); err != nil {
		return nil, err
	}
	o.Owner = backing.NewOwner(s.o.Instance)
	o.Owner.Peers = s.o.Peers
	// One attempt, since the flusher queues failed files again, with backoff, for ever.
	o.Retry = retry.Options{Attempts: 1}
	o.Calls = s.callsTo(url)
	o.OfServers = s.ofServers(url)
	for _, l := range []*rate.Limiter{s.global, s.cluster, limiter(spec.FlushLimit)} {
		if l != nil {
			o.Limiters = append(o.Limiters, l)
		}
	}
	return open.Open(ctx, url, o)
}
