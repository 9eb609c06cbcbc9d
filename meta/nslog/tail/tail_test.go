package tail

import (
	"testing"
	"time"
)

// A tail holds young records that fit, and returns them in pages.
func TestTail(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	held := New(Limits{Age: 10 * time.Second, Bytes: 10 * (100 + recordBytes)})
	for i := range 25 {
		now = now.Add(time.Second)
		held.Add(now, Record{Seq: uint64(i + 1), Data: make([]byte, 100)})
	}
	all := func(fits func(*Record) bool) (seqs []uint64) {
		for after, more := uint64(0), true; more; {
			var page []Record
			if page, after, more = held.Page(after, 3*(100+recordBytes), fits); len(page) > 3 || more && len(page) == 0 {
				t.Fatalf("a page has %d records", len(page))
			}
			for _, r := range page {
				seqs = append(seqs, r.Seq)
			}
		}
		return seqs
	}
	every := func(*Record) bool { return true }
	if got := all(every); len(got) != 10 || got[0] != 16 || got[9] != 25 {
		t.Errorf("of 25 records, of which 10 fit: %v", got)
	}
	if got := all(func(r *Record) bool { return r.Seq%2 == 0 }); len(got) != 5 {
		t.Errorf("the even ones are %v", got)
	}
	if got := held.Came(24, every); !got.Equal(now.Add(-time.Second)) {
		t.Errorf("the last record but one came at %v, not a second before %v", got, now)
	}
	if got := held.Came(24, func(*Record) bool { return false }); !got.IsZero() || !held.Came(15, every).IsZero() {
		t.Error("a record came that does not fit, or is not held any more")
	}
	held.Add(now.Add(6*time.Second), Record{Seq: 26, Data: make([]byte, 10_000)})
	if got := all(every); len(got) != 0 {
		t.Errorf("after a record that is too large: %v", got)
	}
	held.Add(now.Add(6*time.Second), Record{Seq: 27})
	held.Add(now.Add(17*time.Second), Record{Seq: 28})
	if got := all(every); len(got) != 1 || got[0] != 28 {
		t.Errorf("after a long time: %v", got)
	}
	held.Trim(now.Add(28 * time.Second))
	if got := all(every); len(got) != 0 || held.bytes != 0 {
		t.Errorf("after a long time without records: %v, %d bytes", got, held.bytes)
	}
	none := New(Limits{})
	none.Add(now, Record{Seq: 1})
	if page, _, _ := none.Page(0, 1, every); len(page) != 0 || none.Holds() || none.ID() == held.ID() {
		t.Errorf("a tail that is to hold nothing has %v", page)
	}
}
