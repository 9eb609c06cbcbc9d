// Package fi is the part of libfabric that rdma/ofi needs, in Go's terms: the machine's fabrics and
// the choice among them, a domain with its queues, registered memory, endpoints and one-sided
// operations. It must never depend on the connections of package rdma. It needs cgo, libfabric 1.17
// or later and the build tag ofi. Built without, only the choice is there.
//
// C keeps only C's own memory, or memory that its owner keeps in place. See native.go.
package fi
