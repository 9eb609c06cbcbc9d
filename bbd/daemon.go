// Package bbd is the daemon as a library. It joins the store of bytes, the namespace and the flusher, and
// serves clients' sessions. cmd/bbd passes it a configuration. It must never read a configuration file, a flag
// or the environment.
package bbd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"forebay/bbd/alloc"
	"forebay/bbd/aside"
	"forebay/bbd/backings"
	"forebay/bbd/batch"
	"forebay/bbd/buffer"
	"forebay/bbd/change"
	"forebay/bbd/cluster"
	"forebay/bbd/drain"
	"forebay/bbd/entries"
	"forebay/bbd/fabric"
	"forebay/bbd/flushrule"
	"forebay/bbd/handle"
	"forebay/bbd/ids"
	"forebay/bbd/leftovers"
	"forebay/bbd/listen"
	"forebay/bbd/metrics"
	"forebay/bbd/nodes"
	"forebay/bbd/observe"
	"forebay/bbd/reassert"
	"forebay/bbd/registry"
	"forebay/bbd/rpc"
	"forebay/bbd/staging"
	"forebay/bbd/startup"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/bbd/transfer"
	"forebay/bbd/txn"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/nss"
	"forebay/internal/unixsocket"
	"forebay/internal/wire"
	"forebay/meta"
	"forebay/meta/conn"
	"forebay/meta/gossip"
)

// Daemon is one running bbd.
//
//	New ──▶ starting ──recovered──▶ ready ──Stop──▶ stopping ──▶ stopped
//
// At a start, memory is adopted and the namespace is compared with it. Clients may connect when New
// returns, and wait for parts that are not there yet. At a stop there are no new sessions and
// leases, commits in progress end, and optionally everything is drained.
//
// Mutexes are taken in this order. Those above the line order operations, and are held across I/O.
// Those below it guard state, and are not. Package lockrank has their places, which builds with the
// tag lockorder check.
//
//	file.File.mu           one generation's commits; a rename locks two, in the order of their places
//	Buffer.directories     of package change: a directory is renamed for a transaction
//	Cache.restores         files that come back from the store, one at a time
//	readcache.Source.mu    reads of flushes past memory
//	origin.Owner.mu        a generation's handles at the nodes that have it
//	origin.Object.mu       one reader's object on the store
//	────
//	alloc.Allocator.mu     writers that wait for a segment
//	backings.Pool.mu       backing stores of all buffers
//	registry.Table.mu      buffers by name
//	file.Files, dirty.Files, readers, copies    the four parts of a buffer, in this order
//	alloc.Writers, remoteSegments               segments that the daemon fills, by user and by session
//	alloc.Writer.mu, remoteSegment.mu             one of them
//	all others             no other mutex of the daemon is taken under one of these
//
// The store, the namespace and gossip have mutexes of their own, under which nothing of the daemon is
// called. The flusher calls back under its own, for a buffer's policy, so registry.Table.mu comes after it.
type Daemon struct {
	cfg   Config
	log   *slog.Logger
	epoch uint64 // this start of the daemon
	since time.Time
	lifecycle
	modes

	memory
	outflow
	meta    *meta.Meta
	health  *conn.Health // of the namespace, before meta is there too
	server  *rpc.Server
	observe *observe.Observer
	cluster *cluster.Cluster // nil: alone

	ids     *ids.Claimed
	buffers registry.Table[*buffer.Buffer]
	host    *buffer.Host // the parts of the daemon that they use; set before there is one
	aside   *aside.List  // buffers and files that are kept and not served

	listening struct {
		admin    string // where the admin server listens
		tcp      string // where sessions over TCP are accepted
		sessions []net.Listener
	}

	work struct { // that requests are for
		buffers   *registry.Service[*buffer.Buffer]
		entries   *entries.Service
		files     *handle.Service
		changes   *change.Service
		batch     *batch.Controller
		txns      *txn.Service
		transfers *transfer.Service
		stages    *staging.Service
		drains    *drain.Service
		statuses  *status.Service
		nodes     *nodes.Service
	}
}

