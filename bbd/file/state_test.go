package file

import "testing"

// TestPhases: the effect of each event on each phase, and the operations that a phase permits.
func TestPhases(t *testing.T) {
	t.Parallel()
	for from, to := range map[phase][3]phase{ // after eventUnlinked, eventRetired, eventSuperseded
		phaseOpen:       {phaseUnlinked, phaseClosed, phaseSuperseded},
		phaseUnlinked:   {phaseUnlinked, phaseRemoved, phaseSuperseded},
		phaseClosed:     {phaseRemoved, phaseClosed, phaseSuperseded},
		phaseRemoved:    {phaseRemoved, phaseRemoved, phaseRemoved},
		phaseSuperseded: {phaseSuperseded, phaseSuperseded, phaseSuperseded},
	} {
		for e, want := range to {
			got := from.after(event(e))
			if got != want {
				t.Errorf("phase %d after event %d is %d, want %d", from, e, got, want)
			}
			if from.closed() && !got.closed() {
				t.Errorf("phase %d after event %d is %d: a file that is closed is open again", from, e, got)
			}
		}
	}
	for p, want := range map[phase]struct{ closed, removed bool }{
		phaseOpen: {}, phaseUnlinked: {removed: true}, phaseClosed: {closed: true},
		phaseRemoved: {closed: true, removed: true}, phaseSuperseded: {closed: true},
	} {
		if p.closed() != want.closed || p.removed() != want.removed {
			t.Errorf("phase %d: closed %v, removed %v, want %+v", p, p.closed(), p.removed(), want)
		}
	}
}

// TestJoining: an open for writing of an open file.
func TestJoining(t *testing.T) {
	t.Parallel()
	written := state{writers: 1, exists: true, committed: true}
	with := func(s state, change func(*state)) state { change(&s); return s }
	permitted := opening{permitted: true}
	for name, c := range map[string]struct {
		s    state
		o    opening
		want step
	}{
		"others write it":                      {written, permitted, stepJoin},
		"nothing is committed yet":             {state{writers: 1}, opening{permitted: true, truncates: true}, stepJoin},
		"closed meanwhile":                     {with(written, func(s *state) { s.phase = phaseClosed }), permitted, stepLookAgain},
		"superseded meanwhile":                 {with(written, func(s *state) { s.phase = phaseSuperseded }), permitted, stepLookAgain},
		"removed meanwhile, nobody writes it":  {with(written, func(s *state) { s.phase = phaseRemoved }), permitted, stepLookAgain},
		"closed, by an exclusive create":       {with(written, func(s *state) { s.phase = phaseClosed }), opening{exclusive: true}, stepLookAgain},
		"exclusive":                            {written, opening{exclusive: true, permitted: true}, stepRefuseExists},
		"exclusive, without the right":         {written, opening{exclusive: true}, stepRefuseExists},
		"no right":                             {written, opening{}, stepRefuseDenied},
		"no right, to end the others' writing": {written, opening{fence: true}, stepRefuseDenied},
		"fence":                                {written, opening{permitted: true, fence: true}, stepFinish},
		"its writers are gone":                 {with(written, func(s *state) { s.writers = 0 }), permitted, stepFinish},
		"its writer may come back":             {with(written, func(s *state) { s.writers, s.reconnects = 0, true }), permitted, stepJoin},
		"its writer may come back, truncating": {with(written, func(s *state) { s.writers, s.reconnects = 0, true }), opening{permitted: true, truncates: true}, stepFinish},
		"its writer may come back, truncating nothing": {
			state{reconnects: true, exists: true}, opening{permitted: true, truncates: true}, stepJoin,
		},
		"truncating what others have committed": {written, opening{permitted: true, truncates: true}, stepRefuseBusy},
	} {
		if got := c.s.joining(c.o); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

// TestEnding: how a close, an abort and a cancelled stage-in end a file.
func TestEnding(t *testing.T) {
	t.Parallel()
	type answers struct {
		closing, finishing          step
		abandoned, expires, cancels bool
	}
	for name, c := range map[string]struct {
		s         state
		published bool
		want      answers
	}{
		"one writer, nothing written": {
			s: state{writers: 1}, want: answers{closing: stepFinish, finishing: stepVoid, cancels: true},
		},
		"one writer, committed": {
			s: state{writers: 1, committed: true}, want: answers{closing: stepFinish, finishing: stepFinish, cancels: true},
		},
		"one writer, published": {
			s: state{writers: 1, committed: true, exists: true}, published: true,
			want: answers{closing: stepFinish, finishing: stepFinish},
		},
		"an exclusive create whose commit was lost": {
			s: state{writers: 1, exists: true}, published: true, want: answers{closing: stepFinish, finishing: stepFinish},
		},
		"two writers, nothing written": {
			s: state{writers: 2}, want: answers{closing: stepNothing, finishing: stepVoid},
		},
		"two writers, committed": {
			s: state{writers: 2, committed: true}, want: answers{closing: stepPublish, finishing: stepFinish},
		},
		"no writer": {
			s: state{committed: true, exists: true}, published: true,
			want: answers{closing: stepFinish, finishing: stepFinish, abandoned: true, expires: true},
		},
		"no writer, and its entry was removed": {
			s: state{phase: phaseUnlinked, committed: true}, published: true,
			want: answers{closing: stepFinish, finishing: stepFinish, abandoned: true},
		},
		"closed": {
			s: state{phase: phaseClosed, committed: true, exists: true}, published: true,
			want: answers{closing: stepFinish, finishing: stepNothing},
		},
		"superseded before anything was written": {
			s: state{phase: phaseSuperseded}, want: answers{closing: stepFinish, finishing: stepNothing},
		},
	} {
		got := answers{c.s.closing(), c.s.finishing(c.published), c.s.abandoned(), c.s.expires(), c.s.cancels(c.published)}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestRecords: the records of a close.
func TestRecords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		s       state
		extents int
		want    bool
	}{
		"extents":          {state{exists: true}, 1, true},
		"a new file":       {state{}, 0, true},
		"a truncated file": {state{exists: true, fresh: true}, 0, true},
		"nothing":          {state{exists: true, committed: true}, 0, false},
	} {
		if got := c.s.records(c.extents); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
