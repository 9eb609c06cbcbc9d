//go:build ofi && cgo && verbs

package bbd_test

import "forebay/rdma/ofi"

// clusterWant needs a verbs device: scripts/rxe.sh has one.
var clusterWant = ofi.Want{Provider: "verbs"}
