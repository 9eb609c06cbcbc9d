package batch

import (
	"encoding/json"

	"forebay/internal/bb"
	"forebay/meta/kv"
	"forebay/meta/metapb"
)

func seal(key string, v any, m *metapb.Lifetime, rest string) (data []byte, err error) {
	if m.Json, err = json.Marshal(v); err != nil {
		return nil, &bb.Error{Kind: bb.Internal, Op: "encode", Path: key, Err: err}
	}
	return kv.Seal(key, kv.WithRest(m, rest))
}

func open[T any](r *kv.Record) (v T, m *metapb.Lifetime, err error) {
	m = new(metapb.Lifetime)
	if err := kv.Open(r.Key, r.Data, m); err != nil {
		return v, m, err
	}
	if err := json.Unmarshal(m.GetJson(), &v); err != nil {
		return v, m, bb.E(bb.Checksum, "decode", r.Key, err.Error())
	}
	return v, m, nil
}

// sealRun encodes a batch job without its nodes.
func sealRun(l *bb.Lifetime) ([]byte, error) {
	m := &metapb.Lifetime{}
	for _, of := range l.Superseded {
		s := &metapb.SupersededSteps{Buffer: of.Buffer, Total: of.Total, Files: of.Files, Bytes: of.Bytes}
		for _, step := range of.Steps {
			s.Steps = append(s.Steps, &metapb.SupersededStep{Step: step.Step, By: step.By, Files: step.Files, Bytes: step.Bytes})
		}
		m.Superseded = append(m.Superseded, s)
	}
	return seal(runKey(l.Key), l, m, l.Rest)
}

func openRun(r *kv.Record) (bb.Lifetime, error) {
	l, m, err := open[bb.Lifetime](r)
	if err != nil {
		return l, err
	}
	l.Rest = kv.Rest(m)
	for _, of := range m.GetSuperseded() {
		s := bb.SupersededSteps{Buffer: of.GetBuffer(), Total: of.GetTotal(), Files: of.GetFiles(), Bytes: of.GetBytes()}
		for _, step := range of.GetSteps() {
			s.Steps = append(s.Steps, bb.SupersededStep{Step: step.GetStep(), By: step.GetBy(), Files: step.GetFiles(), Bytes: step.GetBytes()})
		}
		l.Superseded = append(l.Superseded, s)
	}
	return l, nil
}

// sealAttachment encodes a batch job's attachment to a node.
func sealAttachment(key string, n *bb.Attachment) ([]byte, error) {
	return seal(key, n, &metapb.Lifetime{Dropped: n.Usage.Dropped, DroppedBytes: n.Usage.DroppedBytes}, n.Rest)
}

func openAttachment(r *kv.Record) (bb.Attachment, error) {
	n, m, err := open[bb.Attachment](r)
	if err != nil {
		return n, err
	}
	n.Usage.Dropped, n.Usage.DroppedBytes, n.Rest = m.GetDropped(), m.GetDroppedBytes(), kv.Rest(m)
	return n, nil
}
