package calls

import "forebay/internal/bb"

// AnswerBytes is about how much the items of an answer take at most, since messages between daemons
// are bounded.
const AnswerBytes = 512 << 10

// Fitting returns how many entries, from the first on, are as much as an answer has.
func Fitting(entries []bb.Entry) int {
	size := 0
	for i := range entries {
		if size += sizeOf(&entries[i]); size > AnswerBytes && i > 0 {
			return i
		}
	}
	return len(entries)
}

// sizeOf is about how much an entry takes.
func sizeOf(e *bb.Entry) int {
	size := 256 + len(e.Name) + len(e.Reason) + len(e.Target) + len(e.Xattrs) + len(e.Rest) + 16*len(e.Attempts()) + len(e.Flushed.Layout) + len(e.Flushed.ETag)
	for _, h := range e.Holders {
		size += len(h) + 2
	}
	return size
}

// Fit leaves out the end of a page that is too large for an answer.
func (a *Answer) Fit() {
	if n := Fitting(a.Entries); n < len(a.Entries) {
		a.Entries, a.Yes = a.Entries[:n], true
	}
}
