package tcp

import "forebay/rdma/internal/admission"

// Admission is a peer's permission to be connected, which Authenticate hands out and whoever
// gave it may end. All providers share the type, so that one may count the connections of all.
type Admission = admission.Admission

// NewAdmission admits so many connections at once.
func NewAdmission(conns int) *Admission { return admission.New(conns) }
