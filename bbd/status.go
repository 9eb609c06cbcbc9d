package bbd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	"forebay/bbd/access"
	"forebay/bbd/alloc"
	"forebay/bbd/rpc"
	"forebay/bbd/store"
	"forebay/flusher/backing/health"
	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/events"
	"forebay/meta/kv"
)

// Status is what GET /status and bbctl status show. Sizes are bytes, ages seconds.
type Status struct {
	Node     bb.NodeID        `json:"node"`
	Instance string           `json:"instance"`
	Life     string           `json:"life"`              // of the instance: each start is another one
	Earlier  []string         `json:"earlier,omitempty"` // instances that the state folder had before
	Version  string           `json:"version"`
	State    string           `json:"state"`
	Since    time.Time        `json:"since"`
	Admin    string           `json:"admin,omitempty"`
	Memory   Tier             `json:"memory"`
	Disk     Tier             `json:"disk"`
	Buffers  []BufferStatus   `json:"buffers"`
	Sessions []SessionStatus  `json:"sessions"`
	Waiting  alloc.WaitStatus `json:"waiting"`
	NATS     NATSStatus       `json:"nats"`
	Damaged  []string         `json:"damaged,omitempty"` // what recovery could not read
	Foreign  []ForeignStatus  `json:"foreign,omitempty"` // what is another node's, or of another namespace
	Counters Counters         `json:"counters"`

	// StoreWorkers are the processes that reach stores as their users; nil: this daemon has none.
	StoreWorkers *WorkerStatus `json:"store_workers,omitempty"`
	// WithoutBuffer is what memory holds of buffers that the namespace does not have.
	WithoutBuffer []WithoutBuffer `json:"without_buffer,omitempty"`
}

// Tier is how full a tier is.
type Tier struct {
	Capacity   int64 `json:"capacity"`
	Populated  int64 `json:"populated"`
	Used       int64 `json:"used"`
	Live       int64 `json:"live"`
	Dirty      int64 `json:"dirty"`
	Clean      int64 `json:"clean"`
	Pinned     int64 `json:"pinned"`
	Leased     int64 `json:"leased"`
	Free       int64 `json:"free"`
	Waste      int64 `json:"waste"`
	Occupied   int64 `json:"occupied,omitempty"` // by writers that lost their leases and may still write there
	Populating bool  `json:"populating,omitempty"`
}

// BufferStatus is how one buffer stands towards its store.
type BufferStatus struct {
	Name         string       `json:"name"`
	State        string       `json:"state"`
	Backing      string       `json:"backing,omitempty"`
	Capacity     int64        `json:"capacity,omitempty"`
	Resident     int64        `json:"resident"`
	Dirty        int64        `json:"dirty"`
	OpenFiles    int          `json:"open_files"`
	Queued       int          `json:"queued"`                      // files that wait for their flush
	QueuedBytes  int64        `json:"queued_bytes"`                //
	Flushing     int          `json:"flushing"`                    // files on their way
	Stalled      int          `json:"stalled,omitempty"`           // of them, those that the store has not answered for long
	StalledFor   float64      `json:"stalled_for,omitempty"`       // seconds since it answered one of them
	OldestFlight float64      `json:"oldest_flight_age,omitempty"` // seconds since the oldest flush on its way began
	Held         int          `json:"held"`                        // files held back by a keep pattern
	Conflicts    int          `json:"conflicts,omitempty"`         // files under whose name the store has what the buffer did not write
	InConflict   []InConflict `json:"in_conflict,omitempty"`       // the first of them
	Rate         float64      `json:"rate"`                        // bytes a second to the store
	ETA          float64      `json:"eta,omitempty"`
	OldestDirty  float64      `json:"oldest_dirty_age,omitempty"`
	StoreOps     int          `json:"store_ops_pending"`          // renames and removals that the store has not seen
	Lacking      int          `json:"under_replicated,omitempty"` // files that want a second copy and have none
	LastError    *FlushError  `json:"last_error,omitempty"`
	Store        *StoreHealth `json:"store,omitempty"`       // how the backing store answers; nil: there is none, or it was not used
	Unexplained  []NoEntry    `json:"unexplained,omitempty"` // dirty bytes that no entry explains
}

