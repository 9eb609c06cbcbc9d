package asuser

import (
	"testing"
	"time"
)

func TestStateOfWorker(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	never := time.Time{}
	for name, x := range map[string]struct {
		calls []call
		heard time.Time
		want  State
		since time.Time
	}{
		"nothing to do":               {nil, ago(time.Hour), Idle, never},
		"a request":                   {[]call{{begun: ago(time.Second)}}, never, Serving, never},
		"a long one, others answered": {[]call{{begun: ago(time.Hour)}, {begun: ago(time.Second)}}, ago(time.Second), Serving, never},
		"no answer":                   {[]call{{begun: ago(time.Hour)}, {begun: ago(time.Minute)}}, never, Hanging, ago(time.Hour)},
		"no answer any more":          {[]call{{begun: ago(time.Hour)}, {begun: ago(time.Minute)}}, ago(30 * time.Minute), Hanging, ago(30 * time.Minute)},
		"no answer to a new one":      {[]call{{begun: ago(time.Second)}}, ago(time.Hour), Serving, never},
		"given up":                    {[]call{{begun: ago(3 * time.Second), left: ago(time.Second)}, {begun: ago(2 * time.Second)}}, ago(time.Second), Hanging, ago(time.Second)},
		"given up early":              {[]call{{begun: ago(time.Hour), left: ago(time.Minute)}}, ago(30 * time.Minute), Hanging, ago(30 * time.Minute)},
	} {
		w := &worker{heard: x.heard, calls: map[uint64]*call{}}
		for i := range x.calls {
			w.calls[uint64(i)] = &x.calls[i]
		}
		if state, since := w.state(now); state != x.want || !since.Equal(x.since) {
			t.Errorf("%s: %s since %v, want %s since %v", name, state, since, x.want, x.since)
		}
	}
}
