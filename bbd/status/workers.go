package status

import (
	"time"

	"forebay/bbd/access"
	"forebay/flusher/backing/asuser"
)

// Workers describes the store workers of all users (to root), or of the user of the request.
type Workers struct {
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

// OfWorkers describes store workers at a time. Only the administrator is shown other users'
// workers.
func OfWorkers(counts asuser.Counts, processes []asuser.Process, c access.Caller, now time.Time) *Workers {
	s := &Workers{Restarts: counts.Restarts, Kills: counts.Kills}
	for _, p := range processes {
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
			s.Hanging = append(s.Hanging, HungWorker{UID: p.UID, Root: p.Root, Since: p.Since, For: now.Sub(p.Since).Seconds()})
		}
	}
	return s
}
