package owner

import "time"

// replaced lists the messages that checkpoints have replaced and that may not be purged yet: for each checkpoint,
// the sequences by subjects below which it needs nothing.
//
//	being made ──its manifest is stored──▶ newest ──the next one's is──▶ older ──Settle is over──▶ purged below it
type replaced struct {
	making map[string]uint64
	made   []made // oldest first
}

// made is a checkpoint whose manifest is stored.
type made struct {
	at    time.Time
	below map[string]uint64
}

// begin records the checkpoint that a start has read: its manifest, and the sequence from which on
// the log counts.
func (r *replaced) begin(manifest, start uint64) {
	*r = replaced{}
	if manifest != 0 {
		r.made = []made{{time.Now(), map[string]uint64{manifestSubject: manifest, logSubject: start}}}
	}
}

// replace records that the checkpoint which is being made needs nothing of a subject below a
// sequence.
func (r *replaced) replace(subject string, seq uint64) {
	if r.making == nil {
		r.making = map[string]uint64{}
	}
	r.making[subject] = seq
}

// complete records the time when the manifest was stored, and returns the messages to purge: those
// that are not needed by the newest checkpoint before it that has been stored for as long as
// settle.
func (r *replaced) complete(now time.Time, settle time.Duration) map[string]uint64 {
	due := map[string]uint64{}
	n := 0
	for n < len(r.made) && now.Sub(r.made[n].at) >= settle {
		for subject, seq := range r.made[n].below {
			due[subject] = max(due[subject], seq)
		}
		n++
	}
	r.made = append(r.made[n:], made{now, r.making})
	r.making = nil
	return due
}
