package observe

import (
	"time"

	"forebay/bbd/metrics"
	"forebay/bbd/status"
)

// OfLog returns the figures of a log that daemons share.
func OfLog(l status.Log) metrics.Log {
	m := metrics.Log{
		Buffer: l.Buffer, Leases: l.Leases.Held, Granted: l.Leases.Granted, Revoked: l.Leases.Revoked, Silent: l.Leases.Silent,
		Waited: time.Duration(l.Leases.Waited * float64(time.Second)),
	}
	if l.Since != nil {
		m.Owned, m.Age, m.Holders = true, time.Since(*l.Since), len(l.HeldBy)
	}
	return m
}
