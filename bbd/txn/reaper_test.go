package txn

import (
	"testing"
	"time"

	"forebay/internal/bb"
)

// TestCareOf: the action for a transaction follows from its state, and from its end.
func TestCareOf(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e6, 0)
	for name, c := range map[string]struct {
		txn  bb.Txn
		want care
	}{
		"open":               {bb.Txn{State: bb.TxnOpen}, watch},
		"being committed":    {bb.Txn{State: bb.TxnCommitting}, watch},
		"decided":            {bb.Txn{State: bb.TxnFolding}, materialize},
		"committed":          {bb.Txn{State: bb.TxnFolded, Ended: now.Add(-time.Hour)}, nothing},
		"committed long ago": {bb.Txn{State: bb.TxnFolded, Ended: now.Add(-kept - time.Second)}, forget},
		"aborted":            {bb.Txn{State: bb.TxnAborted, Ended: now}, nothing},
		"aborted long ago":   {bb.Txn{State: bb.TxnAborted, Ended: now.Add(-2 * kept)}, forget},
	} {
		if got := careOf(&c.txn, now); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// TestLeaseExpires: a lease expires when it has stayed as it is for its length since the first
// check that found it so.
func TestLeaseExpires(t *testing.T) {
	t.Parallel()
	const lease = time.Minute
	start := time.Now()
	var l leaseSeen
	for _, step := range []struct {
		name     string
		after    time.Duration
		revision uint64
		expired  bool
	}{
		{"first seen", 0, 5, false},
		{"just before its end", lease - 1, 5, false},
		{"renewed", lease, 6, false},
		{"as long after the first look", 2*lease - 1, 6, false},
		{"as long after the renewal", 2 * lease, 6, true},
		{"still", 3 * lease, 6, true},
		{"renewed after all", 4 * lease, 7, false},
	} {
		var expired bool
		if l, expired = l.next(step.revision, start.Add(step.after), lease); expired != step.expired {
			t.Errorf("%s: %v, want %v", step.name, expired, step.expired)
		}
	}
}
