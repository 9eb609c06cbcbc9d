package health

import "time"

// Notices decides which changes of a store's condition a log should name: that it begins to fail or
// is silent, and that it answers again. The zero value has no history. It may not be used
// concurrently.
type Notices struct {
	trouble bool      // a notice of its begin was given, and none of its end
	since   time.Time // of that trouble
	given   time.Time // when the last notice of a begin was given
}

// QuietFor is the time after the notice of a begin without another one, so that a store that comes
// and goes fills no log.
const QuietFor = time.Minute

// Notice is a change that a log should report.
type Notice uint8

// The notices.
const (
	Nothing Notice = iota
	Begins         // the store fails, or does not answer
	Ends           // it answers again, after the report of Begins
)

// Next returns the notice for a store in its present state, and the duration of the trouble
// that has ended.
func (n *Notices) Next(s Status, now time.Time) (Notice, time.Duration) {
	trouble := s.Condition == Failing || s.Condition == Silent
	switch {
	case trouble && !n.trouble && (n.given.IsZero() || now.Sub(n.given) >= QuietFor):
		n.trouble, n.since, n.given = true, s.Since, now
		return Begins, 0
	case s.Condition == Answers && n.trouble:
		n.trouble = false
		return Ends, now.Sub(n.since)
	}
	return Nothing, 0
}
