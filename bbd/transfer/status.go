package transfer

import (
	"strings"

	"forebay/internal/bb"
	"forebay/internal/wire"
	"forebay/meta/ops"
)

// ProgressOf is how far an operation is, without names.
func ProgressOf(s *ops.Status) *wire.Progress {
	t := &s.Tally
	return &wire.Progress{
		Job: s.ID, FilesTotal: max(s.FilesTotal, t.Files+t.FailedTotal), FilesDone: t.Files, FilesSkipped: t.Skipped,
		BytesTotal: max(s.BytesTotal, t.Bytes), BytesDone: t.Bytes, BytesNotCopied: t.NotCopied,
		FailedTotal: t.FailedTotal, HeldTotal: t.ExcludedTotal, OpenTotal: t.OpenTotal, LastError: t.LastError, SupersededTotal: t.SupersededTotal,
	}
}

// NamesBytes bounds the names and reasons in one message.
const NamesBytes = wire.MaxMessage / 2

// EndOf is the last message about an operation.
func EndOf(s *ops.Status) *wire.Progress {
	p, t, room := ProgressOf(s), &s.Tally, NamesBytes
	p.Done = true
	for _, f := range t.Failed {
		if room -= len(f.Path) + len(f.Reason); room < 0 {
			break
		}
		p.Failed = append(p.Failed, &wire.Failure{Path: f.Path, Kind: uint32(f.Kind), Reason: f.Reason, Bytes: f.Bytes})
	}
	for _, names := range []struct{ from, to *[]string }{{&t.Excluded, &p.Held}, {&t.Open, &p.Open}, {&t.Superseded, &p.Superseded}} {
		for _, name := range *names.from {
			if room -= len(name); room < 0 {
				break
			}
			*names.to = append(*names.to, name)
		}
	}
	return p
}

// TallyOf is the result of a task.
func TallyOf(p *wire.Progress) ops.Tally {
	t := ops.Tally{
		Files: p.FilesDone, Bytes: p.BytesDone, NotCopied: p.BytesNotCopied, Skipped: p.FilesSkipped, FailedTotal: p.FailedTotal,
		Excluded: p.Held, ExcludedTotal: p.HeldTotal, Open: p.Open, OpenTotal: p.OpenTotal, LastError: p.LastError,
		Superseded: p.Superseded, SupersededTotal: p.SupersededTotal,
	}
	for _, f := range p.Failed {
		t.Failed = append(t.Failed, ops.Failure{Path: f.Path, Kind: bb.Kind(f.Kind), Reason: f.Reason, Bytes: f.Bytes})
	}
	return t
}

// stateOf is an operation's state as users see it. One whose tasks have ended is done only if they
// have left nothing out.
func stateOf(s *ops.Status) string {
	t := &s.Tally
	switch {
	case s.State != ops.Done:
		return string(s.State)
	case t.FailedTotal > 0:
		return bb.OperationFailed
	case t.ExcludedTotal+t.OpenTotal > 0:
		return bb.OperationIncomplete
	}
	return string(ops.Done)
}

// infoOf returns the form of an operation that users get.
func infoOf(s *ops.Status) bb.Operation {
	p := EndOf(s)
	j := bb.Operation{
		ID: s.ID, Kind: string(s.Kind), Buffer: s.Buffer, Path: s.Path, URL: s.URL, UID: s.UID, State: stateOf(s),
		Created: s.Created, Ended: s.Ended, Tasks: s.Tasks, Running: s.Running, TasksDone: s.TasksDone,
		Files: p.FilesTotal, FilesDone: p.FilesDone, Skipped: p.FilesSkipped, Bytes: p.BytesTotal, BytesDone: p.BytesDone, BytesNotCopied: p.BytesNotCopied,
		FailedTotal: p.FailedTotal, ExcludedTotal: p.HeldTotal, OpenTotal: p.OpenTotal, LastError: p.LastError,
		Superseded: p.Superseded, SupersededTotal: p.SupersededTotal,
	}
	for _, f := range p.Failed {
		j.Failed = append(j.Failed, bb.OperationFailure{Path: f.Path, Kind: bb.Kind(f.Kind).String(), Reason: strings.ToValidUTF8(f.Reason, "?"), Bytes: f.Bytes})
	}
	if len(s.ByNode) > 0 {
		j.Nodes = make(map[bb.NodeID]bb.OperationShare, len(s.ByNode))
		for node, t := range s.ByNode {
			j.Nodes[node] = bb.OperationShare{Files: t.Files, Bytes: t.Bytes}
		}
	}
	return j
}
