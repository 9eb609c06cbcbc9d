package status

import "forebay/meta"

// OfLog describes a log that daemons share.
func OfLog(l *meta.LogState) Log {
	s := Log{
		Buffer: l.Buffer, Owner: l.Owner, HeldBy: l.Holders, Unheld: l.Unheld, Lost: l.Lost,
		Leases: LogLeases{
			Held: l.Leases.Held, Granted: l.Leases.Granted, Revoked: l.Leases.Revoked, Silent: l.Leases.Silent, Waited: l.Leases.Waited.Seconds(),
		},
	}
	if !l.Since.IsZero() {
		s.Since = &l.Since
	}
	return s
}
