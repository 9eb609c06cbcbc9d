package durabletest

// A folder to which stage-outs copy is no store. No name in it follows a rename or a removal of the
// buffer. A file of it is the copy of the last stage-out that is done, or of one that began since,
// or ran beside it and was cut off:
//
//	a/x: v1     v2      v3      (in the buffer)
//	         [stage-out a, done]     [stage-out a, cut off]
//	              v2 or v3                v2, v3, or a/x of meanwhile

// copied checks a folder to which stage-outs copy.
func (j *judge) copied() {
	for p := range j.paths() {
		j.copy(p, j.Files[p])
	}
}

// copy checks one name of the folder.
func (j *judge) copy(p string, f Found) {
	may := set{}
	last := j.lastCopy(p)
	if last != nil {
		may = versions(j.possible(p, last.Begin, last.End))
	}
	// Files that a stage-out did not find stay as an earlier one has made them.
	kept := last == nil || may[Absent]
	for _, e := range j.copies {
		if e.To == j.Copy && below(e.Below, p) && e.Begin <= j.End && (kept || e.End >= last.Begin) {
			for v := range versions(j.possible(p, e.Begin, e.End)) {
				if v.There {
					may[v] = true
				}
			}
		}
	}
	switch {
	case may[f.Version], !f.Version.There && kept:
	case !f.Version.There:
		j.wrong(Stored, p, "a stage-out of %q is done, and it is not in %s: %v", last.Below, j.Copy, list(may))
	default:
		j.wrong(Stored, p, "%s holds %v, which no stage-out has copied, not %v: %s", j.Copy, f.Version, list(may), f.Text)
	}
}

// lastCopy returns the last stage-out that was done with a name before the observation.
func (j *judge) lastCopy(p string) *Event {
	var last *Event
	for _, e := range j.copies {
		if e.To == j.Copy && e.Outcome == Done && e.End < j.Begin && covers(e, p) && (last == nil || e.Begin > last.Begin) {
			last = e
		}
	}
	return last
}