// InConflict is a file under whose name the store has what the buffer did not write.
type InConflict struct {
	Path   string `json:"path"`
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason"`
}

// maxConflicts bounds BufferStatus.InConflict: a status is asked for again and again.
const maxConflicts = 100

// NoEntry is a file whose bytes are here, and that the namespace does not know.
type NoEntry struct {
	File       string `json:"file"`
	Generation uint64 `json:"generation"`
	Path       string `json:"path,omitempty"` // where it lay, as far as is known
	Bytes      int64  `json:"bytes"`
	Reason     string `json:"reason"`
}

// StoreHealth is how a backing store answers all that the daemon asks of it for a buffer:
// flushes, renames, removals and reads.
type StoreHealth struct {
	State    string    `json:"state"` // answers, failing (calls fail), silent (calls have no answer)
	Since    time.Time `json:"since,omitzero"`
	For      float64   `json:"for,omitempty"` // seconds since then
	Op       string    `json:"op,omitempty"`  // that failed or waits
	Path     string    `json:"path,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Attempts int       `json:"attempts,omitempty"` // that failed since
	Waiting  int       `json:"waiting,omitempty"`  // calls without an answer
	Tried    time.Time `json:"tried,omitzero"`     // when a call failed last
	Targets  []string  `json:"targets,omitempty"`  // of Lustre, those that do not answer this node, while the store is silent
}

// FlushError is the newest failure of a buffer's store that has not been overcome.
type FlushError struct {
	Kind     string    `json:"kind"`
	Reason   string    `json:"reason"`
	Path     string    `json:"path,omitempty"`
	At       time.Time `json:"at"`
	Attempts int       `json:"attempts"`
}

// SessionStatus is one connected client.
type SessionStatus struct {
	ID       uint64    `json:"id"`
	Client   string    `json:"client"`
	UID      uint32    `json:"uid"`
	PID      int32     `json:"pid,omitempty"`
	Since    time.Time `json:"since"`
	Mapped   bool      `json:"mapped"`
	Path     string    `json:"path"` // how its bytes travel: shm, ofi/PROVIDER, tcp, messages
	Handles  int       `json:"handles"`
	Leases   int       `json:"leases"`
	InFlight int64     `json:"in_flight"`
}

// NATSStatus is how the namespace's server stands.
type NATSStatus struct {
	Connected bool              `json:"connected"` // to a server, which may be one without a majority
	URL       string            `json:"url"`
	LastError string            `json:"last_error,omitempty"`
	Trouble   *NamespaceTrouble `json:"trouble,omitempty"` // nil: the namespace answers
}

// NamespaceTrouble is why the namespace does not answer.
type NamespaceTrouble struct {
	Since  time.Time `json:"since"`
	For    float64   `json:"for"` // seconds since then
	Reason string    `json:"reason"`
	Remedy string    `json:"remedy"`
}

// Counters count since the daemon started.
type Counters struct {
	Commits        int64 `json:"commits"`
	BytesCommitted int64 `json:"bytes_committed"`
	ChecksumErrors int64 `json:"checksum_errors"`
	LostBytes      int64 `json:"lost_bytes"`
	Evicted        int64 `json:"evicted_bytes"`
	Spilled        int64 `json:"spilled_bytes"`
}

// Status describes the daemon at this moment.
func (d *Daemon) Status() Status { return d.statusFor(access.Caller{System: true}, "") }

// statusFor leaves out what a user has no right to see.
func (d *Daemon) statusFor(c access.Caller, only string) Status {
	stats := d.store.Stats()
	s := Status{
		Node: d.cfg.Node, Instance: d.store.Instance().String(), Life: d.unfinished.Life(), Earlier: d.unfinished.Earlier(), Version: d.cfg.Version,
		State: d.state.Load().(string), Since: d.since, Admin: d.listening.admin,
		Memory: tierStatus(stats.Memory), Disk: tierStatus(stats.Disk),
		Buffers: []BufferStatus{}, Sessions: []SessionStatus{},
		Waiting: d.alloc.Status(c), NATS: natsStatus(d.health.Status()), Counters: d.observe.counters(),
	}
	s.Memory.Populating = stats.Populating
	for _, b := range d.allBuffers() {
		spec := b.Spec()
		if (only == "" || only == b.name) && c.Permits(spec.UID, spec.GID, spec.Mode, access.Execute) {
			s.Buffers = append(s.Buffers, b.status(stats.Buffers[b.name]))
		}
	}
	for _, damage := range d.store.Damage() {
		s.Damaged = append(s.Damaged, damage.What)
	}
	if c.System {
		s.Foreign = d.foreignStatus()
		s.WithoutBuffer = d.withoutBuffer()
	}
	s.Sessions, s.StoreWorkers = d.sessionStatus(c), d.workerStatus(c)
	return s
}

func tierStatus(t store.TierStats) Tier {
	return Tier{
		Capacity: t.Capacity, Populated: t.Populated, Used: t.Used, Live: t.Live, Dirty: t.Dirty,
		Clean: t.Clean, Pinned: t.Pinned, Leased: t.Leased, Free: t.Free, Waste: t.Waste, Occupied: t.Occupied,
	}
}

// statusOfStart is the status of a daemon that is starting: of what it has not opened yet,
// nothing is known.
func (d *Daemon) statusOfStart() Status {
	return Status{
		Node: d.cfg.Node, Version: d.cfg.Version, State: "starting", Since: d.since, Admin: d.listening.admin,
		Buffers: []BufferStatus{}, Sessions: []SessionStatus{}, NATS: natsStatus(d.health.Status()),
	}
}

func natsStatus(s kv.Status) NATSStatus {
	n := NATSStatus{Connected: s.Connected, URL: s.Server, LastError: s.LastError}
	if t := s.Trouble(); t != nil {
		n.Trouble = &NamespaceTrouble{Since: t.Since, For: time.Since(t.Since).Seconds(), Reason: t.Reason, Remedy: t.Remedy}
	}
	return n
}

func (b *buffer) status(bytes store.BufferStats) BufferStatus {
	spec := b.Spec()
	s := BufferStatus{
		Name: b.name, State: string(spec.State), Backing: spec.Backing, Capacity: spec.Capacity,
		Resident: bytes.Resident, Dirty: bytes.Dirty, OpenFiles: b.open.count(),
	}
	f := b.d.flusher.BufferStats(b.name)
	s.Queued, s.QueuedBytes, s.Flushing, s.Held = f.Queued, f.QueuedBytes, f.InFlight, f.Held
	s.Conflicts = f.Conflicts
	for _, c := range b.d.flusher.Conflicts(b.name, maxConflicts) {
		s.InConflict = append(s.InConflict, InConflict{c.Path, c.Bytes, c.Err.Error()})
	}
	s.Rate, s.StoreOps, s.Lacking = f.Rate, f.StoreOps, len(b.underReplicated())
	if s.Stalled = f.Stalled; f.Stalled > 0 {
		s.StalledFor = time.Since(f.StalledAt).Seconds()
	}
	if !f.OldestFlight.IsZero() {
		s.OldestFlight = time.Since(f.OldestFlight).Seconds()
	}
	if f.Rate > 0 {
		s.ETA = float64(f.QueuedBytes) / f.Rate
	}
	if !f.OldestDirty.IsZero() {
		s.OldestDirty = time.Since(f.OldestDirty).Seconds()
	}
	for _, u := range b.unexplained() {
		s.Unexplained = append(s.Unexplained, NoEntry{u.File.String(), uint64(u.Generation), u.Path, u.Bytes, u.Reason})
	}
	if spec.Backing != "" {
		s.Store = storeHealth(b.d.stores.Health(b.name).Status(), time.Now())
		if s.Store != nil && s.Store.State == string(health.Silent) {
			s.Store.Targets = b.d.stores.SilentTargets(spec.BackingID)
		}
	}
	if f.LastError != nil {
		s.LastError = &FlushError{
			Kind: bb.KindOf(f.LastError).String(), Reason: f.LastError.Error(),
			Path: f.LastErrorPath, At: f.LastErrorAt, Attempts: f.LastErrorAttempts,
		}
	}
	return s
}

func storeHealth(h health.Status, now time.Time) *StoreHealth {
	if h.Condition == health.Unused {
		return nil
	}
	s := &StoreHealth{
		State: string(h.Condition), Since: h.Since, Op: h.Op, Path: h.Name, Reason: h.Reason,
		Attempts: h.Attempts, Waiting: h.Waiting, Tried: h.Tried,
	}
	if !h.Since.IsZero() {
		s.For = now.Sub(h.Since).Seconds()
	}
	return s
}

func (d *Daemon) sessionStatus(c access.Caller) []SessionStatus {
	all := []SessionStatus{}
	for _, s := range d.server.Sessions() {
		if !c.Owns(s.Caller().UID) {
			continue
		}
		all = append(all, SessionStatus{
			ID: s.ID(), Client: s.Client(), UID: s.Caller().UID, PID: s.PID(), Since: s.Since(), Mapped: s.Local(), Path: pathOf(s),
			Handles: s.Held(handles), Leases: s.Held(leases), InFlight: s.InFlight(),
		})
	}
	return all
}

// pathOf names the way that a session's bytes travel.
func pathOf(s *rpc.Session) string {
	if s.Local() {
		return "shm"
	}
	return cmp.Or(clientOf(s).admission.Path(), "messages")
}

func (d *Daemon) status(ctx context.Context, r *rpc.Request, m *wire.StatusRequest) (proto.Message, error) {
	if m.Buffer != "" {
		if _, err := d.bufferFor(ctx, r.Session(), "status", m.Buffer); err != nil {
			return nil, err
		}
	}
	if m.Node != "" && m.Node != string(d.cfg.Node) && r.Caller().Relayed {
		return nil, bb.E(bb.Invalid, "status", m.Node, "this is another node")
	}
	text, err := d.statusOf(ctx, *r.Caller(), m.Buffer, cmp.Or(bb.NodeID(m.Node), d.cfg.Node))
	if err != nil {
		return nil, bb.Wrap("status", m.Node, err)
	}
	if m.Cluster && d.cluster != nil && !r.Caller().Relayed {
		if err := d.clusterStatus(ctx, r, m); err != nil {
			return nil, err
		}
	}
	return &wire.StatusReply{Json: text}, nil
}

// subscribe sends events until the request is cancelled.
func (d *Daemon) subscribe(ctx context.Context, r *rpc.Request, m *wire.Subscribe) (proto.Message, error) {
	if m.Buffer != "" {
		if _, err := d.bufferFor(ctx, r.Session(), "events", m.Buffer); err != nil {
			return nil, err
		}
	}
	sub, err := d.meta.Subscribe(ctx, m.Buffer)
	if err != nil {
		return nil, err
	}
	defer sub.Close()
	for {
		e, err := sub.Next(ctx)
		var missed *events.MissedError
		switch {
		case errors.As(err, &missed):
			e = bb.Event{Time: time.Now(), Kind: bb.EventMissed, Buffer: m.Buffer, Reason: err.Error()}
		case err != nil:
			return nil, err
		case !d.maySee(ctx, r.Session(), e.Buffer):
			continue
		}
		text, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		if err := r.More(&wire.Event{Json: text}, nil); err != nil {
			return nil, err
		}
	}
}

func (d *Daemon) lost(ctx context.Context, r *rpc.Request, m *wire.BufferName) (proto.Message, error) {
	b, err := d.bufferFor(ctx, r.Session(), "lost", m.Name)
	if err != nil {
		return nil, err
	}
	aside, err := b.asideDir(ctx)
	if err != nil {
		return nil, bb.Wrap("lost", b.address(""), err)
	}
	answer, bytes := &wire.Entries{}, 0
	err = b.ns.ScanAll(ctx, func(e bb.Entry) error {
		if !e.Lost && (e.IsDir() || e.Parent != aside) {
			return nil
		}
		path, err := b.pathAt(ctx, place{e.Parent, e.Name})
		if err != nil {
			return nil // removed meanwhile
		}
		m := b.describe(&e)
		m.Path = path
		if bytes += proto.Size(m) + entryOverhead; bytes > wire.MaxMessage {
			if err := r.More(answer, nil); err != nil {
				return err
			}
			answer, bytes = &wire.Entries{}, proto.Size(m)+entryOverhead
		}
		answer.Entries = append(answer.Entries, m)
		return nil
	})
	if err != nil {
		return nil, bb.Wrap("lost", b.address(""), err)
	}
	return answer, nil
}
