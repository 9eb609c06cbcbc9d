package bbd

import (
	"time"

	"forebay/bbd/access"
	"forebay/bbd/metrics"
	"forebay/flusher/backing/asuser"
)

// WorkerStatus describes the store workers of all users (to root), or of the user of the request.
type WorkerStatus struct {
	Serving  int          `json:"serving"` // with requests
	Idle     int          `json:"idle"`
	Ending   int          `json:"ending,omitempty"`
	Hanging  []HungWorker `json:"hanging,omitempty"`
	Restarts int64        `json:"restarts"` // of all users, started in place of one that was killed or ended by itself
	Kills    int64        `json:"kills"`    // likewise
}

// HungWorker is a store worker that does not answer, or does not end.
type HungWorker struct {
	UID   uint32    `json:"uid"`
	Root  string    `json:"root"`
	Since time.Time `json:"since"`
	For   float64   `json:"for"` // seconds since then
}

// workerStatus leaves out other users' workers, but for the administrator.
func (d *Daemon) workerStatus(c access.Caller) *WorkerStatus {
	workers := d.cfg.Backing.Workers
	if workers == nil {
		return nil
	}
	counts := workers.Counts()
	s := &WorkerStatus{Restarts: counts.Restarts, Kills: counts.Kills}
	for _, p := range workers.Status() {
		if !c.System && c.UID != p.UID {
			continue
		}
		switch p.State {
		case asuser.Serving:
			s.Serving++
		case asuser.Idle:
			s.Idle++
		case asuser.Ending:
			s.Ending++
		case asuser.Hanging:
			s.Hanging = append(s.Hanging, HungWorker{UID: p.UID, Root: p.Root, Since: p.Since, For: time.Since(p.Since).Seconds()})
		}
	}
	return s
}

// measure adds store workers to what a scrape asks for.
func (s *WorkerStatus) measure(m *metrics.Stats) {
	if s == nil {
		return
	}
	m.WorkerRestarts, m.WorkerKills = s.Restarts, s.Kills
	m.StoreWorkers = map[string]int{
		string(asuser.Serving): s.Serving, string(asuser.Idle): s.Idle, string(asuser.Ending): s.Ending, string(asuser.Hanging): len(s.Hanging),
	}
}
