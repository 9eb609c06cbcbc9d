//go:build ofi && cgo && verbs

package bbd_test

import "forebay/rdma/ofi/fi"

// clusterWant needs a verbs device, since scripts/rxe.sh has one.
var clusterWant = fi.Want{Provider: "verbs"}
