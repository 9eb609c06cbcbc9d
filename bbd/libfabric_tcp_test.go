//go:build ofi && cgo && !verbs

package bbd_test

import "forebay/rdma/ofi"

// clusterWant is what daemons of clusters reach each other over.
var clusterWant = ofi.Want{Provider: "tcp", Address: "127.0.0.1"}
