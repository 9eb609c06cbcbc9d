//go:build ofi && cgo && !verbs

package bbd_test

import "forebay/rdma/ofi/fi"

// clusterWant is the fabric between daemons of clusters.
var clusterWant = fi.Want{Provider: "tcp", Address: "127.0.0.1"}