// lifecycle is the daemon as something that starts and stops.
type lifecycle struct {
	state    atomic.Value             // string: see Daemon
	waitsFor atomic.Pointer[bb.Error] // why a start waits for another daemon; nil: it does not
	ctx      context.Context          // ends when the daemon stops
	cancel   context.CancelFunc
	wg       sync.WaitGroup // of all that ends with ctx
}

// modes are the modes that others request of a running daemon.
type modes struct {
	draining drain.NodeState // whether anything new is accepted
	pressure atomic.Bool     // memory is short; flush without waiting
	short    flushrule.Wake  // memory has become short
	staging  atomic.Int64    // tasks of stage-ins
}

// memory is where the bytes of files are, and the ways to them.
type memory struct {
	store  *store.Store
	fabric *fabric.Fabric // nil: none
	alloc  *alloc.Allocator
}

// outflow has the parts that carry bytes to backing stores.
type outflow struct {
	flusher    *flusher.Flusher
	stores     *backings.Pool
	names      *nss.Names         // of users, in rules
	unfinished *leftovers.Tracker // set before any store is opened
}

// New starts a daemon. It adopts the content of memory, reconciles it with the namespace, and serves clients until
// Stop. An error names the fault to mend.
func New(ctx context.Context, cfg Config) (*Daemon, error) {
	d := &Daemon{cfg: cfg, log: cfg.Log, since: time.Now(), health: &conn.Health{}, outflow: outflow{names: &nss.Names{Log: cfg.Log}}}
	d.cfg.Meta.Health = d.health
	d.cfg.Meta.Revision = func(of *bb.Buffer) uint64 { return reassert.NewestRevision(d.store, of) }
	if d.cfg.Members != nil { // others may have made buffers with a log, whichever engine new ones get here
		d.cfg.Meta.Peers = &peers{d: d}
	}
	d.observe = observe.New(metrics.New(cfg.Version, d.measure))
	d.ctx, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.server, d.aside = d.newServer(), newAside(d)
	d.short = flushrule.NewWake()
	d.state.Store("starting")
	if d.cfg.Steps == nil {
		d.cfg.Steps = startup.New(d.log, "")
		defer d.cfg.Steps.End()
	}
	if err := d.start(ctx); err != nil {
		d.cfg.Steps.At("the parts that were started to end", nil)
		d.close()
		return nil, err
	}
	d.state.Store("ready")
	if d.cluster != nil && wire.MaxVersion >= wire.VersionJobs {
		d.wg.Go(d.work.transfers.Run)
		d.wg.Go(d.work.batch.Run)
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context) (err error) {
	err = listen.Check(listen.Addresses{
		TCP: d.cfg.TCP, Transfers: []string{d.cfg.Fabric, d.cfg.OFI.Listen}, Guarded: len(d.cfg.Keys.Keys()) > 0 || d.cfg.TLS != nil, Insecure: d.cfg.Insecure,
	})
	if err != nil {
		return err
	}
	step := d.cfg.Steps.At
	step("the administrative listeners", nil)
	if err := d.serveAdmin(); err != nil { // before anything that may wait, since it reports the wait
		return err
	}
	options := d.cfg.Store
	options.Log, options.KeepUncommitted = d.log, true
	step("the fabric's provider", nil)
	d.fabric, err = fabric.New(fabric.Options{
		Listen: d.cfg.Fabric, AnyPort: d.cfg.FabricAnyPort, OFI: d.cfg.OFI, TLS: d.cfg.TLS, Log: d.log,
	})
	if err != nil {
		return err
	}
	options.RegionMade, options.RegionGone = d.fabric.Made, d.fabric.Gone
	options.Owner = d.connect
	step("the lock of the memory tier and the disk tier", nil)
	if d.store, err = store.Open(ctx, options); err != nil {
		return err
	}
	d.observe.Metrics.Damaged(len(d.store.Damage()))
	d.nameForeign()
	step("the fabric to register memory", nil)
	if err := d.fabric.Register(d.store); err != nil {
		return err
	}
	d.cluster = cluster.New(cluster.Options{
		Node: d.cfg.Node, Instance: d.store.Instance(), Version: d.cfg.Version, Members: d.cfg.Members, Keys: d.cfg.Keys,
		TLS: d.cfg.TLS, Silence: d.cfg.silence(), Log: d.log, Moved: d.observe.Metrics.Moved,
	})
	step("another daemon that serves and that this one does not work with", d.waitsForWhat)
	if err := d.cluster.WaitForCompatible(ctx, d.waitsFor.Store); err != nil {
		return err
	}
	step("the namespace: ids of its own", d.silence)
	held := reassert.HeldFiles(d.store)
	if err := d.meta.IDs().Raise(ctx, reassert.NewestBlock(held)); err != nil {
		return err
	}
	if d.ids, err = ids.Claim(ctx, d.meta.IDs()); err != nil {
		return err
	}
	d.epoch = d.ids.Next()
	step("the notes of unfinished uploads", nil)
	d.openStores()
	d.work.txns, d.work.transfers, d.work.nodes, d.work.statuses = d.newTxns(), d.newTransfers(), d.newNodes(), d.newStatuses()
	d.work.stages = d.newStages()
	d.work.batch = d.newBatch()
	noted := d.unfinished.Noted()
	step("the flusher", nil)
	if err := d.startFlusher(); err != nil {
		return err
	}
	d.work.buffers, d.work.drains = d.newRegistry(), d.newDrains()
	d.alloc = d.newAllocator()
	d.host = d.newHost()
	d.work.entries, d.work.files, d.work.changes = d.newEntryService(), d.newFileService(), d.newChangeService()
	d.wg.Go(d.alloc.Run)
	step("the namespace: buffers and files", d.silence)
	if err := d.recover(ctx, held); err != nil {
		return err
	}
	step("the sockets", nil)
	d.wg.Go(d.work.txns.Reap) // not before, since it moves entries that recover restores
	d.wg.Go(d.watchForgotten)
	d.wg.Go(d.holdBack)
	d.wg.Go(func() { d.unfinished.SweepNoted(noted) })
	if d.cluster != nil {
		d.wg.Go(d.work.buffers.Follow)
		d.wg.Go(d.repair)
	}
	return d.listen()
}

// connect connects to the namespace, and returns the owner of this daemon's memory. The
// store has its folders locked by then, and has touched nothing in them.
func (d *Daemon) connect(ctx context.Context) (o store.Owner, err error) {
	d.cfg.Steps.At("the namespace to answer", d.silence)
	if d.meta, err = meta.Connect(ctx, d.cfg.Meta); err != nil {
		return o, err
	}
	o.Node, o.AnyNode = string(d.cfg.Node), d.cfg.Members == nil
	o.Namespace, err = d.meta.Identity(ctx)
	d.cfg.Steps.At("the regions in memory and on disk to be read", nil)
	return o, err
}

// silence returns why the namespace does not answer. If it answers, or if that is unknown, it
// returns "".
func (d *Daemon) silence() string {
	status := d.health.Status()
	if trouble := status.Trouble(); trouble != nil {
		return trouble.String()
	}
	return ""
}

// waitsForWhat returns why another daemon keeps this one from serving, or "" if none does.
func (d *Daemon) waitsForWhat() string {
	if e := d.waitsFor.Load(); e != nil {
		return e.Error()
	}
	return ""
}

// Self returns this daemon as its peers should see it, now.
func (d *Daemon) Self() gossip.Member {
	stats := d.store.Stats()
	m := gossip.Member{
		Node: d.cfg.Node, Instance: d.store.Instance(), State: gossip.Starting, Session: d.listening.tcp, Admin: d.listening.admin,
		MinVersion: wire.MinVersion, MaxVersion: wire.MaxVersion, Server: "bbd " + d.cfg.Version, Since: d.since,
		Fabric: d.fabric.Addr(),
		Memory: usage(&stats.Memory), Disk: usage(&stats.Disk),
	}
	if d.staging.Load() > 0 {
		// Files that are being staged in may be dirty, and the others leave this daemon a share of
		// the stores for them.
		m.Memory.Dirty = max(m.Memory.Dirty, 1<<20)
	}
	switch {
	case d.draining.Active():
		m.State = gossip.Draining
	case d.state.Load() == "ready":
		m.State = gossip.Ready
	case d.state.Load() == "stopping":
		m.State = gossip.Leaving
	}
	return m
}

// usage is how full a tier is. Bytes that can be freed at once count as free.
func usage(t *store.TierStats) gossip.Tier {
	return gossip.Tier{Capacity: t.Capacity, Free: t.Free + t.Evictable, Dirty: t.Dirty}
}

// Admin returns the address of the admin server, "" for none.
func (d *Daemon) Admin() string { return d.listening.admin }

// emit publishes an event of this node.
func (d *Daemon) emit(e bb.Event) {
	e.Time, e.Node = time.Now(), d.cfg.Node
	d.meta.Publish(e)
}

// listen opens the listeners of sessions, the Unix domain socket last, so a client that finds it
// also finds the others.
func (d *Daemon) listen() error {
	if d.cfg.TCP != "" {
		tcp, at, err := listen.TCP(d.ctx, d.cfg.TCP, d.cfg.TLS)
		if err != nil {
			return err
		}
		d.listening.tcp = at
		d.listening.sessions = append(d.listening.sessions, tcp)
	}
	if err := d.fabric.Listen(d.ctx); err != nil {
		return err
	}
	// Every user on the node may connect, since the kernel identifies the user, and that decides.
	unix, err := unixsocket.Listen(d.cfg.Socket, 0o666)
	if err != nil {
		return err
	}
	d.listening.sessions = append(d.listening.sessions, unix)
	for _, l := range d.listening.sessions {
		d.wg.Go(func() { d.server.Serve(d.ctx, l) })
	}
	return nil
}

// Stop ends the daemon in order. There are no new sessions or leases, commits in progress end,
// sessions close, everything is drained if the configuration requires it and ctx allows, and the
// content of memory stays for the next start. It reports the steps that failed. The daemon has
// stopped all the same.
func (d *Daemon) Stop(ctx context.Context) error {
	d.state.Store("stopping")
	for _, l := range d.listening.sessions {
		l.Close()
	}
	d.endSessions()
	var err error
	if d.cfg.Flush.DrainOnStop {
		err = d.drainAll(ctx)
	}
	return errors.Join(err, d.close())
}

func (d *Daemon) endSessions() {
	// Commits in progress end first, unless the namespace server does not answer.
	impatient := time.AfterFunc(stopGrace, d.cancel)
	defer impatient.Stop()
	// A request that hangs in a file system whose server is away does not even end then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), 2*stopGrace)
	defer cancel()
	if !d.server.Shutdown(ctx) {
		d.log.Warn("stopping without the end of all requests: a store does not answer")
	}
}

// stopGrace is how long a stop waits for changes of the namespace that are under way.
const stopGrace = 10 * time.Second

func (d *Daemon) drainAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Flush.DrainTimeout)
	defer cancel()
	var errs []error
	for _, b := range d.buffers.All() {
		if b.Spec().Backing == "" {
			continue
		}
		if err := d.work.drains.All(ctx, b); err != nil {
			errs = append(errs, fmt.Errorf("drain %s: %w", b.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// endsWithin waits for a group for some time, and reports whether it has ended.
func endsWithin(wg *sync.WaitGroup, patience time.Duration) bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wg.Wait()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-timer.C:
		return false
	}
}

// close stops the parts that start started, in the opposite order.
func (d *Daemon) close() error {
	d.cancel()
	for _, l := range d.listening.sessions {
		l.Close()
	}
	d.cluster.Close()
	var errs []error
	if !endsWithin(&d.wg, stopGrace) {
		errs = append(errs, bb.E(bb.Unavailable, "stop", "", "not all work has ended: a store does not answer").
			WithRemedy("check the file systems of the buffers"))
	}
	if d.flusher != nil {
		errs = append(errs, d.flusher.Close())
	}
	if d.stores != nil {
		errs = append(errs, d.stores.Close())
	}
	if d.meta != nil {
		d.meta.Close()
	}
	errs = append(errs, d.fabric.Close())
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	d.state.Store("stopped")
	return errors.Join(errs...)
}
