package file

// phase is how far a file that is open for writing has come.
//
//	               its entry is removed
//	(open) ───────────────────────────────▶ unlinked
//	  │ │                                       │
//	  │ └ another node's generation             │ its last writer leaves
//	  │   is the file's ──▶ superseded          ▼
//	  └ closed or void ───▶ closed ─────────▶ removed
type phase uint8

const (
	phaseOpen       phase = iota // being opened, or written
	phaseUnlinked                // its entry was removed, and its writers are there still
	phaseClosed                  // closed, void, or never opened
	phaseRemoved                 // its entry was removed, and it has no writers
	phaseSuperseded              // another node's generation replaced it
)

// event is a change of the phase.
type event uint8

const (
	eventUnlinked   event = iota // its entry was removed
	eventRetired                 // it is closed, void, or abandoned
	eventSuperseded              // the namespace has another node's generation
)

// after returns the phase that follows an event.
func (p phase) after(e event) phase {
	switch {
	case p == phaseRemoved || p == phaseSuperseded:
		return p
	case e == eventSuperseded:
		return phaseSuperseded
	case e == eventUnlinked && p == phaseClosed, e == eventRetired && p == phaseUnlinked:
		return phaseRemoved
	case e == eventUnlinked:
		return phaseUnlinked
	}
	return phaseClosed
}

// closed reports whether the file is open no more, so its place is to be looked up again.
func (p phase) closed() bool { return p != phaseOpen && p != phaseUnlinked }

// removed reports whether the file's entry was removed while it was open.
func (p phase) removed() bool { return p == phaseUnlinked || p == phaseRemoved }

// state is the basis of the decisions about an open file. The file's mutex guards it.
type state struct {
	phase      phase
	writers    int
	exists     bool // the namespace has an entry of the file
	committed  bool // the store has the generation
	fresh      bool // the generation starts from nothing, though the file had content
	reconnects bool // its last writer was at another node, and may come back
	found      bool // recovery found it open, so the number of its writers is unknown
	closed     bool // a writer has closed it
	joined     bool // after the first writer, another one has opened it, or one has come back
	missing    int  // writers that left without a close, less those that came back
}

// whole reports whether the generation is complete by its writers when it ends. All have closed it. Writers are those
// that have it open still.
func (s *state) whole(writers int) bool {
	return s.closed && s.missing == 0 && writers <= 0 && !s.found
}

// alone reports whether one open has written the generation.
func (s *state) alone() bool { return s.phase == phaseClosed && !s.joined && !s.found }

// step is the next step with an open file.
type step uint8

const (
	stepNothing      step = iota
	stepJoin              // one writer more
	stepLookAgain         // it is closed, so its place is looked up again
	stepFinish            // the generation is closed
	stepPublish           // the namespace gets the generation, marked open
	stepVoid              // nothing was written; the file stays as it was
	stepRefuseExists      // an exclusive create of a file that is being written
	stepRefuseDenied      // no right to write it
	stepRefuseBusy        // others have committed bytes that would be truncated
)

// opening is an open for writing that finds the file open.
type opening struct {
	exclusive bool // it creates the file
	permitted bool // its caller may write the file
	fence     bool // it ends the generation that others write
	truncates bool // it replaces the file's content
}

// joining returns the step of an open that finds the file open.
func (s *state) joining(o opening) step {
	switch {
	case s.phase.closed():
		return stepLookAgain
	case o.exclusive:
		return stepRefuseExists
	case !o.permitted:
		return stepRefuseDenied
	case o.fence:
		// Its writers may come back. The generation that follows has another number than theirs.
		return stepFinish
	case s.writers == 0 && (!s.reconnects || o.truncates && s.committed):
		// Its writers are gone, and none has come back for it. That generation ends here. A writer at another
		// node that may come back keeps it open, unless its committed content is to be replaced.
		return stepFinish
	case o.truncates && s.committed:
		return stepRefuseBusy
	}
	return stepJoin
}

// records reports whether a close with so many extents has to be recorded. A file that was truncated is empty now, and
// a new one is there though it is empty.
func (s *state) records(extents int) bool { return extents > 0 || !s.exists || s.fresh }

// closing returns the step for the close of one writer once the extents that came with it are recorded.
func (s *state) closing() step {
	switch {
	case s.writers <= 1:
		return stepFinish
	case s.committed:
		return stepPublish
	}
	return stepNothing
}

// finishing returns how a generation ends that has no writer any more, or is ended in spite of them. Published: the
// namespace has it.
func (s *state) finishing(published bool) step {
	switch {
	case s.phase.closed():
		return stepNothing
	case !s.committed && !published:
		return stepVoid
	}
	return stepFinish
}

// abandoned reports whether the file, which is open, has no writers.
func (s *state) abandoned() bool { return s.writers <= 0 && !s.phase.closed() }

// expires reports whether the file is closed once the time for its writers to come back is over.
func (s *state) expires() bool { return s.writers <= 0 && s.phase == phaseOpen }

// cancels reports whether the generation can be abandoned as if it had never been. Published: the
// namespace has it.
func (s *state) cancels(published bool) bool {
	return !published && s.writers <= 1 && !s.phase.closed()
}
