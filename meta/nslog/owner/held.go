package owner

import (
	"cmp"
	"context"
	"slices"
	"time"

	"forebay/meta/nslog/record"
	"forebay/meta/nslog/tail"
)

// Held is the part of a log that daemons hold in their memory.
type Held struct {
	Records []tail.Record // in any order; several times, where several hold them
	Seen    uint64        // the highest revision that a daemon was answered with
}

// heldRecord is a record that a daemon holds, decoded.
type heldRecord struct {
	tail.Record
	kind    byte
	head    record.Head
	effects []byte
}

// changes reports whether the record has effects.
func (r *heldRecord) changes() bool { return r.kind == record.Changes && len(r.effects) > 0 }

// openHeld decodes records, and sorts them by their revisions. Each owner's are above those of owners before.
func openHeld(records []tail.Record) (all []heldRecord) {
	for _, r := range records {
		kind, body, err := record.Open(r.Data)
		if err != nil {
			continue
		}
		h := heldRecord{Record: r, kind: kind}
		if h.head, h.effects, err = record.OpenHead(kind, body); err == nil {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(a, b heldRecord) int {
		return cmp.Or(cmp.Compare(a.head.First, b.head.First), cmp.Compare(a.Seq, b.Seq))
	})
	return all
}

// FirstOf returns the first revision that a record may have given out; 0: it is none.
func FirstOf(data []byte) uint64 { return headOf(data).First }

// OwnerOf returns the owner that has appended a record; zero: it is none.
func OwnerOf(data []byte) record.Owner { return headOf(data).Owner }

func headOf(data []byte) (h record.Head) {
	kind, body, err := record.Open(data)
	if err == nil {
		h, _, err = record.OpenHead(kind, body)
	}
	if err != nil {
		return record.Head{}
	}
	return h
}

// feed stores the changes again that the log has lost with its end, and that daemons hold. The log ended before this
// owner's claim in a record.
func (w *Owner) feed(ctx context.Context, before Holder) error {
	if w.o.Held == nil {
		return nil
	}
	had := w.table.Next()
	held := w.o.Held(ctx, had)
	all := openHeld(held.Records)
	follows := map[uint64]bool{before.Seq: true} // records that all changes up to are in the table
	fed, apart := 0, uint64(0)
	for i := range all {
		r, next := &all[i], w.table.Next()
		switch {
		case apart >= next && r.head.First > apart: // a gap
			continue
		case r.changes() && r.head.First >= next:
			// No change lies between revisions that adjoin. Another copy of a record may follow where this one does not.
			if !follows[r.head.Previous] && r.head.First != next {
				apart = r.head.First
				continue
			}
			if err := w.again(ctx, r, before.lease); err != nil {
				return err
			}
			fed++
		case r.head.First >= next && !follows[r.head.Previous] && (r.After == 0 || r.After > next):
			continue
		}
		follows[r.Seq] = true
	}
	if fed > 0 {
		w.o.Logger.Error("the namespace server has forgotten changes that it had acknowledged: they are stored again from the memory of daemons",
			"buffer", w.o.Buffer, "records", fed, "from", had, "to", w.table.Next())
	}
	if held.Seen = max(held.Seen, apart); held.Seen != 0 && held.Seen >= w.table.Next() {
		if !w.prepared() {
			return lost("all that it had")
		}
		w.short()
		w.o.Logger.Error("the log of a namespace ends before what was acknowledged, and no daemon holds the rest: files that were made since come back; what was renamed or removed since may be as it was before",
			"buffer", w.o.Buffer, "ends", w.table.Next(), "acknowledged", held.Seen)
	}
	return nil
}

// short reports a loss of acknowledged changes.
func (w *Owner) short() {
	if w.o.Short != nil {
		w.o.Short()
	}
}

// again stores the changes of a record that the log has lost, with their revisions.
func (w *Owner) again(ctx context.Context, r *heldRecord, lease time.Duration) error {
	o := &w.at
	h := record.Head{Owner: o.id, Previous: o.last, First: r.head.First, Lease: max(lease, w.o.Lease), Node: w.o.Node}
	message := record.Seal(append(h.BeginChanges(nil), r.effects...))
	seq, err := w.log.Append(ctx, logSubject, message, w.fence())
	if err != nil {
		return err
	}
	o.last = seq
	o.appended(seq)
	o.logged += len(message)
	if err := w.apply(r.effects, h.First, seq); err != nil {
		return err
	}
	w.keep(ctx, tail.Record{Seq: seq, Data: message})
	return nil
}

// keep returns when another daemon holds a record that was stored, if one can.
func (w *Owner) keep(ctx context.Context, r tail.Record) {
	if w.o.Keep != nil {
		w.o.Keep(ctx, r)
	}
}

// keepClaim is keep of this owner's claim, of a log whose changes before it are in the table.
func (w *Owner) keepClaim(ctx context.Context) {
	w.at.claim.After = w.table.Next()
	w.keep(ctx, w.at.claim)
	w.at.claim.Data = nil
}
