package drain

import (
	"maps"
	"slices"

	"forebay/bbd/fate"
	"forebay/bbd/transfer"
	"forebay/flusher"
	"forebay/internal/bb"
	"forebay/internal/wire"
)

// rest are the files that a drain has left, by the namespace.
type rest struct {
	dirty     map[content]string // paths of the closed files that no pattern keeps back, of any owner
	lost      []*wire.Failure    // the first of the lost ones
	lostTotal int64
	// superseded are the steps that a flush rule does not flush any more, and the steps that superseded them.
	superseded map[string]string
}

// addFile adds a lost file.
func (l *rest) addFile(e *bb.Entry, path string) {
	if l.lostTotal++; len(l.lost) < transfer.MaxNamed {
		l.lost = append(l.lost, &wire.Failure{Path: path, Kind: uint32(bb.Lost), Bytes: e.Size, Reason: e.LostReason()})
	}
}

// addLost adds the lost files to the unsaved ones of a drain. No flush brings them back, so a drain
// fails as long as there are any. They come last, behind the files that may be saved yet.
func (l *rest) addLost(answer *wire.Progress) {
	answer.FailedTotal += l.lostTotal
	room := transfer.NamesBytes
	for _, f := range answer.Failed {
		room -= len(f.Path) + len(f.Reason)
	}
	for _, f := range l.lost {
		if room -= len(f.Path) + len(f.Reason); room < 0 || len(answer.Failed) == transfer.MaxNamed {
			return
		}
		answer.Failed = append(answer.Failed, f)
	}
}

// addSuperseded names the steps that are not flushed, and are not to be.
func (l *rest) addSuperseded(answer *wire.Progress) {
	answer.Superseded, answer.SupersededTotal = nil, int64(len(l.superseded))
	steps := slices.Sorted(maps.Keys(l.superseded))
	room := transfer.NamesBytes
	for _, step := range steps[:min(len(steps), transfer.MaxNamed)] {
		if room -= len(step); room < 0 {
			return
		}
		answer.Superseded = append(answer.Superseded, step)
	}
}

// movedAround is the answer of a drain that has not met files, by path, at any node, since they
// moved from one that had yet to do its share to one that had done it.
func movedAround(paths map[content]string) *wire.Progress {
	answer := &wire.Progress{FailedTotal: int64(len(paths))}
	for _, path := range paths {
		if len(answer.Failed) == transfer.MaxNamed {
			break
		}
		answer.Failed = append(answer.Failed, &wire.Failure{Path: path, Kind: uint32(bb.Busy), Reason: "it went from node to node meanwhile: drain again"})
	}
	return answer
}

// addUnexplained adds the contents that cannot be flushed since they have no entry.
func addUnexplained(m *wire.Progress, left []fate.Unexplained) {
	for i := range left {
		u := &left[i]
		m.FailedTotal++
		if len(m.Failed) < transfer.MaxNamed {
			m.Failed = append(m.Failed, &wire.Failure{Path: u.Name(), Kind: uint32(bb.Internal), Reason: "no entry explains these bytes: " + u.Reason, Bytes: u.Bytes})
		}
	}
}

// addReport adds the files that the flusher did not save.
func addReport(m *wire.Progress, report *flusher.Report) {
	m.FailedTotal = int64(report.UnsavedCount + report.Ops)
	for _, u := range report.Unsaved {
		f := &wire.Failure{Path: u.Path, Kind: uint32(bb.Busy), Reason: "it is not queued for its flush yet", Bytes: u.Bytes}
		if u.Err != nil {
			f.Kind, f.Reason = uint32(bb.KindOf(u.Err)), u.Err.Error()
		}
		if len(m.Failed) < transfer.MaxNamed {
			m.Failed = append(m.Failed, f)
		}
	}
	if report.OpError != nil && len(m.Failed) < transfer.MaxNamed {
		m.Failed = append(m.Failed, &wire.Failure{Kind: uint32(bb.KindOf(report.OpError)), Reason: report.OpError.Error()})
	}
	m.HeldTotal, m.OpenTotal = int64(report.ExcludedCount), int64(report.OpenCount)
	m.Held = report.Excluded[:min(len(report.Excluded), transfer.MaxNamed)]
	m.Open = report.Open[:min(len(report.Open), transfer.MaxNamed)]
}

// firstFailure is why a drain did not save a file, or nil if it saved all that were closed.
func firstFailure(p *wire.Progress) error {
	if p == nil || len(p.Failed) == 0 {
		return nil
	}
	f := p.Failed[0]
	return bb.E(bb.Kind(f.Kind), "flush", f.Path, f.Reason)
}
