package tcp

import "forebay/rdma/internal/provider"

// Admission is a peer's permission to be connected, which Options.Admit returns and its owner may end.
// All providers share the type, so that one may count the connections of all.
type Admission = provider.Admission

// NewAdmission admits so many connections at once.
func NewAdmission(conns int) *Admission { return provider.NewAdmission(conns) }
