// Package fi is what rdma/ofi needs of libfabric, in Go's terms: what the machine has and which of
// it to take, a domain with its queues, registered memory, endpoints and one-sided operations. It must
// never know what a connection of package rdma is. It needs cgo, libfabric 1.17 or later and the build
// tag ofi; built without, only the choice is there.
//
// What C keeps is C's own memory, or memory that its owner has promised to keep in place; see native.go.
package fi
