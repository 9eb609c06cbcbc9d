package wire

import "forebay/internal/bb"

// FromSuperseded makes the messages of the superseded steps of buffers.
func FromSuperseded(all []bb.SupersededSteps) (list []*SupersededSteps) {
	for _, of := range all {
		m := &SupersededSteps{Buffer: of.Buffer, Total: of.Total, Files: of.Files, Bytes: of.Bytes}
		for _, s := range of.Steps {
			m.Steps = append(m.Steps, &SupersededStep{Step: text(s.Step), By: text(s.By), Files: s.Files, Bytes: s.Bytes})
		}
		list = append(list, m)
	}
	return list
}

// AsSuperseded makes the superseded steps of buffers of their messages.
func AsSuperseded(list []*SupersededSteps) (all []bb.SupersededSteps) {
	for _, m := range list {
		of := bb.SupersededSteps{Buffer: m.GetBuffer(), Total: m.GetTotal(), Files: m.GetFiles(), Bytes: m.GetBytes()}
		for _, s := range m.GetSteps() {
			of.Steps = append(of.Steps, bb.SupersededStep{Step: s.GetStep(), By: s.GetBy(), Files: s.GetFiles(), Bytes: s.GetBytes()})
		}
		all = append(all, of)
	}
	return all
}
