//go:build ofi && cgo && !verbs

package bbd_test

import "forebay/rdma/ofi/fi"

// clusterWant is what daemons of clusters reach each other over.
var clusterWant = fi.Want{Provider: "tcp", Address: "127.0.0.1"}
