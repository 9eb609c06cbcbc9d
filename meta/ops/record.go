package ops

import (
	"strings"
	"time"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

func sealOperation(j *Operation, cancelled time.Time) ([]byte, error) {
	return kv.Seal(operationKey(j.ID), kv.WithRest(&metapb.Job{
		Id: j.ID, Kind: string(j.Kind), Buffer: j.Buffer, Path: j.Path, Url: j.URL, Node: string(j.Node), Uid: j.UID, Gid: j.GID,
		System: j.System, Options: j.Options, Created: kv.Nanos(j.Created), Cancelled: kv.Nanos(cancelled),
	}, j.rest))
}

func openOperation(r *kv.Record) (Operation, time.Time, error) {
	var m metapb.Job
	if err := kv.Open(r.Key, r.Data, &m); err != nil {
		return Operation{}, time.Time{}, err
	}
	return Operation{
		ID: m.GetId(), Kind: Kind(m.GetKind()), Buffer: m.GetBuffer(), Path: m.GetPath(), URL: m.GetUrl(), Node: bb.NodeID(m.GetNode()),
		UID: m.GetUid(), GID: m.GetGid(), System: m.GetSystem(), Options: m.GetOptions(), Created: kv.FromNanos(m.Created),
		rest: kv.Rest(&m),
	}, kv.FromNanos(m.Cancelled), nil
}

// valid makes a text of a failure fit for a record. Names on stores may be other bytes than UTF-8,
// and a shortened text may end within a character.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func sealTask(key string, t *taskRecord) ([]byte, error) {
	tally := &metapb.Tally{
		Files: t.tally.Files, Bytes: t.tally.Bytes, Skipped: t.tally.Skipped, NotCopied: t.tally.NotCopied, FailedTotal: t.tally.FailedTotal,
		Held: t.tally.Excluded, HeldTotal: t.tally.ExcludedTotal, Open: t.tally.Open, OpenTotal: t.tally.OpenTotal, LastError: valid(t.tally.LastError),
		Superseded: t.tally.Superseded, SupersededTotal: t.tally.SupersededTotal,
	}
	for _, f := range t.tally.Failed {
		tally.Failed = append(tally.Failed, &metapb.Failure{Path: valid(f.Path), Kind: uint32(f.Kind), Reason: valid(f.Reason), Bytes: f.Bytes})
	}
	return kv.Seal(key, kv.WithRest(&metapb.Task{
		Id: t.ID, Node: string(t.Node), Paths: t.Paths, Data: t.Data, Files: t.Files, Bytes: t.Bytes,
		State: string(t.state), By: string(t.by), Attempt: t.attempt, Changed: kv.Nanos(t.changed), Tally: tally,
	}, t.rest))
}

func openTask(r *kv.Record) (taskRecord, error) {
	var m metapb.Task
	if err := kv.Open(r.Key, r.Data, &m); err != nil {
		return taskRecord{}, err
	}
	t := m.GetTally()
	tally := Tally{
		Files: t.GetFiles(), Bytes: t.GetBytes(), Skipped: t.GetSkipped(), NotCopied: t.GetNotCopied(), FailedTotal: t.GetFailedTotal(),
		Excluded: t.GetHeld(), ExcludedTotal: t.GetHeldTotal(), Open: t.GetOpen(), OpenTotal: t.GetOpenTotal(), LastError: t.GetLastError(),
		Superseded: t.GetSuperseded(), SupersededTotal: t.GetSupersededTotal(),
	}
	for _, f := range t.GetFailed() {
		tally.Failed = append(tally.Failed, Failure{Path: f.GetPath(), Kind: bb.Kind(min(f.GetKind(), 255)), Reason: f.GetReason(), Bytes: f.GetBytes()})
	}
	return taskRecord{
		Task:  Task{ID: m.GetId(), Node: bb.NodeID(m.GetNode()), Paths: m.GetPaths(), Data: m.GetData(), Files: m.GetFiles(), Bytes: m.GetBytes()},
		state: taskState(m.GetState()), by: bb.NodeID(m.GetBy()), attempt: m.GetAttempt(), changed: kv.FromNanos(m.Changed), tally: tally, revision: r.Seq,
		rest: kv.Rest(&m),
	}, nil
}
