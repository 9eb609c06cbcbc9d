package bbd

import (
	"time"

	"forebay/bbd/access"
	"forebay/bbd/admin"
	"forebay/bbd/metrics"
	"forebay/bbd/observe"
	"forebay/bbd/status"
	"forebay/bbd/store"
	"forebay/flusher/backing/asuser"
	"forebay/flusher/backing/health"
	"forebay/internal/bb"
)

// serveAdmin starts the admin server where the configuration names a place for it.
func (d *Daemon) serveAdmin() (err error) {
	d.listening.admin, err = admin.Serve(d.ctx, admin.Options{
		Address: d.cfg.Admin, Socket: d.cfg.AdminSocket, Metrics: d.observe.Metrics.Handler(), Go: d.wg.Go,
		Unready: func() string { return admin.Unready(d.state.Load().(string), d.silence(), d.waitsForWhat()) },
		Status: func() any {
			if d.state.Load() == "starting" {
				return d.statusOfStart()
			}
			return d.Status()
		},
	})
	return err
}

// measure returns the daemon's figures for a scrape of /metrics.
func (d *Daemon) measure() metrics.Stats {
	server := d.health.Status()
	answers := server.Trouble() == nil
	if d.state.Load() != "ready" {
		return metrics.Stats{Namespace: answers}
	}
	stats := d.store.Stats()
	line := d.alloc.Status(access.Daemon())
	m := metrics.Stats{Ready: true, Namespace: answers, LeasesWaiting: line.Writers, UsersWaiting: line.Users}
	for tier, t := range map[bb.Tier]store.TierStats{bb.TierMemory: stats.Memory, bb.TierDisk: stats.Disk} {
		m.Tiers = append(m.Tiers, metrics.Tier{
			Tier: tier, Capacity: t.Capacity, Total: t.Total, Populated: t.Populated, Free: t.Free,
			Leased: t.Leased, Dirty: t.Dirty, Clean: t.Clean, Pinned: t.Pinned, Waste: t.Waste,
		})
	}
	for _, b := range d.buffers.All() {
		f := d.flusher.BufferStats(b.Name())
		bytes := stats.Buffers[b.Name()]
		s := metrics.Buffer{
			Name: b.Name(), Resident: bytes.Resident, Dirty: bytes.Dirty, FlushQueue: f.Queued, UnderReplicated: b.Replicas().Lacking(), Superseded: b.Rules().Stats().SupersededBytes,
		}
		if !f.OldestDirty.IsZero() {
			s.OldestDirty = time.Since(f.OldestDirty)
		}
		if !f.OldestAttempt.IsZero() {
			s.OldestAttempt = time.Since(f.OldestAttempt)
		}
		for _, u := range b.Reassertion().Unexplained() {
			s.Unexplained += u.Bytes
		}
		if h := d.stores.Health(b.Name()).Status(); h.Condition == health.Failing || h.Condition == health.Silent {
			s.StoreTrouble = time.Since(h.Since)
		}
		m.Buffers = append(m.Buffers, s)
		m.StoreOps += f.StoreOps
	}
	for _, l := range d.meta.Logs() {
		m.Logs = append(m.Logs, observe.OfLog(status.OfLog(&l)))
	}
	if w := d.workerStatus(access.Daemon()); w != nil {
		m.WorkerRestarts, m.WorkerKills = w.Restarts, w.Kills
		m.StoreWorkers = map[string]int{
			string(asuser.Serving): w.Serving, string(asuser.Idle): w.Idle, string(asuser.Ending): w.Ending, string(asuser.Hanging): len(w.Hanging),
		}
	}
	m.Sessions, m.EventsDropped = d.server.Connections(), int64(d.meta.Stats().EventsDropped)
	return m
}
